"""The gateway's verbs, in the order things happen: this module is the contents page, in code.

Every door (REST, MCP, command line) comes in here. It sequences the registry (what should be), the reconciler
(that it is) and the aggregator (what they have), and holds no rule of its own beyond that order.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from datetime import datetime, timedelta

from trunkline.core.call_records import record_of_call, record_of_task
from trunkline.core.events import Events
from trunkline.core.journal import Journal
from trunkline.core.keys import Keys
from trunkline.core.limits import Limits
from trunkline.core.reconciler import Reconciler
from trunkline.core.request_router import RequestRouter
from trunkline.core.server_registry import ServerRegistry
from trunkline.core.shelf import Shelf
from trunkline.core.shelves import Shelves
from trunkline.core.standing import Standing
from trunkline.core.subscriptions import Subscriptions
from trunkline.core.supervision import Supervision
from trunkline.core.tasks import Tasks
from trunkline.core.tool_aggregator import ToolAggregator
from trunkline.errors import (
    ServerUnavailable,
    StorageUnavailable,
    TrunklineError,
    ValidationError,
)
from trunkline.model import (
    ApiKey,
    AuditRecord,
    Call,
    Disconnection,
    Errand,
    Event,
    GatewayState,
    Health,
    HealthReport,
    HistoryRecord,
    ItemKind,
    Outcome,
    Principal,
    Problem,
    Scope,
    Server,
    ServerDraft,
    ServerPatch,
    ServerStatus,
    Tool,
)
from trunkline.ports import AuditFilter, Clock, Store
from trunkline.security.audit import audit_record
from trunkline.settings import Settings
from trunkline.telemetry import Metrics, Redactor, start_apart
from trunkline.upstream.health_monitor import HealthMonitor
from trunkline.upstream.session_manager import SessionManager
from trunkline.wire.eras import Introduction

log = logging.getLogger(__name__)

S = ServerStatus
DRAIN_RETRY_AFTER = 5
PRUNE_SECONDS = 6 * 3600.0


class Gateway:
    def __init__(
        self,
        *,
        settings: Settings,
        store: Store,
        clock: Clock,
        metrics: Metrics,
        redactor: Redactor,
        journal: Journal,
        keys: Keys,
        registry: ServerRegistry,
        aggregator: ToolAggregator,
        sessions: SessionManager,
        supervision: Supervision,
        reconciler: Reconciler,
        health: HealthMonitor,
        router: RequestRouter,
        events: Events,
        end_children: Callable[[], None],
        subscriptions: Subscriptions,
        shelves: Shelves,
        limits: Limits,
        tasks: Tasks,
        standing: Standing,
    ) -> None:
        self.settings = settings
        self.end_children = end_children
        """STDIO servers get no grace any more, and none is started: for an end that is forced."""
        self.telemetry = metrics
        self._store = store
        self._clock = clock
        self._redactor = redactor
        self._journal = journal
        self._keys = keys
        self._registry = registry
        self._aggregator = aggregator
        self._sessions = sessions
        self._supervision = supervision
        self._reconciler = reconciler
        self._health = health
        self._router = router
        self.events = events
        self._subscriptions = subscriptions
        self._limits = limits
        self._shelves = shelves
        self.tasks = tasks
        self._standing = standing
        self._background: set[asyncio.Task[None]] = set()
        self._calls = 0
        self._quiet = asyncio.Event()
        self._quiet.set()
        self.draining = False

    async def start(self) -> None:
        """Load what is known, then make it so: no server delays the start or another server."""
        await self._registry.load()
        await self._keys.load()
        await self._aggregator.load({server.id: server.name for server in self._registry.all()})
        self._journal.start()
        if self.settings.enabled:
            self._health.start()
            for server in self._registry.all():
                if server.wanted:
                    self._reconciler.begin(server)
        self.telemetry.set_servers(self._registry.counts())
        self.telemetry.tools.set(len(self._aggregator.catalog))
        self.in_background(self._prune_audit())

    async def close(self) -> None:
        for task in list(self._background):
            task.cancel()
        await self._health.close()
        await self._reconciler.close()
        await self._supervision.close()
        await self._aggregator.close()
        await self._sessions.close()
        await self._journal.close()

    # Servers

    async def register(self, draft: ServerDraft, by: Principal) -> Server:
        server = await self._registry.register(draft, by)
        self._changed()
        self.events.publish(Event("server.registered", server.id, server.name, server.status))
        if server.wanted:
            self._reconciler.begin(server)
        return self._registry.get(server.id)

    def list_servers(
        self, *, status: ServerStatus | None = None, limit: int = 100, offset: int = 0
    ) -> tuple[list[Server], int]:
        found = [server for server in self._registry.all() if status in (None, server.status)]
        return found[offset : offset + limit], len(found)

    def get_server(self, server: str) -> Server:
        return self._registry.get(server)

    def masked_config(self, server: str) -> dict[str, object]:
        return self._registry.masked_config(self._registry.get(server))

    def problems(self, server: str) -> tuple[Problem, ...]:
        return self._aggregator.problems(self._registry.get(server).id)

    async def change(self, server: str, patch: ServerPatch, by: Principal) -> Server:
        """A new way to the server is taken at once: calls in flight on the old one are cut off."""
        before = self._registry.get(server)
        async with self._reconciler.lock(before.id):
            before = self._registry.get(before.id)
            after = await self._registry.change(before, patch, by)
            if after.health_check_url != before.health_check_url:
                self._health.start_over(after.id)
            if after.sealed_config != before.sealed_config and after.wanted:
                await self._reconciler.take_down(after, "its configuration was changed")
                self._reconciler.begin(after)
            return self._registry.get(after.id)

    async def connect(self, server: str, by: Principal) -> tuple[Server, bool]:
        found = self._registry.get(server)
        async with self._reconciler.lock(found.id):
            found = self._registry.get(found.id)
            if found.status.callable:
                return found, True
            if limit := self._sessions.full(found.id):
                raise ValidationError.at("path", "server", msg=limit)
            await self._registry.want(found, True, "server.connected", by)
            await self._reconciler.connect(found)
            found = self._registry.get(found.id)
            return found, found.status.callable

    async def disconnect(self, server: str, *, force: bool, by: Principal) -> Disconnection:
        found = self._registry.get(server)
        async with self._reconciler.lock(found.id):
            found = self._registry.get(found.id)
            await self._registry.want(found, False, "server.disconnected", by)
            found = self._registry.get(found.id)
            connection = self._sessions.get(found.id)
            pending = connection.in_flight if connection is not None else 0
            if found.status is S.DISCONNECTING and not force:
                return Disconnection(found.id, found.status, pending)
            if pending and not force:
                self._reconciler.drain(found)
                return Disconnection(found.id, S.DISCONNECTING, pending)
            await self._reconciler.take_down(found, "the server was disconnected")
            return Disconnection(found.id, S.DISCONNECTED, 0)

    async def remove(self, server: str, by: Principal) -> None:
        """New calls are refused and those in flight may end; its rows go before its connection.

        A database that is away thereby leaves the server as it was.
        """
        found = self._registry.get(server)
        drains = found.status.callable
        if drains:
            self._supervision.move(found.id, S.DISCONNECTING)
        await self._reconciler.wait_idle(found.id)
        async with self._reconciler.lock(found.id):
            found = self._registry.get(found.id)
            try:
                await self._registry.remove(found, by)
            except StorageUnavailable:
                if drains and found.status is S.DISCONNECTING:
                    await self._reconciler.resume(found.id)
                raise
            await self._reconciler.forget(found.id)
        self._shelves.forget(found.name)
        self._health.forget(found.id)
        self._redactor.forget(found.id)
        self.telemetry.forget_server(found.name)
        self._changed()
        self.events.publish(Event("server.removed", found.id, found.name))

    async def refresh(self, server: str, by: Principal) -> Server:
        """A degraded server takes calls and is not listed: the table of its states says so."""
        found = self._registry.get(server)
        connection = self._sessions.get(found.id)
        if connection is None or found.status is not S.CONNECTED:
            raise ServerUnavailable(
                f"Server unavailable: {found.name}. It must be connected for its tools to be listed",
                extra={"server": {"id": found.id, "name": found.name, "status": found.status.value}},
            )
        self._journal.audit(audit_record("server.refreshed", by, self._clock.now(), server=found))
        self._aggregator.refresh(found, connection)
        return found

    def tools_of(self, server: str) -> list[Tool]:
        tools = self._aggregator.catalog.tools_of(self._registry.get(server).id)
        return sorted(tools.values(), key=lambda tool: tool.name)

    def item_counts(self, server: str) -> Mapping[ItemKind, int]:
        """How many prompts, resources and templates it has."""
        items = self._aggregator.catalog.items.get(self._registry.get(server).id, ())
        return Counter(item.kind for item in items)

    def health_of(self, server: str) -> Health:
        return self._health.health_of(self._registry.get(server).id)

    async def history(self, server: str, *, limit: int = 50) -> list[HistoryRecord]:
        found = self._registry.get(server)
        await self._journal.settle()
        return await self._store.history(found.id, limit)

    # Tools

    def list_tools(
        self, *, server: str | None = None, limit: int = 100, offset: int = 0
    ) -> tuple[list[Tool], int]:
        if server is not None:
            found = self.tools_of(server)
        else:
            catalog = self._aggregator.catalog
            found = [catalog.by_name[name] for name in sorted(catalog.by_name)]
        return found[offset : offset + limit], len(found)

    def get_tool(self, name: str) -> Tool:
        return self._router.look_up(name)

    async def call(self, call: Call) -> Outcome:
        """Raises `TrunklineError` only."""
        self._enter(call.principal)
        ended, server = "CANCELLED", ""
        try:
            outcome = await self._router.route(call)
            ended, server = "task" if outcome.task else "ok", outcome.server_name
            return outcome
        except TrunklineError as error:
            ended = error.code
            raise
        finally:
            self._leave(call.principal)
            if self.settings.audit_calls:
                server = server or call.server_id or call.name.partition(".")[0]
                self._journal.audit(
                    record_of_call(call, self._registry.find(server), ended, self._clock.now())
                )

    async def change_task(self, server_id: str, errand: Errand, by: Principal, request_id: str) -> Outcome:
        """Answer what a task asks, or cancel it: limited and written down as a call is.

        Raises `TrunklineError` only.
        """
        self._enter(by)
        ended = "CANCELLED"
        try:
            outcome = await self._router.relay(server_id, errand)
            ended = "ok"
            return outcome
        except TrunklineError as error:
            ended = error.code
            raise
        finally:
            self._leave(by)
            if self.settings.audit_calls:
                server = self._registry.find(server_id)
                self._journal.audit(record_of_task(errand, by, server, ended, request_id, self._clock.now()))

    def _enter(self, by: Principal) -> None:
        """One more is under way. Raises `TrunklineError`; else `_leave` must follow."""
        if self.draining:
            raise ServerUnavailable("The gateway is shutting down", retry_after=DRAIN_RETRY_AFTER)
        self._limits.enter(by.key_id)
        self._calls += 1
        self._quiet.clear()

    def _leave(self, by: Principal) -> None:
        self._limits.leave(by.key_id)
        self._calls -= 1
        if not self._calls:
            self._quiet.set()

    # What clients of the protocol see

    def shelf(self, server: str | None = None) -> Shelf:
        """What is shown of everything, or of one server. Raises `ServerNotFound`."""
        return self._shelves.of(server)

    async def relay(self, server_id: str, errand: Errand) -> Outcome:
        """Any request but a tool call. Raises `TrunklineError` only."""
        if self.draining:
            raise ServerUnavailable("The gateway is shutting down", retry_after=DRAIN_RETRY_AFTER)
        return await self._router.relay(server_id, errand)

    def introduction_of(self, server_id: str) -> Introduction | None:
        """What a connected server said of itself."""
        connection = self._sessions.get(server_id)
        return connection.introduction if connection is not None else None

    async def subscribe(self, server_id: str, uri: str) -> None:
        """Hear of changes of a resource as events. Raises `TrunklineError`."""
        await self._subscriptions.add(server_id, uri)

    async def unsubscribe(self, server_id: str, uri: str) -> None:
        await self._subscriptions.remove(server_id, uri)

    # Keys

    def authenticate(self, token: bytes | None, ip: str | None) -> Principal:
        return self._keys.authenticate(token, ip)

    async def create_key(
        self, name: str, scope: Scope, *, expires_at: datetime | None, by: Principal
    ) -> tuple[ApiKey, str]:
        return await self._keys.create(name, scope, expires_at=expires_at, by=by)

    def list_keys(self) -> list[ApiKey]:
        return self._keys.all()

    async def revoke_key(self, key_id: str, by: Principal) -> ApiKey:
        return await self._keys.revoke(key_id, by)

    # Operation

    async def read_audit(self, query: AuditFilter) -> tuple[list[AuditRecord], int]:
        await self._journal.settle()
        return await self._store.read_audit(query)

    def state(self) -> GatewayState:
        return self._standing.state()

    async def health(self) -> HealthReport:
        return await self._standing.health()

    def metrics_text(self) -> bytes:
        return self.telemetry.render()

    async def drain(self) -> None:
        """Refuse new calls and wait, within reason, for those under way."""
        self.draining = True
        try:
            await asyncio.wait_for(self._quiet.wait(), self.settings.shutdown_timeout)
        except TimeoutError:
            log.warning("%d calls are cut off by the end of the gateway", self._calls)

    # Inside

    def _changed(self) -> None:
        self.telemetry.set_servers(self._registry.counts())
        self.telemetry.tools.set(len(self._aggregator.catalog))

    def in_background(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Something nobody waits for; ended with the gateway."""
        task = start_apart(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task

    async def _prune_audit(self) -> None:
        while True:
            try:
                removed = await self._store.prune_audit(
                    self._clock.now() - timedelta(days=self.settings.audit_days)
                )
            except StorageUnavailable as error:
                log.warning("old audit records could not be removed: %s", error.detail)
            else:
                if removed:
                    log.info("removed %d old audit records", removed)
            await self._clock.sleep(PRUNE_SECONDS)
