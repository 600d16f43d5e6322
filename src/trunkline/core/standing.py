"""How the gateway stands: the figures of its state, and the report of its health.

Looks at the registry, the catalogue and the store; changes nothing. What is told without a key, and in which
shape, is the front's.
"""

from collections.abc import Mapping

from trunkline.core.server_registry import ServerRegistry
from trunkline.core.tool_aggregator import ToolAggregator
from trunkline.errors import StorageUnavailable
from trunkline.model import GatewayState, HealthReport, ServerStatus
from trunkline.ports import Clock, Store

S = ServerStatus
_ISSUES = {S.ERROR: "in error state", S.DEGRADED: "degraded", S.CONNECTING: "not connected yet"}


class Standing:
    def __init__(
        self,
        *,
        store: Store,
        registry: ServerRegistry,
        aggregator: ToolAggregator,
        clock: Clock,
        health_interval: float,
    ) -> None:
        self._store = store
        self._registry = registry
        self._aggregator = aggregator
        self._clock = clock
        self._health_interval = health_interval
        self._started = clock.monotonic()

    def state(self) -> GatewayState:
        tools = self._aggregator.catalog.by_name.values()
        return GatewayState(
            servers=self._registry.counts(),
            total_tools=len(tools),
            classified_tools=sum(tool.is_classified for tool in tools),
            last_sync=self._aggregator.last_sync,
            health_interval=self._health_interval,
            uptime_seconds=self._clock.monotonic() - self._started,
        )

    async def health(self) -> HealthReport:
        counts = self._registry.counts()
        issues: list[str] = []
        database = "ok"
        try:
            await self._store.ping()
        except StorageUnavailable as error:
            database = "failed"
            issues.append(f"the database fails: {error.detail}")
        sessions = "ok" if self._registry.enough_serve() else "degraded"
        issues += _issues_of(counts)
        return HealthReport({"database": database, "sessions": sessions}, counts, tuple(issues))


def _issues_of(counts: Mapping[ServerStatus, int]) -> list[str]:
    found = ((counts[status], text) for status, text in _ISSUES.items() if counts[status])
    return [f"{number} {'server' if number == 1 else 'servers'} {text}" for number, text in found]
