"""The answer to one POST: JSON if nothing is said before it, else a stream of events that ends with it.

A stream is begun by the first message that has to go before the answer, or by a quarter of a minute of
silence, so that nothing on the way gives the connection up. Whoever answers does not see the difference.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from trunkline.front.answers import Answer
from trunkline.front.exchange import Exchange
from trunkline.front.mcp.channel import Channel
from trunkline.front.mcp.envelope import RpcFailure, status_of
from trunkline.wire import jsonrpc

EVENTS_HEADERS = (
    (b"content-type", b"text/event-stream"),
    (b"x-accel-buffering", b"no"),
)


class Answering(Protocol):
    """Where the answer to one request goes, and what comes before it."""

    @property
    def streams(self) -> bool:
        """Whether the client takes anything before the answer."""
        ...

    @property
    def streaming(self) -> bool:
        """Whether it is too late for a status other than 200."""
        ...

    def say(self, message: bytes) -> None:
        """Something that comes before the answer; dropped where the client does not take it."""
        ...

    async def finish(self, message: bytes | None, status: int = 200) -> None:
        """The answer itself; None where the request was withdrawn and none is owed."""
        ...

    def abandon(self) -> None:
        """Nobody reads any more."""
        ...


class Reply:
    """`Answering` over streamable HTTP."""

    def __init__(
        self, exchange: Exchange, *, streams: bool, make_channel: Callable[[], Channel] = Channel
    ) -> None:
        self._exchange = exchange
        self._streams = streams
        self._make_channel = make_channel
        self._made: Channel | None = None
        self._pump: asyncio.Task[None] | None = None
        if streams:
            exchange.when_silent(self._begin)

    @property
    def streams(self) -> bool:
        return self._streams

    @property
    def _channel(self) -> Channel:
        if self._made is None:
            self._made = self._make_channel()
        return self._made

    @property
    def streaming(self) -> bool:
        return self._pump is not None

    def say(self, message: bytes) -> None:
        if self._streams:
            self._begin()
            self._channel.put(message)

    def _begin(self) -> None:
        if self._pump is None:
            self._channel.take_over(self)
            self._pump = asyncio.get_running_loop().create_task(
                pump(self._exchange, self._channel, self, first=self._channel.first)
            )

    async def finish(self, message: bytes | None, status: int = 200) -> None:
        if self._pump is None and message is not None:
            self._exchange.reply(Answer(status, message))
            return
        if self._pump is None:
            self._begin()
        if message is not None:
            self._channel.put(message)
        self._channel.close()
        if self._pump is not None:
            await self._pump

    def abandon(self) -> None:
        """It is answered in another way, or nobody reads any more."""
        self._exchange.when_silent(None)
        if self._pump is not None:
            self._channel.close()
            self._pump.cancel()


async def pump(exchange: Exchange, channel: Channel, reader: object, *, first: bytes = b"") -> None:
    """Write what the channel has until it is closed or somebody else reads it."""
    exchange.begin(200, EVENTS_HEADERS)
    await exchange.write(first)
    while (events := await channel.next(reader)) is not None:
        await exchange.write(events)
    exchange.end()


def refusal(
    identity: jsonrpc.RpcId | None, failure: RpcFailure, extra: tuple[tuple[bytes, bytes], ...] = ()
) -> Answer:
    """The answer to a POST that is nothing but an error."""
    headers = list(extra)
    if failure.retry_after is not None:
        headers.append((b"retry-after", b"%d" % failure.retry_after))
    body = jsonrpc.encode_error(identity, failure.code, failure.message, failure.data)
    return Answer(status_of(failure), body, tuple(headers))
