"""Actual state: one supervised connection for every server that should be connected.

For each there is one upkeep task that opens the connection, watches it, closes it and makes it again; it
alone enters and leaves it. What a change of state means (status, history, discovery) is decided by the
watcher, which is the core; this module only says what happened, in order.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from typing import Protocol

from trunkline.errors import (
    ConfigurationFault,
    CredentialsRejected,
    Lost,
    TrunklineError,
    UpstreamError,
)
from trunkline.model import Era
from trunkline.ports import Clock
from trunkline.telemetry import start_apart
from trunkline.upstream.backoff import CONNECT_PAUSES, STABLE_SECONDS, Backoff
from trunkline.upstream.connection import Connection, Patience
from trunkline.upstream.wires import Wire

log = logging.getLogger(__name__)


class SessionWatcher(Protocol):
    """Hears what happens to a server's connection. Called by its upkeep task, one event at a time."""

    def on_connecting(self, server_id: str) -> None: ...

    def on_attempt_failed(self, server_id: str, error: UpstreamError, retry_in: float) -> None:
        """An attempt failed and the next one follows while the server stays CONNECTING."""
        ...

    async def on_connected(self, server_id: str, connection: Connection) -> None:
        """The handshake is done; the connection serves calls when this returns."""
        ...

    def on_down(self, server_id: str, error: UpstreamError, *, was_connected: bool) -> None: ...

    def on_lists_changed(self, server_id: str) -> None: ...

    def on_noise(self, server_id: str) -> None: ...

    def on_told(self, server_id: str, method: str, params: bytes) -> None:
        """One of `eras.TOLD`: a notification about something that somebody waits for."""
        ...


class SessionManager:
    def __init__(
        self,
        *,
        make_wire: Callable[[str], Wire],
        patience: Patience,
        clock: Clock,
        health_interval: float,
        most: int,
    ) -> None:
        self._make_wire = make_wire
        self._patience = patience
        self._clock = clock
        self._health_interval = health_interval
        self._limit = (
            f"all {most} sessions are in use: disconnect a server, or raise MCP_AGGREGATOR_MAX_SESSIONS"
        )
        self.slots = asyncio.Semaphore(most)
        """One for every connection that is open or being opened; who finds none waits in turn."""
        self._upkeeps: dict[str, _Upkeep] = {}
        self._watcher: SessionWatcher | None = None

    def watch(self, watcher: SessionWatcher) -> None:
        self._watcher = watcher

    def keep(self, server_id: str, name: str, known_era: Era | None) -> None:
        """See to it that the server is connected, from now on. A server kept already is tried at once.

        Where all sessions are in use it is reported down, and connected as soon as one ends.
        """
        if self._watcher is None:
            raise AssertionError("nobody watches")
        upkeep = self._upkeeps.get(server_id)
        if upkeep is not None:
            upkeep.try_now()
            return
        self._upkeeps[server_id] = _Upkeep(self, server_id, name, known_era, self._watcher)

    def full(self, server_id: str) -> str | None:
        """Why the server would have to wait for a session of another to end; None when it would not."""
        upkeep = self._upkeeps.get(server_id)
        if not self.slots.locked() or (upkeep is not None and upkeep.has_slot):
            return None
        return self._limit

    async def drop(self, server_id: str) -> None:
        """Stop keeping the server; returns when nothing of its connection is left."""
        upkeep = self._upkeeps.get(server_id)
        if upkeep is None:
            return
        await upkeep.stop()
        if self._upkeeps.get(server_id) is upkeep:
            del self._upkeeps[server_id]

    async def close(self) -> None:
        await asyncio.gather(*(self.drop(server_id) for server_id in list(self._upkeeps)))

    def get(self, server_id: str) -> Connection | None:
        """The live connection, if there is one."""
        upkeep = self._upkeeps.get(server_id)
        connection = upkeep.connection if upkeep else None
        return connection if connection is not None and connection.alive else None

    async def wait_for(self, server_id: str, seconds: float) -> Connection | None:
        """The live connection, also one that is just being made again; None when there is no such hope."""
        upkeep = self._upkeeps.get(server_id)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while upkeep is not None and upkeep.hopeful and self.get(server_id) is None:
                    await upkeep.wait_change()
        return self.get(server_id)

    def fail(self, server_id: str, error: UpstreamError) -> None:
        """Give the present connection up; its upkeep makes it again."""
        connection = self.get(server_id)
        if connection is not None:
            connection.fail(error)

    def new_connection(self, server_id: str, name: str, watcher: SessionWatcher) -> Connection:
        try:
            wire = self._make_wire(server_id)
        except TrunklineError as error:
            raise ConfigurationFault(error.detail, phase="connect") from None
        return Connection(
            server_id=server_id,
            name=name,
            wire=wire,
            patience=self._patience,
            on_lists_changed=lambda: watcher.on_lists_changed(server_id),
            on_noise=lambda: watcher.on_noise(server_id),
            on_told=lambda method, params: watcher.on_told(server_id, method, params),
        )

    def new_backoff(self) -> Backoff:
        return Backoff(self._health_interval)

    @property
    def clock(self) -> Clock:
        return self._clock


class _Upkeep:
    """The owner task of one server's connections."""

    def __init__(
        self, manager: SessionManager, server_id: str, name: str, era: Era | None, watcher: SessionWatcher
    ) -> None:
        self._manager = manager
        self._server_id = server_id
        self._name = name
        self._era = era
        self._watcher = watcher
        self._backoff = manager.new_backoff()
        self._clock = manager.clock
        self._nudge = asyncio.Event()
        self._changed = asyncio.Event()
        self._stopping = False
        self._parked = False
        """Whether nothing will happen soon, so that nobody need wait for it."""
        self.has_slot = False
        self.connection: Connection | None = None
        self._task = start_apart(self._run(), name=f"upkeep {name}")

    @property
    def hopeful(self) -> bool:
        return not self._stopping and not self._parked and self._backoff.hopeful

    async def wait_change(self) -> None:
        await self._changed.wait()

    def try_now(self) -> None:
        """End the present pause, if there is one, and start the schedule anew."""
        self._backoff.reset()
        self._parked = False
        self._nudge.set()

    async def stop(self) -> None:
        self._stopping = True
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    def _tell_change(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _run(self) -> None:
        pauses: tuple[float, ...] = CONNECT_PAUSES
        while True:
            try:
                async with self._slot():
                    await self._one_life(pauses)
            except Exception:
                log.exception("%s: the upkeep of its connection failed", self._name)
                self._down(UpstreamError("Trunkline itself failed; its log says more"), was_connected=False)
            await self._pause(None if self._parked else self._backoff.next_pause())
            pauses = CONNECT_PAUSES if self._nudge.is_set() else ()

    @contextlib.asynccontextmanager
    async def _slot(self) -> AsyncIterator[None]:
        """A server without a connection takes no place: it waits outside, and says what for."""
        limit = self._manager.full(self._server_id)
        if limit is not None:
            self._down(ConfigurationFault(limit, phase="connect"), was_connected=False)
            self._parked = True
        async with self._manager.slots:
            self._parked, self.has_slot = False, True
            try:
                yield
            finally:
                self.has_slot = False

    async def _one_life(self, pauses: tuple[float, ...]) -> None:
        """Connect and serve until the connection is lost or none could be made; then it has been reported."""
        self._watcher.on_connecting(self._server_id)
        for pause in (*pauses, None):
            try:
                connection = self._manager.new_connection(self._server_id, self._name, self._watcher)
            except UpstreamError as error:
                self._down(error, was_connected=False)
                return
            try:
                introduction = await connection.open(self._era)
                self._era = Era.MODERN if introduction.modern else Era.LEGACY
                self._down(await self._serve(connection), was_connected=True)
                return
            except UpstreamError as error:
                if pause is None or isinstance(error, CredentialsRejected | ConfigurationFault):
                    self._down(error, was_connected=False)
                    return
                if isinstance(error, Lost) and self._era is None:
                    self._era = Era.LEGACY  # it died of the probe: greet it the old way next time
                self._watcher.on_attempt_failed(self._server_id, error, pause)
            finally:
                self.connection = None
                await connection.close()
            await self._clock.sleep(pause)

    async def _serve(self, connection: Connection) -> UpstreamError:
        since = self._clock.monotonic()
        await self._watcher.on_connected(self._server_id, connection)
        self.connection = connection
        self._tell_change()
        error = await connection.wait_lost()
        if connection.calls_served or self._clock.monotonic() - since >= STABLE_SECONDS:
            self._backoff.reset()
        return error

    def _down(self, error: UpstreamError, *, was_connected: bool) -> None:
        """Say so before anything is closed, so that nobody is sent there meanwhile."""
        self.connection = None
        self._parked = isinstance(error, CredentialsRejected)
        self._watcher.on_down(self._server_id, error, was_connected=was_connected)
        self._nudge.clear()
        self._tell_change()

    async def _pause(self, seconds: float | None) -> None:
        if seconds is None:
            await self._nudge.wait()
            return
        sleep = asyncio.ensure_future(self._clock.sleep(seconds))
        nudge = asyncio.ensure_future(self._nudge.wait())
        try:
            await asyncio.wait({sleep, nudge}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleep.cancel()
            nudge.cancel()
