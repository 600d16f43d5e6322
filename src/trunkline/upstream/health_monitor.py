"""Watches over live connections: a pure state machine, and a small loop that feeds it.

`observe` says what a check means; the loop only probes, all servers in parallel, and reports. Calls feed
it too: a served call is as good as a check, a timed-out one asks for a check at once. A server that is
busy with a call and silent is not judged: its probe would only find out that it is busy.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol

from trunkline.errors import UpstreamError
from trunkline.model import Health, ServerStatus
from trunkline.ports import Clock
from trunkline.telemetry import start_apart
from trunkline.upstream.connection import Connection

log = logging.getLogger(__name__)

DEGRADED_AFTER = 2
DOWN_AFTER = 3


@dataclass(frozen=True, slots=True)
class Check:
    """What one probe saw. Neither healthy nor failed: it says nothing (a 4xx, a busy server)."""

    healthy: bool
    failed: bool
    took_ms: float | None = None
    note: str | None = None


def observe(health: Health, check: Check, now: datetime) -> tuple[Health, ServerStatus | None]:
    """The new health, and the status it stands for; None when the check does not bear on it."""
    if check.healthy:
        seen = Health(0, now, check.took_ms, None)
        return seen, ServerStatus.CONNECTED
    if not check.failed:
        return replace(health, last_check=now, response_time_ms=check.took_ms), None
    failures = health.consecutive_failures + 1
    seen = Health(failures, now, None, check.note)
    if failures >= DOWN_AFTER:
        return seen, ServerStatus.ERROR
    if failures >= DEGRADED_AFTER:
        return seen, ServerStatus.DEGRADED
    return seen, ServerStatus.CONNECTED


def check_of(status: int) -> Check:
    """What the answer of a health address means."""
    if 200 <= status < 300:
        return Check(healthy=True, failed=False)
    note = f"its health address answered {status}"
    if 300 <= status < 400:
        note = f"its health address redirects ({status}), which is not followed: give the one it leads to"
    return Check(healthy=False, failed=not 400 <= status < 500, note=note)


@dataclass(frozen=True, slots=True)
class Patient:
    """A connected server to be checked."""

    server_id: str
    name: str
    health_check_url: str | None
    connection: Connection


class HealthWatcher(Protocol):
    def patients(self) -> Iterable[Patient]:
        """Those to be checked now."""
        ...

    def on_checked(
        self, patient: Patient, check: Check, health: Health, status: ServerStatus | None
    ) -> None: ...

    async def on_round_done(self, checked: dict[str, datetime]) -> None: ...


class HealthMonitor:
    def __init__(
        self,
        *,
        clock: Clock,
        interval: float,
        timeout: float,
        get_status: Callable[[str, float], Awaitable[int]],
        watcher: HealthWatcher,
    ) -> None:
        self._clock = clock
        self._interval = interval
        self._timeout = timeout
        self._get_status = get_status
        self._watcher = watcher
        self._health: dict[str, Health] = {}
        self._asked: set[asyncio.Task[None]] = set()
        self._loop: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._loop = asyncio.create_task(self._run(), name="health monitor")

    async def close(self) -> None:
        tasks = [*self._asked, *([self._loop] if self._loop else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def health_of(self, server_id: str) -> Health:
        return self._health.get(server_id, Health())

    def start_over(self, server_id: str) -> None:
        """No failures any more: the connection or the address they were of is another."""
        self._health[server_id] = replace(self.health_of(server_id), consecutive_failures=0)

    def forget(self, server_id: str) -> None:
        self._health.pop(server_id, None)

    def on_call_served(self, patient: Patient) -> None:
        """An answer is a sign of life. Where there is an address for its health, that alone decides."""
        if patient.health_check_url is None and self.health_of(patient.server_id).consecutive_failures:
            self._report(patient, Check(healthy=True, failed=False))

    def check_soon(self, patient: Patient) -> None:
        """A call timed out: do not wait for the next round to find out what is the matter."""
        task = start_apart(self._check(patient))
        self._asked.add(task)
        task.add_done_callback(self._asked.discard)

    async def _run(self) -> None:
        while True:
            await self._clock.sleep(self._interval)
            try:
                await self.round()
            except Exception:
                log.exception("a round of health checks failed")

    async def round(self) -> None:
        """Check every server once, all at the same time."""
        patients = list(self._watcher.patients())
        await asyncio.gather(*(self._check(patient) for patient in patients))
        now = self._clock.now()
        await self._watcher.on_round_done({patient.server_id: now for patient in patients})

    async def _check(self, patient: Patient) -> None:
        started = self._clock.monotonic()
        if patient.health_check_url is not None:
            check = await self._by_address(patient.health_check_url)
        else:
            check = await self._by_ping(patient.connection)
        if check.healthy:
            check = replace(check, took_ms=(self._clock.monotonic() - started) * 1000)
        if patient.connection.alive:
            self._report(patient, check)

    async def _by_address(self, url: str) -> Check:
        try:
            status = await self._get_status(url, self._timeout)
        except UpstreamError as error:
            return Check(healthy=False, failed=True, note=error.reason)
        return check_of(status)

    async def _by_ping(self, connection: Connection) -> Check:
        try:
            await connection.ping(self._timeout)
        except UpstreamError as error:
            if connection.busy:
                note = f"busy with {connection.in_flight} calls, and did not answer a ping meanwhile"
                return Check(healthy=False, failed=False, note=note)
            return Check(healthy=False, failed=True, note=f"ping: {error.reason}")
        return Check(healthy=True, failed=False)

    def _report(self, patient: Patient, check: Check) -> None:
        before = self.health_of(patient.server_id)
        health, status = observe(before, check, self._clock.now())
        self._health[patient.server_id] = health
        if check.failed or check.note:
            log.warning("%s: health check: %s", patient.name, check.note, extra={"server": patient.name})
        self._watcher.on_checked(patient, check, health, status)
