"""The HTTP+SSE wire of the oldest servers: one event stream to hear on, a second address to POST to.

The stream is the connection: its first event names the address for messages, every answer comes on it, and
when it ends all that was asked is lost. Nothing on it says which request it belongs to but our own key.
Connections are `outbound_client.py`'s, the meaning of a refusal is `http_answers.py`'s.
"""

import asyncio
import contextlib
from collections.abc import Coroutine

import msgspec

from trunkline.errors import Lost, NotSent, ProtocolViolation, SessionGone, UpstreamError
from trunkline.model import SseSpec
from trunkline.ports import Redact
from trunkline.upstream import http_answers
from trunkline.upstream.address import Address
from trunkline.upstream.http_answers import EVENTS, Asked
from trunkline.upstream.http_connection import HttpAnswer
from trunkline.upstream.outbound_client import OutboundClient, OutboundSession
from trunkline.upstream.wires import Exchange, Inbox, rpc_error, too_large
from trunkline.wire import jsonrpc
from trunkline.wire.eras import Introduction
from trunkline.wire.jsonrpc import ErrorResponse, Malformed, Message, Notification, Request, Response
from trunkline.wire.sse import EventTooLarge, SseEvent, SseParser

CANCEL_SECONDS = 5.0
POST_GRACE_SECONDS = 1.0
"""How long a POST may take to be confirmed once its answer is already here."""


class _Pending:
    """A request that waits: for its POST to be taken, and for its answer on the stream."""

    def __init__(self) -> None:
        self.scope = asyncio.timeout(None)
        self.posting = True
        self.answer: asyncio.Future[Response | ErrorResponse] = asyncio.get_running_loop().create_future()

    @property
    def answered(self) -> bool:
        return self.answer.done() and not self.answer.cancelled()


class SseWire:
    def __init__(
        self, spec: SseSpec, *, name: str, client: OutboundClient, message_limit: int, redact: Redact
    ) -> None:
        self._spec = spec
        self._name = name
        self._client = client
        self._limit = message_limit
        self._redact = redact
        self._loop = asyncio.get_running_loop()
        self._opened: OutboundSession | None = None
        self._stream: HttpAnswer | None = None
        self._endpoint: asyncio.Future[Address] = self._loop.create_future()
        self._pending: dict[int, _Pending] = {}
        self._inbox: Inbox | None = None
        self._highest_key = 0
        self._end: UpstreamError | None = None
        self._closed = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._last_heard = 0.0

    # Life

    async def open(self, inbox: Inbox) -> None:
        self._inbox = inbox
        accept = f"{http_answers.JSON}, {EVENTS}"
        session = self._opened = self._client.open(self._spec.url, self._spec.headers, accept=accept)
        try:
            self._stream = await session.get(session.address, {"Accept": EVENTS})
            self._last_heard = self._loop.time()
            await self._check_stream(session, self._stream)
            self._start(self._read(session, self._stream, inbox))
            await self._endpoint
        except UpstreamError as error:
            error.phase = "connect"
            raise

    async def introduced(self, introduction: Introduction) -> None:
        """The stream is open since the beginning: there is nothing more to do."""

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._fail_all(Lost("the connection was closed"))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._stream is not None:
            self._stream.close()
        if self._opened is not None:
            self._opened.close()

    @property
    def last_heard(self) -> float:
        return self._last_heard

    def epitaph(self) -> str:
        return ""

    # Requests

    async def exchange(self, exchange: Exchange) -> bytes:
        session, endpoint = self._usable()
        message = jsonrpc.encode_request(exchange.key, exchange.method, exchange.params)
        pending = self._pending[exchange.key] = _Pending()
        self._highest_key = max(self._highest_key, exchange.key)
        try:
            async with pending.scope:
                await self._post(session, endpoint, message, exchange, pending)
                await pending.answer
        except TimeoutError:
            if not pending.answered:
                reason = self._end.reason if self._end is not None else "the connection was closed"
                raise (Lost if exchange.sent else NotSent)(reason) from None
        except SessionGone as error:
            self._lose(error)
            raise
        finally:
            del self._pending[exchange.key]
        answer = pending.answer.result()
        if isinstance(answer, ErrorResponse):
            raise rpc_error(answer, self._redact)
        return answer.result

    async def notify(self, method: str, params: bytes = b"") -> None:
        session, endpoint = self._usable()
        message = jsonrpc.encode_notification(method, params)
        await self._deliver(session, endpoint, message, Exchange(0, method, params))

    async def answer(self, message: bytes) -> None:
        session, endpoint = self._usable()
        await self._deliver(session, endpoint, message, Exchange(0, "", b""))

    async def cancel(self, exchange: Exchange, reason: str) -> None:
        """Nobody waits for this message."""
        if self._end is None and not self._closed:
            params = msgspec.json.encode({"requestId": exchange.key, "reason": reason})
            self._start(self._notify_in_time("notifications/cancelled", params))

    async def _notify_in_time(self, method: str, params: bytes) -> None:
        with contextlib.suppress(UpstreamError, TimeoutError):
            async with asyncio.timeout(CANCEL_SECONDS):
                await self.notify(method, params)

    async def _post(
        self,
        session: OutboundSession,
        endpoint: Address,
        message: bytes,
        exchange: Exchange,
        pending: _Pending,
    ) -> None:
        try:
            await self._deliver(session, endpoint, message, exchange)
        except UpstreamError:
            if not pending.answered:
                raise
        finally:
            pending.posting = False

    async def _deliver(
        self, session: OutboundSession, endpoint: Address, message: bytes, exchange: Exchange
    ) -> None:
        response = await session.post(endpoint, message, {}, exchange)
        try:
            if response.status >= 300:
                raise await session.refused(response, Asked(exchange.key or None, True), self._redact)
        finally:
            response.let_end()

    def _usable(self) -> tuple[OutboundSession, Address]:
        if self._end is not None:
            raise NotSent(self._end.reason)
        if self._opened is None or self._closed or not self._endpoint.done():
            raise NotSent("the connection is not open")
        return self._opened, self._endpoint.result()

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = self._loop.create_task(work, name=f"{self._name}: beside its requests")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # The stream

    async def _check_stream(self, session: OutboundSession, stream: HttpAnswer) -> None:
        if stream.status != 200:
            raise await session.refused(stream, Asked(None, False), self._redact)
        http_answers.check_encoding(stream.headers)
        kind = http_answers.media_type(stream.headers)
        if kind != EVENTS:
            raise http_answers.unexpected_type(kind)

    async def _read(self, session: OutboundSession, stream: HttpAnswer, inbox: Inbox) -> None:
        parser = SseParser(self._limit)
        end: UpstreamError = Lost("the server closed its event stream")
        try:
            while chunk := await stream.read():
                self._last_heard = self._loop.time()
                for event in parser.feed(chunk):
                    self._on_event(event, session, inbox)
        except EventTooLarge:
            end = too_large(self._limit)
        except UpstreamError as error:
            end = error
        self._lose(end)

    def _on_event(self, event: SseEvent, session: OutboundSession, inbox: Inbox) -> None:
        if event.event == "endpoint":
            if not self._endpoint.done():
                self._endpoint.set_result(_endpoint(session.address, event.data))
            return
        if event.event != "message" or not event.data:
            return
        try:
            messages = jsonrpc.decode_all(event.data)
        except Malformed as error:
            inbox.on_noise(f"an event that is {error}")
            return
        for message in messages:
            self._take(message, inbox)

    def _take(self, message: Message, inbox: Inbox) -> None:
        match message:
            case Notification():
                inbox.on_notification(message.method, message.params, None)
            case Request():
                inbox.on_request(message.id, message.method, message.params, None)
            case Response() | ErrorResponse():
                self._take_answer(message, inbox)

    def _take_answer(self, message: Response | ErrorResponse, inbox: Inbox) -> None:
        pending = self._pending.get(message.id) if isinstance(message.id, int) else None
        if pending is not None and not pending.answer.done():
            pending.answer.set_result(message)
            if pending.posting:
                pending.scope.reschedule(self._loop.time() + POST_GRACE_SECONDS)
        elif not (isinstance(message.id, int) and 0 < message.id <= self._highest_key):
            inbox.on_noise("an answer to nothing that was asked")

    def _lose(self, error: UpstreamError) -> None:
        """The stream, and with it the connection, is over."""
        if self._end is not None or self._closed:
            return
        self._fail_all(error)
        if not self._endpoint.done():
            self._endpoint.set_exception(error)
        elif self._inbox is not None:
            self._inbox.on_lost(error)

    def _fail_all(self, error: UpstreamError) -> None:
        if self._end is not None:
            return
        self._end = error
        for pending in self._pending.values():
            if not pending.answered:
                pending.scope.reschedule(self._loop.time())


def _endpoint(base: Address, data: bytes) -> Address:
    """Where to POST, as the server says; only the origin it was asked on can say so."""
    try:
        target = base.joined(data.decode("utf-8").strip())
    except ValueError:
        raise ProtocolViolation("the endpoint event of its stream holds no address") from None
    if target.origin != base.origin:
        raise ProtocolViolation("the endpoint event of its stream leads to another server")
    return target
