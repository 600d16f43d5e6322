"""One client connection: uvicorn's protocol, with the patience limits it has none of.

Closes who does not finish a request head in time, who trickles on after being answered, and who does not
read; refuses heads that are too large (431) and says every refusal of its own in the JSON of all others.
Bodies are timed in `bodies.py`, where there is a request to answer.
"""

import asyncio
from dataclasses import dataclass
from typing import Any

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.server import ServerState

from trunkline.errors import BadRequest, HeadersTooLarge, RequestTimeout, TrunklineError
from trunkline.front.answers import encode

_REFUSAL = b"content-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Patience:
    head_seconds: float = 10.0
    """For a request head, from the connection or its first byte to its end."""
    idle_seconds: float = 75.0
    """Between two requests."""
    unread_seconds: float = 30.0
    """Without the client taking anything of an answer."""
    linger_seconds: float = 2.0
    """After a refusal, for the client to read it."""
    head_bytes: int = 64 * 1024


class _HeadTooLarge(Exception):
    """Raised into the parser, which stops."""


class PatientConnection(HttpToolsProtocol):
    patience = Patience()

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._awaiting_head = True
        self._head_size = 0
        self._waiting: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None
        self._unread_size = 0
        self._refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        self._stop_watching_reader()
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    # A head, and what trickles in after an answer

    def data_received(self, data: bytes) -> None:
        if self._refused or self.transport.is_closing():
            return
        if self._awaiting_head:
            self._head_size += len(data)
        super().data_received(data)
        if self._refused or self.transport.is_closing():
            return
        if self._awaiting_head and self._head_size > self.patience.head_bytes:
            self._refuse_head()
        elif self._waiting is None and self._owes_us():
            self._wait()

    def on_headers_complete(self) -> None:
        if self._head_size > self.patience.head_bytes and self._exact_head_size() > self.patience.head_bytes:
            raise _HeadTooLarge
        self._awaiting_head = False
        self._head_size = 0
        self._stop_waiting()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._awaiting_head = True
        self._stop_waiting()
        super().on_message_complete()

    def _exact_head_size(self) -> int:
        return len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)

    def _owes_us(self) -> bool:
        """Part of a head, or the rest of a body that was already answered."""
        if self._awaiting_head:
            return self._head_size > 0
        return self.cycle.response_complete

    def _wait(self) -> None:
        self._waiting = self.loop.call_later(self.patience.head_seconds, self._waited_enough)

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _waited_enough(self) -> None:
        self._waiting = None
        if self.transport.is_closing() or self._busy():
            return
        if self._awaiting_head and self._head_size:
            seconds = self.patience.head_seconds
            detail = f"The request head was not complete after {seconds:g} seconds"
            self._refuse(RequestTimeout, detail)
        else:
            self.transport.close()

    def _busy(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    # A reader that does not read

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_reader()

    def resume_writing(self) -> None:
        self._stop_watching_reader()
        super().resume_writing()

    def timeout_keep_alive_handler(self) -> None:
        if self.transport.get_write_buffer_size():
            self._watch_reader()
        else:
            super().timeout_keep_alive_handler()

    def _watch_reader(self) -> None:
        self._stop_watching_reader()
        self._unread_size = self.transport.get_write_buffer_size()
        self._unread = self.loop.call_later(self.patience.unread_seconds, self._reader_seen)

    def _stop_watching_reader(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _reader_seen(self) -> None:
        left = self.transport.get_write_buffer_size()
        if left and left >= self._unread_size:
            self.transport.abort()
        elif left:
            self._watch_reader()
        elif not self._busy():
            self.transport.close()

    # Refusals before there is a request

    def send_400_response(self, msg: str) -> None:
        if self._awaiting_head and self._head_size > self.patience.head_bytes:
            self._refuse_head()
        else:
            self._refuse(BadRequest, "What was sent is not a valid HTTP request")

    def _refuse_head(self) -> None:
        limit = self.patience.head_bytes
        self._refuse(HeadersTooLarge, f"The request head is larger than {limit} bytes")

    def _refuse(self, error: type[TrunklineError], detail: str) -> None:
        """Answer and hear no more; closing at once could take the answer away from who is still sending."""
        self._refused = True
        self._stop_waiting()
        self._unset_keepalive_if_required()
        if self._busy():
            if self.cycle.response_started:
                self.transport.close()
                return
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        body = encode({"detail": detail, "error_code": error.code, "context": {}})
        self.transport.write(STATUS_LINE[error.status] + _REFUSAL % len(body) + body)
        self.transport.write_eof()
        self._waiting = self.loop.call_later(self.patience.linger_seconds, self.transport.close)

    def _unsupported_upgrade_warning(self) -> None:
        """An upgrade is declined by serving the request as it is; the parser cannot go on after it."""
        self.cycle.keep_alive = False
