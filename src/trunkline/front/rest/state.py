"""The gateway about itself: state, health and metrics.

Without a key the two health addresses are answered by `entrance.py`, with the status alone; here is the
report.
"""

from collections.abc import Mapping

from msgspec import UNSET, UnsetType

from trunkline.core.gateway import Gateway
from trunkline.front.answers import Answer, encode
from trunkline.front.rest.routes import Routes
from trunkline.front.rest.shapes import Moment, Said, moment_or_none
from trunkline.model import GatewayState, HealthReport, Scope, ServerStatus

STOPPING = "stopping"
"""The health of a gateway that takes no more calls; answered with 503, so that probes send nobody here."""


class State(Said, kw_only=True):
    total_servers: int
    connected_servers: int
    disconnected_servers: int
    error_servers: int
    connecting_servers: int
    total_tools: int
    classified_tools: int
    unclassified_tools: int
    last_sync: Moment | None
    health_check_interval_seconds: float
    uptime_seconds: int


class ServerCounts(Said):
    total: int
    connected: int
    error: int


class HealthAnswer(Said):
    """Without a key only the status is said."""

    status: str
    checks: dict[str, str] | UnsetType = UNSET
    servers: ServerCounts | UnsetType = UNSET
    issues: list[str] | UnsetType = UNSET


def build(gateway: Gateway) -> Routes:
    routes = Routes("", "state")

    @routes("GET", "/api/v1/aggregator/state", Scope.READ, "Count servers and tools")
    async def state() -> State:
        return _state(gateway.state())

    async def health() -> HealthAnswer | Answer:
        """Without a key only the status is said. A gateway that is stopping answers 503."""
        report = await gateway.health()
        if gateway.draining:
            return Answer(503, encode(_health(report, STOPPING)))
        return _health(report, report.status)

    for path, name in (("/health", "health_at_the_root"), ("/api/v1/aggregator/health", "health")):
        routes("GET", path, Scope.READ, "Report on health", name=name, also=(503,), keyless=True)(health)
        routes("HEAD", path, Scope.READ, "Report on health", described=False)(health)

    @routes("GET", "/metrics", Scope.READ, "Read the metrics", media="text/plain")
    async def metrics() -> Answer:
        """For Prometheus: docs/METRICS.md."""
        return Answer(200, gateway.metrics_text(), content_type=b"text/plain; version=0.0.4; charset=utf-8")

    return routes


def _state(found: GatewayState) -> State:
    count = found.servers.get
    interval = found.health_interval
    return State(
        total_servers=sum(found.servers.values()),
        connected_servers=_connected(found.servers),
        disconnected_servers=count(ServerStatus.DISCONNECTED, 0) + count(ServerStatus.DISCONNECTING, 0),
        error_servers=count(ServerStatus.ERROR, 0),
        connecting_servers=count(ServerStatus.CONNECTING, 0),
        total_tools=found.total_tools,
        classified_tools=found.classified_tools,
        unclassified_tools=found.total_tools - found.classified_tools,
        last_sync=moment_or_none(found.last_sync),
        health_check_interval_seconds=int(interval) if interval == int(interval) else interval,
        uptime_seconds=int(found.uptime_seconds),
    )


def _health(report: HealthReport, status: str) -> HealthAnswer:
    return HealthAnswer(
        status=status,
        checks=dict(report.checks),
        servers=ServerCounts(
            total=sum(report.servers.values()),
            connected=_connected(report.servers),
            error=report.servers.get(ServerStatus.ERROR, 0),
        ),
        issues=list(report.issues) or UNSET,
    )


def _connected(servers: Mapping[ServerStatus, int]) -> int:
    """A degraded server is connected: it takes calls."""
    return sum(number for status, number in servers.items() if status.callable)
