"""One client connection: HTTP/1.1 read by llhttp, one exchange answered after the other.

A request is judged as soon as its head is there and handed on when its body is, whole and within limits of
size and time. Closes who does not finish a head or a body in time, who trickles on after a refusal, and who
does not read; says every refusal of its own in the JSON of all others. When it is time is `connections.py`'s
to say, what a request means `entrance.py`'s.
"""

import asyncio
from collections import deque
from enum import Enum
from typing import Protocol, cast
from urllib.parse import unquote_to_bytes

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

from trunkline.errors import BadRequest, HeadersTooLarge, PayloadTooLarge, RequestTimeout
from trunkline.front.answers import Answer, answer_to
from trunkline.front.connections import Connections
from trunkline.front.exchange import Exchange, Headers

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class Entrance(Protocol):
    """Who judges and answers."""

    def admit(self, exchange: Exchange) -> Answer | None:
        """Judge a request by its head. The refusal, if it is one; never raises."""
        ...

    async def serve(self, exchange: Exchange) -> None:
        """Answer it. Raises nothing but `CancelledError`."""
        ...


class _State(Enum):
    SILENT = "waits for its first byte"
    HEAD = "a head has begun"
    BODY = "a body has begun"
    BUSY = "a request is being answered"
    IDLE = "between two requests"
    LEAVING = "lingers until the client has read the last answer"


class _HeadTooLarge(Exception):
    """Raised into the parser, which stops."""


class ClientConnection(asyncio.Protocol):
    def __init__(self, entrance: Entrance, among: Connections) -> None:
        self._entrance = entrance
        self._patience = among.patience
        self._among = among
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._parser: HttpRequestParser | None = HttpRequestParser(self)
        self._peer: tuple[str, int] | None = None
        self._local: tuple[str, int] | None = None
        self._state = _State.SILENT
        self._since = self._loop.time()
        self._head_size = 0
        self._target = b""
        self._headers = Headers()
        self._coming: Exchange | None = None
        """The one whose body is being read."""
        self._refusal: Answer | None = None
        self._pieces: list[bytes] = []
        self._size = 0
        self._current: Exchange | None = None
        self._waiting: deque[tuple[Exchange, Answer | None]] = deque()
        self._paused = False
        self._last = False
        """Whether no further request is read."""
        self._unread: tuple[float, int] | None = None
        self._room = asyncio.Event()
        self._room.set()

    # What the event loop says

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._peer = _address(transport.get_extra_info("peername"))
        self._local = _address(transport.get_extra_info("sockname"))
        self._among.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._parser = None  # or the two would keep each other until a full garbage collection
        self._transport = None
        self._room.set()
        self._among.discard(self)
        self._waiting.clear()
        if self._current is not None:
            self._current.lost()

    def data_received(self, data: bytes) -> None:
        if self._last or self._parser is None:
            return
        if self._coming is None:
            self._head_size += len(data)
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade:
            # Declined by serving the request as it is; the parser cannot go on after it.
            self._read_no_more()
        except HttpParserError:
            self._refuse(self._too_large() if self._head_too_large else _malformed())
            return
        if self._coming is not None:
            self._read_on(self._coming)
        elif self._current is not None:
            if self._head_too_large:
                self._pause_reading()
        elif not self._last:
            self._read_on_head()

    def eof_received(self) -> None:
        """Whoever hangs up their half is not waiting for an answer: the transport closes."""

    def pause_writing(self) -> None:
        self._room.clear()
        self._unread = self._loop.time(), self._unsent

    def resume_writing(self) -> None:
        self._unread = None
        self._room.set()
        self._go_on()

    # What llhttp says

    def on_message_begin(self) -> None:
        self._target = b""
        self._headers = Headers()

    def on_url(self, target: bytes) -> None:
        self._target += target

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.add(name, value)

    def on_headers_complete(self) -> None:
        if self._parser is None:
            return
        if self._head_too_large and self._exact_head_size() > self._patience.head_bytes:
            raise _HeadTooLarge
        self._head_size = 0
        path, query = _split_target(self._target)
        exchange = self._coming = Exchange(
            self,
            method=self._parser.get_method().decode("ascii"),
            target=self._target,
            path=path,
            query=query,
            headers=self._headers,
            http10=self._parser.get_http_version() == "1.0",
        )
        exchange.client, exchange.local = self._peer, self._local
        kept = not exchange.http10 and self._parser.should_keep_alive() and not self._parser.should_upgrade()
        exchange.keep_alive = kept and not self._among.closing
        self._refusal = self._entrance.admit(exchange)
        declared = self._headers.get(b"content-length")
        if declared is not None and self._refusal is None and _number(declared) > self._patience.body_bytes:
            self._refusal = self._body_too_large()

    def on_body(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._refusal is None and self._size > self._patience.body_bytes:
            self._refusal = self._body_too_large()
        if self._refusal is None:
            self._pieces.append(piece)
        else:
            self._pieces.clear()

    def on_message_complete(self) -> None:
        exchange = self._coming
        if exchange is None:
            return
        pieces = self._pieces
        if pieces:
            exchange.body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
            self._pieces = []
        self._coming, self._size = None, 0
        self._waiting.append((exchange, self._refusal))
        if self._current is None:
            self._go_on()
        else:
            self._pause_reading()

    # One after the other

    def _go_on(self) -> None:
        """Take up the next request, if there is one and the client has read enough of what went before."""
        while self._waiting and self._current is None and self._room.is_set():
            exchange, refusal = self._waiting.popleft()
            self._current = exchange
            self._enter(_State.BUSY)
            if refusal is not None:
                exchange.reply(refusal)
            else:
                exchange.worker = self._loop.create_task(self._entrance.serve(exchange))

    def answered(self, *, whole: bool) -> None:
        exchange, self._current = self._current, None
        transport = self._transport
        if exchange is None or transport is None:
            return
        if not whole:
            transport.abort()
            return
        if not exchange.keep_alive or self._last:
            self._read_no_more()
            self._close()
            return
        if self._waiting:
            # Not at once: whoever answered is still on the stack, and there may be many.
            self._loop.call_soon(self._go_on)
            return
        if self._paused:
            self._paused = False
            transport.resume_reading()
        self._enter(_State.IDLE)
        if self._coming is not None:
            self._read_on(self._coming)
        else:
            self._read_on_head()

    def _pause_reading(self) -> None:
        if self._transport is not None and not self._paused:
            self._paused = True
            self._transport.pause_reading()

    def _read_on_head(self) -> None:
        """Whatever came since the last request is the beginning of a head."""
        if self._head_too_large:
            self._refuse(self._too_large())
        elif self._head_size and self._state is not _State.HEAD:
            self._enter(_State.HEAD)

    def _read_on(self, exchange: Exchange) -> None:
        """The head is there and the body is not, or not whole."""
        if self._current is not None or self._waiting:
            return
        if self._refusal is not None:
            self._refuse(self._refusal, exchange)
            return
        if self._state is not _State.BODY:
            self._enter(_State.BODY)
            expects = exchange.headers.get(b"expect")
            if expects is not None and expects.lower() == b"100-continue" and not exchange.http10:
                self.send(_CONTINUE)

    def _enter(self, state: _State) -> None:
        self._state = state
        self._since = self._loop.time()

    # Sending

    def send(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    async def drained(self) -> None:
        await self._room.wait()

    @property
    def _unsent(self) -> int:
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    # Refusals of our own

    def _refuse(self, answer: Answer, exchange: Exchange | None = None) -> None:
        """Answer and hear no more; closing at once could take the answer away from who is still sending."""
        self._read_no_more()
        if self._current is not None:
            self._current.keep_alive = False  # garbage behind a request that is being answered
            return
        if exchange is None:
            exchange = Exchange(
                self, method="GET", target=b"", path="", query=b"", headers=Headers(), http10=False
            )
        exchange.keep_alive = False
        self._coming = None
        self._enter(_State.LEAVING)
        exchange.reply(answer)
        if self._transport is not None and self._transport.can_write_eof():
            self._transport.write_eof()

    def _read_no_more(self) -> None:
        self._last = True

    def _close(self) -> None:
        """When what was written has left."""
        if self._transport is not None:
            self._enter(_State.LEAVING)
            self._transport.close()

    @property
    def _head_too_large(self) -> bool:
        return self._coming is None and self._head_size > self._patience.head_bytes

    def _exact_head_size(self) -> int:
        return len(self._target) + sum(len(name) + len(value) + 4 for name, value in self._headers)

    def _too_large(self) -> Answer:
        limit = self._patience.head_bytes
        return answer_to(HeadersTooLarge(f"The request head is larger than {limit} bytes"))

    def _body_too_large(self) -> Answer:
        limit = self._patience.body_bytes
        return answer_to(
            PayloadTooLarge(
                f"The request body is larger than {limit} bytes, the limit MCP_AGGREGATOR_BODY_LIMIT sets",
                context={"limit": limit},
            )
        )

    # Patience

    def look(self, now: float) -> None:
        """Called every so often: is it time to give this connection up?"""
        if self._transport is None:
            return
        patience, passed = self._patience, now - self._since
        if self._unread is not None:
            self._look_at_reader(now, *self._unread)
            return
        match self._state:
            case _State.SILENT if passed > patience.head_seconds:
                self._close()
            case _State.HEAD if passed > patience.head_seconds:
                self._refuse_late("The request head was not complete after", patience.head_seconds)
            case _State.BODY if passed > patience.body_seconds:
                self._refuse_late("The request body did not arrive within", patience.body_seconds)
            case _State.BUSY if passed > patience.silent_seconds and self._current is not None:
                self._current.silent()
            case _State.IDLE if passed > patience.idle_seconds:
                self._close()
            case _State.LEAVING if passed > patience.linger_seconds:
                if self._unsent:
                    self._unread = now, self._unsent
                else:
                    self._transport.abort()

    def _refuse_late(self, what: str, seconds: float) -> None:
        self._refuse(answer_to(RequestTimeout(f"{what} {seconds:g} seconds")), self._coming)

    def _look_at_reader(self, now: float, since: float, unsent: int) -> None:
        left = self._unsent
        if left < unsent:
            self._unread = now, left
        elif now - since > self._patience.unread_seconds and self._transport is not None:
            self._transport.abort()

    # The end of the gateway

    def finish(self) -> None:
        """No further request; what is being answered may end."""
        self._read_no_more()
        if self._current is None:
            self._close()
        else:
            self._current.keep_alive = False

    def cut_off(self) -> None:
        if self._current is not None and self._current.worker is not None:
            self._current.worker.cancel()
        elif self._transport is not None:
            self._transport.abort()


def _split_target(target: bytes) -> tuple[str, bytes]:
    """Path and query; of an address in full only what is behind its host."""
    if not target.startswith(b"/"):
        _, scheme, rest = target.partition(b"://")
        target = b"/" + rest.partition(b"/")[2] if scheme else target
    path, _, query = target.partition(b"?")
    if b"%" in path:
        path = unquote_to_bytes(path)
    return path.decode("utf-8", "replace"), query


def _number(text: bytes) -> int:
    return int(text) if text.isdigit() and len(text) <= 20 else 0


def _address(name: object) -> tuple[str, int] | None:
    if isinstance(name, tuple) and len(name) >= 2:
        return str(name[0]), int(name[1])
    return None


def _malformed() -> Answer:
    return answer_to(BadRequest("What was sent is not a valid HTTP request"))
