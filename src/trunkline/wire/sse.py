"""Server-sent events, incrementally: bytes in, events out, never more than one bounded event held.

Pure. Follows the event stream format of the HTML standard for the fields MCP uses (`event`, `data`,
`id`, `retry`); comments, which serve as keep-alive, are passed over.
"""

from dataclasses import dataclass


class EventTooLarge(ValueError):
    """One event is larger than the limit; the stream cannot be read on."""


@dataclass(frozen=True, slots=True)
class SseEvent:
    event: str
    data: bytes
    id: str | None


class SseParser:
    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._line: list[bytes] = []
        """The line under way, in the pieces it came in."""
        self._held = 0
        """Bytes of the event under way: its data so far and the line under way."""
        self._data: list[bytes] = []
        self._event = ""
        self._id: str | None = None
        self._first_line = True
        self._after_return = False
        self._too_large = False
        self.last_id: str | None = None
        """Where a client may resume: the id of the last event that came whole."""
        self.retry_ms: int | None = None

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """The events that became complete. Raises `EventTooLarge`, after those before it were returned."""
        events: list[SseEvent] = []
        *ended, begun = self._one_line_end(chunk).split(b"\n")
        for piece in ended:
            if not self._holds(piece):
                break
            line = b"".join(self._line)
            self._held -= len(line)
            self._line.clear()
            if (event := self._read(line)) is not None:
                events.append(event)
        else:
            self._holds(begun)
        if self._too_large and not events:
            raise EventTooLarge(f"an event of more than {self._limit} bytes")
        return events

    def _one_line_end(self, chunk: bytes) -> bytes:
        """The format allows LF, CR and CRLF, the last also torn between two chunks."""
        if self._after_return and chunk:
            chunk = chunk.removeprefix(b"\n")
            self._after_return = False
        if b"\r" not in chunk:
            return chunk
        self._after_return = chunk.endswith(b"\r")
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _holds(self, piece: bytes) -> bool:
        self._held += len(piece)
        self._too_large = self._too_large or self._held > self._limit + len(b"data: ")
        if piece and not self._too_large:
            self._line.append(piece)
        return not self._too_large

    def _read(self, line: bytes) -> SseEvent | None:
        if self._first_line:
            self._first_line = False
            line = line.removeprefix(b"\xef\xbb\xbf")
        if not line:
            return self._dispatch()
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
            self._held += len(value) + 1
        elif name == b"event":
            self._event = value.decode("utf-8", "replace")
        elif name == b"id" and b"\0" not in value:
            self._id = value.decode("utf-8", "replace")
        elif name == b"retry" and value.isdigit():
            self.retry_ms = int(value[:9])
        return None

    def _dispatch(self) -> SseEvent | None:
        event, data = self._event or "message", self._data
        self._event, self._data, self._held = "", [], 0
        self.last_id = self._id
        if not data:
            return None
        return SseEvent(event, b"\n".join(data), self.last_id)
