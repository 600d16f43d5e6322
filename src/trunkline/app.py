"""The composition root: alone it names the concrete parts and says in which order they live and die."""

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime

from trunkline.core.events import Events
from trunkline.core.gateway import Gateway
from trunkline.core.journal import Journal
from trunkline.core.keys import LOCAL, Keys
from trunkline.core.limits import Limits
from trunkline.core.reconciler import Reconciler
from trunkline.core.request_router import RequestRouter
from trunkline.core.server_registry import ServerRegistry
from trunkline.core.shelves import Shelves
from trunkline.core.standing import Standing
from trunkline.core.subscriptions import Subscriptions
from trunkline.core.supervision import Supervision
from trunkline.core.tasks import Tasks
from trunkline.core.tool_aggregator import ToolAggregator
from trunkline.errors import StartRefused
from trunkline.ports import Clock, Store
from trunkline.security.admission import Admission
from trunkline.security.cipher import AesCipher, load_key_ring
from trunkline.security.keys import first_admin_key
from trunkline.security.outbound import Outbound
from trunkline.security.profiles import Profiles, load_profiles
from trunkline.security.task_ids import TaskIds
from trunkline.security.variables import Variables
from trunkline.settings import Settings
from trunkline.store.sql import store_for
from trunkline.telemetry import Metrics, Redactor
from trunkline.upstream.connection import Patience
from trunkline.upstream.health_monitor import HealthMonitor
from trunkline.upstream.session_manager import SessionManager
from trunkline.upstream.transports import Transports
from trunkline.upstream.wires import Wire


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


@contextlib.asynccontextmanager
async def open_gateway(
    settings: Settings, *, clock: Clock | None = None, redactor: Redactor | None = None
) -> AsyncIterator[Gateway]:
    """A gateway that works until the context ends. Raises `StartRefused`.

    `redactor` is the one the log handlers use, so that they learn the secrets of the servers.
    """
    clock = clock or SystemClock()
    redactor = redactor or Redactor()
    store = store_for(settings)
    await store.open()
    async with contextlib.AsyncExitStack() as parts:
        parts.push_async_callback(store.close)
        keys = Keys(store=store, clock=clock, required=settings.auth == "on")
        outbound = Outbound.from_settings(settings)
        transports = Transports(policy=outbound, redact=redactor, message_limit=settings.message_limit)
        parts.push_async_callback(transports.close)
        gateway = _assemble(settings, store, clock, redactor, keys, outbound, transports)
        parts.push_async_callback(gateway.close)
        await gateway.start()
        await _make_first_key(settings, keys, clock)
        yield gateway


async def _make_first_key(settings: Settings, keys: Keys, clock: Clock) -> None:
    """The last step of a start: one that fails must leave no key behind that nobody was shown.

    Also for an installation whose admin keys have all expired: its owner would be locked out.
    """
    if keys.has_admin():
        return
    try:
        key, _ = first_admin_key(settings.data_dir, now=clock.now())
    except OSError as error:
        raise StartRefused(
            f"The first admin key cannot be kept in {settings.data_dir}: {error.strerror}"
        ) from None
    await keys.add(key, LOCAL)


def _admission(settings: Settings, outbound: Outbound) -> Admission:
    profiles = load_profiles(settings.stdio_profiles) if settings.stdio_profiles else Profiles({})
    variables = Variables(settings.allowed_variables, os.environ)
    return Admission(stdio=settings.stdio_mode, profiles=profiles, variables=variables, outbound=outbound)


def _assemble(
    settings: Settings,
    store: Store,
    clock: Clock,
    redactor: Redactor,
    keys: Keys,
    outbound: Outbound,
    transports: Transports,
) -> Gateway:
    metrics = Metrics()
    events = Events()
    ring = load_key_ring(settings.credential_key, settings.data_dir)
    journal = Journal(store, on_audit_dropped=metrics.audit_dropped.inc)
    registry = ServerRegistry(
        store=store,
        cipher=AesCipher(ring),
        policy=_admission(settings, outbound),
        clock=clock,
        journal=journal,
        max_servers=settings.max_servers,
    )

    def make_wire(server_id: str) -> Wire:
        server = registry.get(server_id)
        spec, secrets = registry.reachable(server)
        redactor.learn(server_id, secrets)
        return transports.wire(server.name, spec)

    sessions = SessionManager(
        make_wire=make_wire,
        patience=Patience(
            settings.connection_timeout, settings.request_timeout, settings.request_timeout_cap
        ),
        clock=clock,
        health_interval=settings.health_interval,
        most=settings.max_sessions,
    )
    aggregator = ToolAggregator(
        store=store,
        clock=clock,
        max_tools_per_server=settings.max_tools_per_server,
        max_tools=settings.max_tools,
    )
    supervision = Supervision(
        registry=registry,
        aggregator=aggregator,
        sessions=sessions,
        journal=journal,
        metrics=metrics,
        clock=clock,
        events=events,
    )
    health = HealthMonitor(
        clock=clock,
        interval=settings.health_interval,
        timeout=settings.health_timeout,
        get_status=transports.get_status,
        watcher=supervision,
    )
    sessions.watch(supervision)
    aggregator.announce_to(supervision.on_published)
    supervision.watch_with(health)
    router = RequestRouter(
        registry=registry,
        aggregator=aggregator,
        sessions=sessions,
        metrics=metrics,
        on_attempt=supervision.on_attempt,
        most_calls=settings.max_calls_per_server,
    )
    subscriptions = Subscriptions(router=router, events=events)
    supervision.tell_of_resources(subscriptions)
    return Gateway(
        settings=settings,
        store=store,
        clock=clock,
        metrics=metrics,
        redactor=redactor,
        journal=journal,
        keys=keys,
        registry=registry,
        aggregator=aggregator,
        sessions=sessions,
        supervision=supervision,
        reconciler=Reconciler(
            registry=registry,
            supervision=supervision,
            sessions=sessions,
            aggregator=aggregator,
            drain_timeout=settings.drain_timeout,
        ),
        health=health,
        router=router,
        events=events,
        end_children=transports.end_children,
        subscriptions=subscriptions,
        shelves=Shelves(registry=registry, aggregator=aggregator, dotted=settings.tool_names == "dotted"),
        limits=Limits(clock=clock, most_calls=settings.max_calls_per_key, per_minute=settings.rate_limit),
        tasks=Tasks(ids=TaskIds(ring), registry=registry, router=router),
        standing=Standing(
            store=store,
            registry=registry,
            aggregator=aggregator,
            clock=clock,
            health_interval=settings.health_interval,
        ),
    )
