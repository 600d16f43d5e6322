"""One HTTP/1.1 connection as a client: a request out, its answer in, and the next when that has ended.

Bytes go straight from the event loop through llhttp into the answer that waits for them: this is the hot
path of every upstream over HTTP, and a general client costs five to ten times as much. Nothing is followed,
unpacked or remembered here. Where connections come from and may lead is `outbound_client.py`'s matter.
"""

import asyncio
import select
from collections.abc import Callable
from typing import cast

from httptools import HttpParserCallbackError, HttpParserError, HttpParserUpgrade, HttpResponseParser

from trunkline.errors import Lost, ProtocolViolation, UpstreamError
from trunkline.upstream.wires import too_large

LARGEST_HEAD = 64 * 1024
LARGEST_HEADER = 16 * 1024
MOST_HEADERS = 128
READ_AHEAD = 256 * 1024
"""What may wait for a reader; then the server has to."""
LINGER_SECONDS = 0.5
"""How long an answer nobody reads any more may take to end before its connection is given up."""

_BODILESS = (204, 304)
_CUT_SHORT = "the connection was closed before the answer was complete"
_NOT_HTTP = "what it answered is not valid HTTP"
_PARSER_ERRORS = (HttpParserError, HttpParserCallbackError, HttpParserUpgrade)


class HttpAnswer:
    """The head of an answer, and its body as far as it has come. Headers are named in lower case."""

    __slots__ = ("_connection", "_error", "_pieces", "_size", "_waiting", "ended", "headers", "status")

    def __init__(self, connection: "HttpConnection", status: int, headers: dict[str, str]) -> None:
        self.status = status
        self.headers = headers
        self.ended = False
        """Whether all of it has come."""
        self._connection = connection
        self._pieces: list[bytes] = []
        self._size = 0
        self._error: UpstreamError | None = None
        self._waiting: asyncio.Future[None] | None = None

    async def read(self) -> bytes:
        """Some more of the body; empty at its end. Raises `Lost`, `ProtocolViolation`."""
        while not self._pieces:
            if self._error is not None:
                raise self._error
            if self.ended:
                return b""
            self._waiting = asyncio.get_running_loop().create_future()
            try:
                await self._waiting
            finally:
                self._waiting = None
        return self._take()

    async def read_all(self, limit: int) -> bytes:
        """The body. Raises `ProtocolViolation` as soon as it is certain to be larger than the limit."""
        if self.ended and self._size <= limit and self._error is None:
            return self._take()
        declared = self.headers.get("content-length", "")
        if declared.isdigit() and int(declared[:20]) > limit:
            raise too_large(limit)
        parts: list[bytes] = []
        size = 0
        while part := await self.read():
            size += len(part)
            if size > limit:
                raise too_large(limit)
            parts.append(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def close(self) -> None:
        """Not to be read any more: a connection still busy with it is given up."""
        if not self.ended:
            self._connection.abort()

    def let_end(self) -> None:
        """The same, but an answer that ends soon leaves its connection good for the next request."""
        if not self.ended:
            self._connection.close_unless_ended(self)

    def _take(self) -> bytes:
        pieces = self._pieces
        whole = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        self._size = 0
        self._connection.read_on()
        return whole

    # Called by the connection

    def feed(self, piece: bytes) -> bool:
        """Whether more may come now."""
        self._pieces.append(piece)
        self._size += len(piece)
        self._wake()
        return self._size <= READ_AHEAD

    def end(self, error: UpstreamError | None = None) -> None:
        self.ended = True
        self._error = error
        self._wake()

    def forget(self) -> None:
        """Nobody reads it: what comes is dropped."""
        self._pieces.clear()
        self._size = 0

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)


class HttpConnection(asyncio.Protocol):
    """`on_free` is told when it can take another request, `on_gone` once when it never will again."""

    def __init__(
        self,
        on_free: Callable[["HttpConnection"], None],
        on_gone: Callable[["HttpConnection"], None],
    ) -> None:
        self._on_free = on_free
        self._on_gone = on_gone
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._parser: HttpResponseParser | None = HttpResponseParser(self)
        self._poll: select.poll | None = None
        self._waiting: asyncio.Future[HttpAnswer] | None = None
        self._answer: HttpAnswer | None = None
        self._headers: dict[str, str] = {}
        self._header_count = 0
        self._head_size = 0
        self._interim = False
        self._until_end = False
        """Whether the body ends with the connection."""
        self._paused = False
        self._dropping = False
        self._lingering: asyncio.TimerHandle | None = None
        self._ending: UpstreamError | None = None
        self.free_since = 0.0

    # Requests

    async def request(self, message: bytes) -> HttpAnswer:
        """Send a request; returns when the head of its answer is here. Raises `Lost`, `ProtocolViolation`."""
        if self._transport is None:
            raise AssertionError("not connected")
        waiting: asyncio.Future[HttpAnswer] = self._loop.create_future()
        self._waiting = waiting
        self._transport.write(message)
        try:
            return await waiting
        except asyncio.CancelledError:
            if waiting.done() and not waiting.cancelled():
                waiting.exception()  # nobody is left to hear of it
            self.abort()
            raise

    @property
    def usable(self) -> bool:
        """Whether a request may be sent, also where the event loop has not come to notice a hang-up.

        Nobody may speak before our request: whatever is there to read is the end of the connection. Under
        TLS there may be session tickets, so there the event loop's word has to do.
        """
        if self._transport is None or self._ending is not None or self._transport.is_closing():
            return False
        return self._poll is None or not self._poll.poll(0)

    def close_unless_ended(self, answer: HttpAnswer) -> None:
        if self._answer is answer:
            answer.forget()
            self._dropping = True
            self.read_on()
            self._lingering = self._loop.call_later(LINGER_SECONDS, self.abort)

    def read_on(self) -> None:
        if self._paused and self._transport is not None and not self._transport.is_closing():
            self._paused = False
            self._transport.resume_reading()

    def abort(self, error: UpstreamError | None = None) -> None:
        """At once; whoever waits is told."""
        self._fail(error or Lost("the connection was closed"))
        if self._transport is not None:
            self._transport.abort()

    # What the event loop says

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        made = transport.get_extra_info("socket")
        if made is not None and transport.get_extra_info("sslcontext") is None and hasattr(select, "poll"):
            self._poll = select.poll()
            self._poll.register(made.fileno(), select.POLLIN)

    def data_received(self, data: bytes) -> None:
        if self._ending is not None or self._parser is None:
            return
        if self._answer is None:
            self._head_size += len(data)
        try:
            self._parser.feed_data(data)
        except _PARSER_ERRORS:
            self.abort(ProtocolViolation(_NOT_HTTP))
            return
        if self._answer is None and self._head_size > LARGEST_HEAD and self._waiting is not None:
            self.abort(ProtocolViolation(_NOT_HTTP))

    def eof_received(self) -> None:
        if self._answer is not None and self._until_end:
            self._end_answer()

    def connection_lost(self, error: Exception | None) -> None:
        if self._answer is not None and self._until_end and error is None:
            self._end_answer()
        self._fail(Lost(_CUT_SHORT))
        self._parser = None  # or the two would keep each other until a full garbage collection
        self._on_gone(self)

    def _fail(self, error: UpstreamError) -> None:
        if self._ending is not None:
            return
        self._ending = error
        self._stop_lingering()
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(error)
        if self._answer is not None:
            self._answer.end(error)
        self._waiting = self._answer = None

    # What llhttp says

    def on_message_begin(self) -> None:
        if self._waiting is None or self._waiting.done():
            raise ValueError("an answer to nothing")

    def on_header(self, name: bytes, value: bytes) -> None:
        self._header_count += 1
        if len(value) > LARGEST_HEADER or self._header_count > MOST_HEADERS:
            raise ValueError("a head that is too large")
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        self._headers[key] = f"{self._headers[key]}, {text}" if key in self._headers else text

    def on_headers_complete(self) -> None:
        if self._parser is None or self._waiting is None:
            return
        status, headers = self._parser.get_status_code(), self._headers
        self._headers, self._header_count, self._head_size = {}, 0, 0
        self._interim = 100 <= status < 200
        if self._interim:
            return
        framed = "content-length" in headers or "transfer-encoding" in headers
        self._until_end = not framed and status not in _BODILESS
        self._answer = HttpAnswer(self, status, headers)
        if not self._waiting.done():
            self._waiting.set_result(self._answer)

    def on_body(self, body: bytes) -> None:
        if self._answer is None or self._dropping:
            return
        if not self._answer.feed(body) and not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()

    def on_message_complete(self) -> None:
        if self._interim or self._answer is None or self._parser is None:
            return
        kept = self._parser.should_keep_alive()
        self._end_answer()
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if not kept or transport.get_write_buffer_size():
            self._ending = Lost(_CUT_SHORT)
            transport.close()
            return
        self.free_since = self._loop.time()
        self._on_free(self)

    def _end_answer(self) -> None:
        self._stop_lingering()
        if self._answer is not None:
            self._answer.end()
        self._waiting = self._answer = None
        self._dropping = False
        self.read_on()

    def _stop_lingering(self) -> None:
        if self._lingering is not None:
            self._lingering.cancel()
            self._lingering = None
