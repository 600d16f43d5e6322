"""One request and its answer, as whoever answers sees them: no socket, no framework.

A connection makes it when a request's head is there and hands it on when its body is. It is answered whole by
`reply`, or as a stream by `begin`, `write` and `end`; what comes after the client has gone is dropped. What a
request wants is for the routes to say, how bytes travel is `connections.py`'s.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from email.utils import formatdate
from http import HTTPStatus
from types import TracebackType
from typing import Protocol

from trunkline.front.answers import Answer
from trunkline.model import Principal

Header = tuple[bytes, bytes]

_REASONS = {status.value: status.phrase.encode() for status in HTTPStatus}
_STATUS_LINES = {status: b"HTTP/1.1 %d %b\r\n" % (status, reason) for status, reason in _REASONS.items()}
_ALWAYS = b"cache-control: no-store\r\nx-content-type-options: nosniff\r\n"
_BODILESS = (204, 304)


class _Date:
    """The header of the present second, written once in it."""

    def __init__(self) -> None:
        self._second = 0
        self._line = b""

    def line(self) -> bytes:
        second = int(time.time())
        if second != self._second:
            self._second = second
            self._line = b"date: %b\r\n" % formatdate(second, usegmt=True).encode()
        return self._line


_date = _Date()


class ClientGone(Exception):
    """The client went away; nobody is left to answer."""


class Headers:
    """Of a request, by their names in lower case. A name given twice is there twice."""

    __slots__ = ("_first", "_more")

    def __init__(self) -> None:
        self._first: dict[bytes, bytes] = {}
        self._more: list[Header] = []

    def add(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        if name in self._first:
            self._more.append((name, value))
        else:
            self._first[name] = value

    def get(self, name: bytes) -> bytes | None:
        """The first of this name."""
        return self._first.get(name)

    def all(self, name: bytes) -> list[bytes]:
        first = self._first.get(name)
        if first is None:
            return []
        return [first, *(value for other, value in self._more if other == name)]

    @property
    def repeated(self) -> Sequence[Header]:
        """What came under a name that had come before."""
        return self._more

    def __iter__(self) -> Iterator[Header]:
        yield from self._first.items()
        yield from self._more


class Line(Protocol):
    """The connection under an exchange."""

    def send(self, data: bytes) -> None: ...

    async def drained(self) -> None:
        """Returns when the client has taken most of what was sent, or is gone."""
        ...

    def answered(self, *, whole: bool) -> None:
        """The exchange is over; without `whole` the connection must go with it."""
        ...


class Exchange:
    __slots__ = (
        "_chunked", "_line", "_on_gone", "_on_silence", "_started", "body", "client", "gone", "headers",
        "http10", "keep_alive", "local", "method", "path", "principal", "query", "request_id", "target",
        "worker",
    )  # fmt: skip

    def __init__(
        self,
        line: Line,
        *,
        method: str,
        target: bytes,
        path: str,
        query: bytes,
        headers: Headers,
        http10: bool,
    ) -> None:
        self._line = line
        self.method = method
        self.target = target
        """As it stood in the request line."""
        self.path = path
        """Decoded: what decides where the request goes."""
        self.query = query
        self.headers = headers
        self.http10 = http10
        self.client: tuple[str, int] | None = None
        self.local: tuple[str, int] | None = None
        self.body = b""
        self.keep_alive = True
        self.principal: Principal | None = None
        self.request_id = b"-"
        self.worker: asyncio.Task[None] | None = None
        """Who answers it."""
        self.gone = False
        """Whether the client hung up before it was answered."""
        self._started = False
        self._chunked = False
        self._on_gone: Callable[[], object] | None = None
        self._on_silence: Callable[[], object] | None = None

    # The answer

    @property
    def started(self) -> bool:
        return self._started

    def reply(self, answer: Answer) -> None:
        """The whole answer at once; nothing when one was begun already."""
        if self._started:
            return
        self._started = True
        body = answer.body
        headers = [b"%b: %b\r\n" % header for header in answer.headers]
        if body:
            headers.append(b"content-type: %b\r\n" % answer.content_type)
        if answer.status not in _BODILESS:
            headers.append(b"content-length: %d\r\n" % len(body))
        if self.method == "HEAD":
            body = b""
        if not self.gone:
            self._line.send(b"%b%b\r\n%b" % (self._head(answer.status), b"".join(headers), body))
        self._line.answered(whole=True)

    def begin(self, status: int, headers: Sequence[Header]) -> None:
        """A body that comes in pieces."""
        self._started = True
        lines = [b"%b: %b\r\n" % header for header in headers]
        self._chunked = not self.http10 and self.method != "HEAD"
        if self._chunked:
            lines.append(b"transfer-encoding: chunked\r\n")
        else:
            self.keep_alive = False
        if not self.gone:
            self._line.send(b"%b%b\r\n" % (self._head(status), b"".join(lines)))

    async def write(self, piece: bytes) -> None:
        """Returns when there is room for more."""
        if self.gone or not piece or self.method == "HEAD":
            return
        self._line.send(b"%x\r\n%b\r\n" % (len(piece), piece) if self._chunked else piece)
        await self._line.drained()

    def end(self) -> None:
        if self._chunked and not self.gone:
            self._line.send(b"0\r\n\r\n")
        self._line.answered(whole=True)

    def give_up(self) -> None:
        """There is no answer, or not all of one: the client learns it by the end of the connection."""
        self._started = True
        self._line.answered(whole=False)

    def _head(self, status: int) -> bytes:
        line = _STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status
        closing = b"" if self.keep_alive else b"connection: close\r\n"
        return b"%b%b%bx-request-id: %b\r\n%b" % (line, _date.line(), _ALWAYS, self.request_id, closing)

    # The client

    def watched(self) -> "_Watch":
        """Within it the worker is cancelled when the client goes; it is left with `ClientGone` then."""
        return _Watch(self)

    def when_gone(self, act: Callable[[], object] | None) -> None:
        """`act` is called when the client goes; None takes that back."""
        self._on_gone = act

    def when_silent(self, act: Callable[[], object] | None) -> None:
        """`act` is called when nothing was said for so long that somebody on the way could lose patience."""
        self._on_silence = act

    def silent(self) -> None:
        """Called by the connection."""
        if self._on_silence is not None and not self._started:
            self._on_silence()

    def lost(self) -> None:
        """Called by the connection."""
        self.gone = True
        if self._on_gone is not None:
            self._on_gone()


class _Watch:
    __slots__ = ("_exchange", "_gone")

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._gone = False

    def __enter__(self) -> None:
        if self._exchange.gone:
            raise ClientGone
        self._exchange.when_gone(self._leave)

    def _leave(self) -> None:
        self._gone = True
        if self._exchange.worker is not None:
            self._exchange.worker.cancel()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._exchange.when_gone(None)
        if self._gone:
            raise ClientGone from error
