"""Lists what a server has, compares it with what is known, stores the difference, publishes the catalogue.

A definition is compared by its fingerprint, so an unchanged list writes nothing. A server that announces
changes without end is listed at most once a second. It holds the current `Catalog`; everybody reads it.
"""

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime

from trunkline.core.catalog import Catalog
from trunkline.core.listing import Inventory, take_inventory
from trunkline.errors import ServerNotFound, StorageUnavailable
from trunkline.model import Item, ItemKind, Problem, Server, Tool
from trunkline.ports import Clock, Store, StoredTool, ToolDraft
from trunkline.telemetry import start_apart
from trunkline.upstream.connection import Connection
from trunkline.wire import definitions
from trunkline.wire.definitions import ToolFacts, Unusable

log = logging.getLogger(__name__)

BATCH = 500
REST_SECONDS = 1.0
"""Between two listings of one server that announces changes."""
STORE_PAUSE_SECONDS = 5.0
"""Before a listing that could not be stored is tried again."""


class ToolAggregator:
    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        max_tools_per_server: int,
        max_tools: int,
    ) -> None:
        self._store = store
        self._clock = clock
        self._max_per_server = max_tools_per_server
        self._max_tools = max_tools
        self._on_published: Callable[[str, int], None] = lambda server_id, count: None
        self._problems: dict[str, tuple[Problem, ...]] = {}
        self._dirty: dict[str, Connection] = {}
        self._listings: dict[str, asyncio.Task[None]] = {}
        self._idle: dict[str, asyncio.Event] = {}
        self._storing = asyncio.Lock()
        """One listing is stored at a time, so that several cannot take the same last places."""
        self.catalog = Catalog()
        self.last_sync: datetime | None = None

    def announce_to(self, on_published: Callable[[str, int], None]) -> None:
        """Who hears, after every listing, of a server and how many tools it has."""
        self._on_published = on_published

    async def load(self, names: dict[str, str]) -> None:
        """What was known before the restart, by server id and name. It is callable once connected again."""
        tools: dict[str, list[Tool]] = {server_id: [] for server_id in names}
        for stored in await self._store.load_tools():
            tool = _revived(stored, names.get(stored.server_id, ""))
            if tool is not None and stored.server_id in tools:
                tools[stored.server_id].append(tool)
        items: dict[str, list[Item]] = {server_id: [] for server_id in names}
        for item in await self._store.load_items():
            items[item.server_id].append(item)
        catalog = self.catalog
        for server_id in names:
            if tools[server_id] or items[server_id]:
                catalog = catalog.with_server(server_id, tools[server_id], items[server_id])
        self.catalog = catalog

    def problems(self, server_id: str) -> tuple[Problem, ...]:
        return self._problems.get(server_id, ())

    def refresh(self, server: Server, connection: Connection) -> None:
        """List the server soon, in the background; any number of wishes become one listing."""
        self._dirty[server.id] = connection
        if server.id not in self._listings:
            self._idle[server.id] = asyncio.Event()
            task = start_apart(self._list_while_dirty(server), name=f"listing {server.name}")
            self._listings[server.id] = task

    async def settled(self, server_id: str, seconds: float) -> None:
        """Wait, within the time, until a listing under way has been published."""
        idle = self._idle.get(server_id)
        if idle is not None:
            task = asyncio.ensure_future(idle.wait())
            try:
                await asyncio.wait({task}, timeout=seconds)
            finally:
                task.cancel()

    def is_listing(self, server_id: str) -> bool:
        idle = self._idle.get(server_id)
        return idle is not None and not idle.is_set()

    async def forget(self, server_id: str) -> None:
        """The server is removed, and its rows with it."""
        await self.stop(server_id)
        self._problems.pop(server_id, None)
        self.catalog = self.catalog.without_server(server_id)

    async def stop(self, server_id: str) -> None:
        """End a listing under way; what it found so far is not used."""
        self._dirty.pop(server_id, None)
        task = self._listings.pop(server_id, None)
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def close(self) -> None:
        await asyncio.gather(*(self.stop(server_id) for server_id in list(self._listings)))

    # Listing

    async def _list_while_dirty(self, server: Server) -> None:
        idle = self._idle[server.id]
        try:
            while (connection := self._dirty.pop(server.id, None)) is not None:
                idle.clear()
                pause = REST_SECONDS
                try:
                    await self._list(server, connection)
                except StorageUnavailable as error:
                    self._put_off(server, connection, error)
                    pause = STORE_PAUSE_SECONDS
                idle.set()
                await self._clock.sleep(pause)
        except ServerNotFound:
            log.info("%s was removed while it was listed", server.name)
        except Exception:
            log.exception("%s: its tools could not be listed", server.name)
        finally:
            idle.set()
            if self._listings.get(server.id) is asyncio.current_task():
                del self._listings[server.id]

    def _put_off(self, server: Server, connection: Connection, error: StorageUnavailable) -> None:
        """The server stays dirty, and whoever looks sees why its tools are missing."""
        reason = f"what it lists could not be stored, and is listed again soon: {error.detail}"
        log.error("%s: %s", server.name, reason, extra={"server": server.name})
        self._problems[server.id] = (Problem("list", "tools/list", reason),)
        self._dirty.setdefault(server.id, connection)

    async def _list(self, server: Server, connection: Connection) -> None:
        def on_page(count: int) -> None:
            if count > BATCH:
                log.info("%s: %d definitions so far", server.name, count, extra={"server": server.name})

        most = self._room(server)
        inventory = await take_inventory(server.id, connection, most_tools=most, on_page=on_page)
        if not inventory.tools and inventory.tools_complete and not inventory.problems:
            log.warning("%s lists no tools", server.name, extra={"server": server.name})
        self._explain_limits(inventory, most)
        async with self._storing:
            room = self._room(server)
            _keep_within(room, inventory)
            for problem in inventory.problems:
                log.warning(
                    "%s: %s %s: %s",
                    server.name,
                    problem.kind,
                    problem.name,
                    problem.reason,
                    extra={"server": server.name},
                )
            tools = await self._store_tools(server, inventory, room)
            items = await self._store_items(server, inventory)
            self._problems[server.id] = tuple(inventory.problems)
            self._publish(server, tools, items)

    def _room(self, server: Server) -> int:
        """How many tools it may have, for its own limit and for what the others have."""
        elsewhere = len(self.catalog) - len(self.catalog.tools_of(server.id))
        return max(0, min(self._max_per_server, self._max_tools - elsewhere))

    def _explain_limits(self, inventory: Inventory, most: int) -> None:
        setting = "MCP_AGGREGATOR_MAX_TOOLS"
        if most == self._max_per_server:
            setting = "MCP_AGGREGATOR_MAX_TOOLS_PER_SERVER"
        for index, problem in enumerate(inventory.problems):
            if problem.name == "tools/list" and problem.reason.startswith("only the first"):
                reason = f"{problem.reason}, because of {setting}"
                inventory.problems[index] = Problem(problem.kind, problem.name, reason)

    async def _store_tools(self, server: Server, inventory: Inventory, room: int) -> dict[str, Tool]:
        known = self.catalog.tools_of(server.id)
        unlisted = [name for name in known if name not in inventory.tools]
        kept = [] if inventory.tools_complete else unlisted[: room - len(inventory.tools)]
        removed = unlisted[len(kept) :]
        tools = {name: known[name] for name in kept}
        drafts: list[ToolDraft] = []
        for name, (definition, facts) in inventory.tools.items():
            mark = definitions.fingerprint(definition)
            if name in known and known[name].fingerprint == mark:
                tools[name] = known[name]
            else:
                drafts.append(ToolDraft(name, facts.description, definition, mark, facts.input_schema))
        now = self._clock.now()
        ids: dict[str, int] = {}
        for start in range(0, len(drafts), BATCH):
            batch = drafts[start : start + BATCH]
            ids |= await self._store.apply_tools(server.id, batch, removed if start == 0 else (), now)
        if removed and not drafts:
            await self._store.apply_tools(server.id, (), removed, now)
        for draft in drafts:
            since = known[draft.original_name].discovered_at if draft.original_name in known else now
            facts = inventory.tools[draft.original_name][1]
            tools[draft.original_name] = _tool(
                server, ids[draft.original_name], draft.definition, draft.fingerprint, facts, since
            )
        return tools

    async def _store_items(self, server: Server, inventory: Inventory) -> tuple[Item, ...]:
        known = {(item.kind, item.key): item for item in self.catalog.items.get(server.id, ())}
        kept = {key: item for key, item in known.items() if key[0] not in inventory.complete_kinds}
        items = {**kept, **inventory.items}
        removed = [(kind.value, key) for kind, key in known if (kind, key) not in items]
        changed = [
            item
            for key, item in inventory.items.items()
            if key not in known or known[key].fingerprint != item.fingerprint
        ]
        if changed or removed:
            await self._store.apply_items(server.id, changed, removed)
        return tuple(items.values())

    def _publish(self, server: Server, tools: dict[str, Tool], items: tuple[Item, ...]) -> None:
        self.last_sync = self._clock.now()
        same = dict(self.catalog.tools_of(server.id)) == tools and _marks(
            self.catalog.items.get(server.id, ())
        ) == _marks(items)
        if not same or server.id not in self.catalog.by_server:
            self.catalog = self.catalog.with_server(server.id, tools.values(), items)
        self._on_published(server.id, len(tools))


def _keep_within(room: int, inventory: Inventory) -> None:
    """Others may have taken places while the server was listed."""
    if len(inventory.tools) > room:
        for name in list(inventory.tools)[room:]:
            del inventory.tools[name]
        reason = f"only the first {room} are taken, because of MCP_AGGREGATOR_MAX_TOOLS"
        inventory.problems.append(Problem("list", "tools/list", reason))


def _marks(items: tuple[Item, ...]) -> set[tuple[ItemKind, str, str]]:
    return {(item.kind, item.key, item.fingerprint) for item in items}


def _revived(stored: StoredTool, server_name: str) -> Tool | None:
    """None for a definition that today's rules keep out."""
    try:
        facts = definitions.read_tool(stored.definition)
    except Unusable:
        return None
    return Tool(
        id=stored.id,
        server_id=stored.server_id,
        server_name=server_name,
        original_name=stored.original_name,
        definition=stored.definition,
        fingerprint=stored.fingerprint,
        description=facts.description,
        read_only=facts.read_only,
        idempotent=facts.idempotent,
        header_parameters=facts.mirrored,
        discovered_at=stored.discovered_at,
        skill_ids=stored.skill_ids,
        primary_skill_id=stored.primary_skill_id,
        is_classified=stored.is_classified,
    )


def _tool(
    server: Server, tool_id: int, definition: bytes, mark: str, facts: ToolFacts, since: datetime
) -> Tool:
    return Tool(
        id=tool_id,
        server_id=server.id,
        server_name=server.name,
        original_name=facts.name,
        definition=definition,
        fingerprint=mark,
        description=facts.description,
        read_only=facts.read_only,
        idempotent=facts.idempotent,
        header_parameters=facts.mirrored,
        discovered_at=since,
    )
