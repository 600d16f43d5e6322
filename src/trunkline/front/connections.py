"""All connections that are open: how patient they are, who looks at the time for them, and their end.

One look around every so often minds the times of all, so that none costs a timer for each request.
"""

import asyncio
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Patience:
    head_seconds: float = 10.0
    """For a request head, from the connection or its first byte to its end."""
    body_seconds: float = 30.0
    """For the rest of a body."""
    idle_seconds: float = 75.0
    """Between two requests."""
    silent_seconds: float = 15.0
    """Of ours, before a client that is waiting is given a sign of life."""
    unread_seconds: float = 30.0
    """Without the client taking anything of an answer."""
    linger_seconds: float = 2.0
    """After a refusal, for the client to read it."""
    head_bytes: int = 64 * 1024
    body_bytes: int = 4 * 1024 * 1024

    @property
    def look_every(self) -> float:
        times = (self.head_seconds, self.body_seconds, self.idle_seconds, self.unread_seconds)
        return min(1.0, min(*times, self.linger_seconds) / 4)


class Watched(Protocol):
    """A connection, as far as its time and its end are concerned."""

    def look(self, now: float) -> None:
        """Is it time to give up?"""
        ...

    def finish(self) -> None:
        """No further request; what is being answered may end."""
        ...

    def cut_off(self) -> None: ...


class Connections:
    """All that are open, and the one who looks at the time for them."""

    def __init__(self, patience: Patience) -> None:
        self.patience = patience
        self._open: set[Watched] = set()
        self._look: asyncio.TimerHandle | None = None
        self._empty = asyncio.Event()
        self._empty.set()
        self.closing = False

    def add(self, connection: Watched) -> None:
        self._open.add(connection)
        self._empty.clear()
        if self._look is None:
            self._look_later()

    def discard(self, connection: Watched) -> None:
        self._open.discard(connection)
        if not self._open:
            self._empty.set()

    async def finish(self, seconds: float) -> None:
        """Let what is being answered end; then cut off what is left."""
        self.closing = True
        for connection in list(self._open):
            connection.finish()
        for _ in range(2):
            try:
                async with asyncio.timeout(seconds):
                    await self._empty.wait()
                return
            except TimeoutError:
                self.cut_off()

    def cut_off(self) -> None:
        for connection in list(self._open):
            connection.cut_off()

    def _look_later(self) -> None:
        self._look = asyncio.get_running_loop().call_later(self.patience.look_every, self._look_around)

    def _look_around(self) -> None:
        self._look = None
        now = asyncio.get_running_loop().time()
        for connection in list(self._open):
            connection.look(now)
        if self._open:
            self._look_later()
