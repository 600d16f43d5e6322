"""Tasks that newer servers answer calls with: under which id a client knows one, and finding it again.

Nothing is kept of a task: its id says where it is, for the key it was given to. Asking after a task is a
request like any other; hearing of one is `task_hearing.py`'s.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass

from trunkline.core.request_router import RequestRouter
from trunkline.core.server_registry import ServerRegistry
from trunkline.core.shelf import Placed
from trunkline.core.task_hearing import TaskHearing, Tell
from trunkline.errors import ExecutionFailed
from trunkline.model import Counterpart, Outcome, Principal
from trunkline.security.task_ids import TaskIds
from trunkline.wire import jsonrpc, tasks


@dataclass(frozen=True, slots=True)
class Heard:
    """What a client that listens to tasks is told of."""

    task_ids: frozenset[str]
    lost: asyncio.Event
    """Set when one of them will not be heard of any more, although it has not ended."""


class Tasks:
    def __init__(self, *, ids: TaskIds, registry: ServerRegistry, router: RequestRouter) -> None:
        self._ids = ids
        self._registry = registry
        self._router = router

    def begun(self, outcome: Outcome, by: Principal) -> bytes:
        """The answer to a call that became a task, under its client's id. Raises `ExecutionFailed`."""
        try:
            own = tasks.read(outcome.result).task_id
            shown = self._ids.seal(outcome.server_id, own, owner=by.key_id) if own else None
            if shown is not None:
                return tasks.with_id(outcome.result, shown)
        except jsonrpc.Malformed:
            pass
        raise ExecutionFailed(
            f"{outcome.server_name} began a task whose id cannot be passed on", context={"outcome": "unknown"}
        )

    def find(self, task_id: str, by: Principal, server_id: str | None) -> Placed | None:
        """For its owner alone; with `server_id`, at that server alone."""
        found = self._ids.unseal(task_id, owner=by.key_id)
        if found is None or server_id not in (None, found[0]) or self._registry.find(found[0]) is None:
            return None
        return Placed(*found)

    @contextlib.asynccontextmanager
    async def heard(
        self,
        task_ids: Iterable[str],
        by: Principal,
        server_id: str | None,
        client: Counterpart,
        tell: Tell,
    ) -> AsyncIterator[Heard]:
        """`client` hears of those of its tasks that their servers agree to tell of, while this lasts."""
        lost = asyncio.Event()
        hearings = [
            TaskHearing(self._router, server, shown, client=client, tell=tell, on_lost=lost.set)
            for server, shown in self._by_server(task_ids, by, server_id).items()
        ]
        try:
            agreed = await asyncio.gather(*(hearing.open() for hearing in hearings))
            yield Heard(frozenset().union(*agreed), lost)
        finally:
            await asyncio.gather(*(hearing.close() for hearing in hearings))

    def _by_server(
        self, task_ids: Iterable[str], by: Principal, server_id: str | None
    ) -> Mapping[str, dict[str, str]]:
        """Server → the server's own id → the client's."""
        placed: dict[str, dict[str, str]] = {}
        for task_id in task_ids:
            found = self.find(task_id, by, server_id)
            if found is not None:
                placed.setdefault(found.server_id, {})[found.key] = task_id
        return placed
