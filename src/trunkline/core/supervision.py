"""Reacts: what happens to connections and health becomes status, history, listings and events.

`SessionManager` and `HealthMonitor` report here; every report re-reads the registry, so that a late one
about a removed or disconnected server does nothing. It asks for work (list again, give up) and does none.
"""

import asyncio
import logging
from collections.abc import Iterable
from datetime import datetime

from trunkline.core.events import Events
from trunkline.core.journal import Journal
from trunkline.core.server_registry import MOVES, ServerRegistry
from trunkline.core.subscriptions import Subscriptions
from trunkline.core.tool_aggregator import ToolAggregator
from trunkline.errors import CredentialsRejected, Lost, NotSent, UpstreamError, UpstreamTimeout
from trunkline.model import (
    AuditRecord,
    Event,
    Health,
    Server,
    ServerStatus,
)
from trunkline.ports import Clock
from trunkline.telemetry import Metrics, start_apart
from trunkline.upstream.connection import Connection
from trunkline.upstream.health_monitor import DEGRADED_AFTER, DOWN_AFTER, Check, HealthMonitor, Patient
from trunkline.upstream.session_manager import SessionManager
from trunkline.wire import eras

log = logging.getLogger(__name__)

FIRST_LISTING_SECONDS = 2.0
"""A server is shown as CONNECTED with its tools if they come so soon, else at once and the tools follow."""
LONGEST_REASON = 2000

S = ServerStatus


class Supervision:
    def __init__(
        self,
        *,
        registry: ServerRegistry,
        aggregator: ToolAggregator,
        sessions: SessionManager,
        journal: Journal,
        metrics: Metrics,
        clock: Clock,
        events: Events,
    ) -> None:
        self._registry = registry
        self._aggregator = aggregator
        self._sessions = sessions
        self._journal = journal
        self._metrics = metrics
        self._clock = clock
        self._events = events
        self._health: HealthMonitor | None = None
        self._subscriptions: Subscriptions | None = None
        self._verifications: set[asyncio.Task[None]] = set()
        self._lost: set[str] = set()
        """Servers whose connection was lost and not yet made again."""

    def watch_with(self, monitor: HealthMonitor) -> None:
        self._health = monitor

    def tell_of_resources(self, subscriptions: Subscriptions) -> None:
        self._subscriptions = subscriptions

    async def close(self) -> None:
        for task in self._verifications:
            task.cancel()
        await asyncio.gather(*self._verifications, return_exceptions=True)

    def forget(self, server_id: str) -> None:
        self._lost.discard(server_id)

    def move(self, server_id: str, after: ServerStatus, error_message: str | None = None) -> None:
        if after is S.DISCONNECTED:
            self._lost.discard(server_id)
        moved = self._registry.move(server_id, after, error_message)
        if moved is not None:
            self._metrics.set_servers(self._registry.counts())
            self._events.publish(Event("server.status_changed", moved.id, moved.name, after))

    # Sessions

    def on_connecting(self, server_id: str) -> None:
        server = self._registry.find(server_id)
        if server is not None and S.CONNECTING in MOVES[server.status]:
            self.move(server_id, S.CONNECTING, server.error_message)

    def on_attempt_failed(self, server_id: str, error: UpstreamError, retry_in: float) -> None:
        server = self._registry.find(server_id)
        if server is not None:
            log.warning(
                "%s: %s; trying again in %g s", server.name, error.reason, retry_in,
                extra={"server": server.name},
            )  # fmt: skip
            self._registry.say(server_id, _message(error))

    async def on_connected(self, server_id: str, connection: Connection) -> None:
        server = self._registry.find(server_id)
        if server is None or server.status is not S.CONNECTING:
            return
        self._registry.note_era(server_id, connection.era)
        self._metrics.watch_health_of(server.name)
        if self._health is not None and server.health_check_url is None:
            self._health.start_over(server_id)
        self._aggregator.refresh(server, connection)
        await self._aggregator.settled(server_id, FIRST_LISTING_SECONDS)
        if connection.alive:
            self.move(server_id, S.CONNECTED)
            if server_id in self._lost:
                self._lost.discard(server_id)
                self._metrics.reconnects.labels(server.name).inc()
            self._stay_degraded(server_id)
            if self._subscriptions is not None:
                self._subscriptions.on_connected(server_id, connection)
            log.info("%s is connected", server.name, extra={"server": server.name})

    def on_down(self, server_id: str, error: UpstreamError, *, was_connected: bool) -> None:
        server = self._registry.find(server_id)
        if server is None:
            return
        message = _message(error)
        if server.status is S.ERROR:
            self._registry.say(server_id, message)
        if S.ERROR not in MOVES[server.status]:
            return
        log.warning("%s: %s", server.name, message, extra={"server": server.name})
        if isinstance(error, CredentialsRejected):
            self._warn_of_credentials(server)
        if was_connected:
            self._lost.add(server_id)
        self.move(server_id, S.ERROR, message)

    def on_lists_changed(self, server_id: str) -> None:
        server, connection = self._registry.find(server_id), self._sessions.get(server_id)
        if server is not None and connection is not None:
            self._aggregator.refresh(server, connection)

    def on_noise(self, server_id: str) -> None:
        server = self._registry.find(server_id)
        if server is not None:
            self._metrics.noise.labels(server.name).inc()

    def on_told(self, server_id: str, method: str, params: bytes) -> None:
        server = self._registry.find(server_id)
        if server is None:
            return
        if method == eras.RESOURCE_UPDATED and self._subscriptions is not None:
            self._subscriptions.on_updated(server.id, server.name, params)
        elif method == eras.ELICITATION_COMPLETE and (visit := eras.elicitation_id(params)) is not None:
            self._events.publish(Event("elicitation.completed", server.id, server.name, subject=visit))

    def on_published(self, server_id: str, tool_count: int) -> None:
        self._registry.note_tool_count(server_id, tool_count)
        catalog = self._aggregator.catalog
        self._metrics.tools.set(len(catalog))
        self._metrics.tools_classified.set(sum(tool.is_classified for tool in catalog.by_name.values()))
        server = self._registry.find(server_id)
        if server is not None:
            self._events.publish(Event("server.tools_listed", server.id, server.name, server.status))

    def _warn_of_credentials(self, server: Server) -> None:
        log.warning(
            "SECURITY %s rejected the credentials it was given; it is not tried again until its "
            "configuration changes or somebody connects it",
            server.name,
            extra={"server": server.name, "event": "server.credentials_rejected"},
        )
        self._journal.audit(
            AuditRecord(
                event="server.credentials_rejected",
                actor="trunkline",
                timestamp=self._clock.now(),
                server_id=server.id,
                server_name=server.name,
            )
        )

    # Health

    def patients(self) -> Iterable[Patient]:
        for server in self._registry.all():
            patient = self._patient(server, self._sessions.get(server.id))
            if patient is not None and server.status.callable:
                yield patient

    def on_checked(self, patient: Patient, check: Check, health: Health, status: ServerStatus | None) -> None:
        """The third failure in a row cuts the connection, for a new one may help (R-32).

        An address for the health (R-31) may fail for ever while the session is well. Its failures are
        therefore counted on over a reconnect, the server comes back DEGRADED, which takes calls, until a
        check is healthy, and failures after the third only lead to a ping: if the session does not
        answer either, it is cut again.
        """
        server = self._registry.find(patient.server_id)
        if server is None:
            return  # a metric touched now would bring back the series of a removed server
        if check.took_ms is not None:
            self._metrics.health_duration.labels(server.name).set(check.took_ms / 1000)
        if check.failed:
            self._metrics.health_failures.labels(server.name).inc()
        if status is None or not server.status.callable or status is server.status:
            return
        if status is S.ERROR and health.consecutive_failures > DOWN_AFTER and patient.health_check_url:
            self._stay_degraded(server.id)
            self._verify(patient)
        elif status is S.ERROR:
            reason = f"{health.consecutive_failures} health checks failed in a row: {health.last_error}"
            patient.connection.fail(Lost(reason, phase="health"))
        elif status is S.DEGRADED or health.consecutive_failures == 0:
            self.move(server.id, status, health.last_error)

    def _stay_degraded(self, server_id: str) -> None:
        """A new connection does not make a failing address healthy."""
        health = self._health.health_of(server_id) if self._health is not None else Health()
        server = self._registry.find(server_id)
        ill = health.consecutive_failures >= DEGRADED_AFTER
        if ill and server is not None and server.status is S.CONNECTED:
            self.move(server_id, S.DEGRADED, health.last_error)

    async def on_round_done(self, checked: dict[str, datetime]) -> None:
        self._registry.note_checks(checked)

    def on_attempt(self, server: Server, connection: Connection, error: UpstreamError | None) -> None:
        """Passive health: what a call tells of its server."""
        patient = self._patient(server, connection)
        if patient is None or self._health is None:
            return
        match error:
            case None:
                self._health.on_call_served(patient)
            case CredentialsRejected():
                connection.fail(error)
            case NotSent() if error.phase == "connect":
                connection.fail(error)
            case Lost():
                self._verify(patient)
            case UpstreamTimeout():
                self._health.check_soon(patient)

    def _verify(self, patient: Patient) -> None:
        """Something else failed, the connection did not: find out at once whether its server still lives."""
        task = start_apart(self._ping_or_fail(patient))
        self._verifications.add(task)
        task.add_done_callback(self._verifications.discard)

    async def _ping_or_fail(self, patient: Patient) -> None:
        try:
            await patient.connection.ping(FIRST_LISTING_SECONDS)
        except UpstreamError as error:
            if not patient.connection.busy:
                patient.connection.fail(error)

    def _patient(self, server: Server, connection: Connection | None) -> Patient | None:
        if connection is None or not connection.alive:
            return None
        return Patient(server.id, server.name, server.health_check_url, connection)


def _message(error: UpstreamError) -> str:
    if isinstance(error, CredentialsRejected):
        return f"invalid credentials: {error.reason}"[:LONGEST_REASON]
    return error.reason[:LONGEST_REASON]
