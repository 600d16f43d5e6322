"""Time that moves when a test says so."""

import asyncio
from datetime import datetime, timedelta

from tests.samples import NOON


class FakeClock:
    def __init__(self) -> None:
        self._elapsed = 0.0
        self._sleepers: list[tuple[float, asyncio.Future[None]]] = []
        self.pauses: list[float] = []
        """Every sleep that was asked for."""

    def now(self) -> datetime:
        return NOON + timedelta(seconds=self._elapsed)

    def monotonic(self) -> float:
        return self._elapsed

    async def sleep(self, seconds: float) -> None:
        woken = asyncio.get_running_loop().create_future()
        self._sleepers.append((self._elapsed + seconds, woken))
        self.pauses.append(seconds)
        await woken

    def advance(self, seconds: float) -> None:
        self._elapsed += seconds
        for at, woken in self._sleepers:
            if at <= self._elapsed and not woken.done():
                woken.set_result(None)
        self._sleepers = [(at, woken) for at, woken in self._sleepers if not woken.done()]
