"""The way to an MCP address for messages that pass as they came: a POST each, and whatever comes back.

Unlike `http.py` it is no end of the conversation: it keeps no session, asks nothing itself and reads no
result; `cli/stdio/` does what has to be done about sessions. Connections are `outbound_client.py`'s.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from trunkline.errors import ProtocolViolation
from trunkline.upstream import http_answers
from trunkline.upstream.http_answers import EVENTS, JSON
from trunkline.upstream.http_connection import HttpAnswer
from trunkline.upstream.outbound_client import OutboundClient, OutboundSession
from trunkline.upstream.wires import Exchange, too_large
from trunkline.wire.sse import EventTooLarge, SseParser

Hear = Callable[[bytes, str | None], Awaitable[None]]
"""Takes a message from a stream, and the id of its event. The stream waits while it does."""


@dataclass(frozen=True, slots=True)
class Passed:
    """What a POST or a GET was answered with; a stream of events has been heard to its end."""

    status: int
    session_id: str | None
    body: bytes
    """Empty where there was a stream."""
    pause: float = 0.0
    """Seconds the stream asks for before it is opened again."""


class Passage:
    def __init__(self, client: OutboundClient, url: str, headers: Mapping[str, str], *, limit: int) -> None:
        """Raises `ConfigurationFault`."""
        self.url = url
        self._session: OutboundSession = client.open(url, headers, accept=f"{JSON}, {EVENTS}")
        self._limit = limit

    async def post(self, message: bytes, headers: Mapping[str, str], hear: Hear) -> Passed:
        """Raises `NotSent` if it certainly did not arrive, `Lost` if nobody knows, `UpstreamError`."""
        response = await self._session.post(self._session.address, message, headers, Exchange(0, "", message))
        return await self._read(response, hear)

    async def listen(self, headers: Mapping[str, str], hear: Hear) -> Passed:
        """Raises `UpstreamError`."""
        response = await self._session.get(self._session.address, {**headers, "Accept": EVENTS})
        return await self._read(response, hear)

    async def leave(self, headers: Mapping[str, str]) -> None:
        """Raises `UpstreamError`."""
        await self._session.delete(self._session.address, headers)

    def close(self) -> None:
        self._session.close()

    async def _read(self, response: HttpAnswer, hear: Hear) -> Passed:
        try:
            http_answers.check_encoding(response.headers)
            session_id = response.headers.get("mcp-session-id")
            if response.status == 200 and http_answers.media_type(response.headers) == EVENTS:
                pause = await self._hear(response, hear)
                return Passed(response.status, session_id, b"", pause)
            return Passed(response.status, session_id, await response.read_all(self._limit))
        finally:
            response.close()

    async def _hear(self, response: HttpAnswer, hear: Hear) -> float:
        parser = SseParser(self._limit)
        while chunk := await response.read():
            try:
                events = parser.feed(chunk)
            except EventTooLarge:
                raise too_large(self._limit) from None
            for event in events:
                if event.event not in ("", "message"):
                    raise ProtocolViolation(f"sent an event of a kind that is not known: {event.event[:40]}")
                if event.data:
                    await hear(event.data, event.id)
        return (parser.retry_ms or 0) / 1000
