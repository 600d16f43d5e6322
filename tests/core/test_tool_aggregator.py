"""Proves that store and catalogue follow what a server lists, and that nothing is written for nothing."""

import asyncio
import logging
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, closing
from pathlib import Path

import pytest

from tests.core.clock import FakeClock
from tests.core.conftest import until
from tests.core.peer import Peer, definition, page, pages
from tests.core.wiring import connection_to
from tests.samples import new_record, new_server
from trunkline.core.tool_aggregator import REST_SECONDS, ToolAggregator
from trunkline.model import Server
from trunkline.ports import Clock, StoredTool
from trunkline.store.sql import SqlStore
from trunkline.upstream.connection import Connection


class Desk:
    """An aggregator on a real store, and servers it can list."""

    def __init__(self, store: SqlStore, clock: Clock, *, per_server: int = 100, in_all: int = 100) -> None:
        self.store = store
        self.published: list[tuple[str, int]] = []
        self.aggregator = ToolAggregator(
            store=store, clock=clock, max_tools_per_server=per_server, max_tools=in_all
        )
        self.aggregator.announce_to(lambda server_id, count: self.published.append((server_id, count)))
        self._connections = AsyncExitStack()
        self._live: dict[str, Connection] = {}

    async def added(self, name: str, peer: Peer) -> Server:
        server = new_server(name)
        await self.store.add_server(server, new_record())
        self._live[server.id] = await self._connections.enter_async_context(connection_to(peer, server.id))
        return server

    def refresh(self, server: Server) -> None:
        self.aggregator.refresh(server, self._live[server.id])

    async def listed(self, server: Server) -> list[str]:
        """The names it has once it has been listed again."""
        await self.aggregator.stop(server.id)
        self.refresh(server)
        await self.aggregator.settled(server.id, 20)
        assert not self.aggregator.is_listing(server.id)
        return list(self.aggregator.catalog.tools_of(server.id))

    async def close(self) -> None:
        await self.aggregator.close()
        await self._connections.aclose()

    async def stored(self) -> dict[str, StoredTool]:
        return {tool.original_name: tool for tool in await self.store.load_tools()}


@pytest.fixture
async def desk(sqlite: SqlStore, clock: FakeClock) -> AsyncIterator[Desk]:
    made = Desk(sqlite, clock)
    yield made
    await made.close()


@pytest.fixture
def commits(tmp_path: Path, sqlite: SqlStore) -> Iterator[Callable[[], int]]:
    """A number that changes whenever somebody has written to the database."""
    with closing(sqlite3.connect(tmp_path / "store" / "trunkline.db")) as watcher:
        yield lambda: int(watcher.execute("PRAGMA data_version").fetchone()[0])


async def test_an_unchanged_list_writes_nothing(desk: Desk, peer: Peer, commits: Callable[[], int]) -> None:
    """R-18: not a row, so it needs no database; and readers keep the snapshot they have."""
    prompts = {"": page({"name": "greet"}, key="prompts")}
    lists = {"tools/list": pages((definition("a"), definition("b"))), "prompts/list": prompts}
    peer.say(lists=lists, capabilities={"tools": {}, "prompts": {}})
    server = await desk.added("alpha", peer)
    before = commits()
    assert await desk.listed(server) == ["a", "b"]
    after, catalog = commits(), desk.aggregator.catalog
    assert after != before
    assert await desk.listed(server) == ["a", "b"]
    assert commits() == after
    assert desk.aggregator.catalog is catalog
    await desk.store.close()
    await desk.listed(server)
    assert desk.published == [(server.id, 2)] * 3
    assert peer.asked("tools/list ") == 3


async def test_the_order_of_a_list_is_no_change(desk: Desk, peer: Peer, commits: Callable[[], int]) -> None:
    """R-18"""
    peer.has(definition("a"), definition("b"))
    server = await desk.added("alpha", peer)
    await desk.listed(server)
    before = commits()
    peer.has(definition("b"), definition("a"))
    await desk.listed(server)
    assert commits() == before


async def test_only_the_tool_that_changed_is_written(desk: Desk, peer: Peer, clock: FakeClock) -> None:
    """R-18: the same name again is the same tool: it keeps its id and when it was discovered."""
    peer.has(definition("same"), definition("other", description="old"))
    server = await desk.added("alpha", peer)
    await desk.listed(server)
    before = await desk.stored()
    clock.advance(3600)
    peer.has(definition("same"), definition("other", description="new"), definition("fresh"))
    assert await desk.listed(server) == ["same", "other", "fresh"]
    after = await desk.stored()
    assert after["same"] == before["same"]
    assert after["other"].id == before["other"].id
    assert after["other"].discovered_at == before["other"].discovered_at
    assert after["other"].fingerprint != before["other"].fingerprint
    assert b'"new"' in after["other"].definition
    assert after["fresh"].discovered_at == clock.now()
    shown = desk.aggregator.catalog.tools_of(server.id)
    assert {name: (tool.id, tool.discovered_at, tool.definition) for name, tool in shown.items()} == {
        name: (tool.id, tool.discovered_at, tool.definition) for name, tool in after.items()
    }


async def test_a_tool_that_vanished_is_removed(desk: Desk, peer: Peer) -> None:
    """R-18: from the store and from the catalogue; alone, and beside one that changed."""
    peer.has(definition("a"), definition("b"), definition("c"))
    server = await desk.added("alpha", peer)
    await desk.listed(server)
    peer.has(definition("a"), definition("b"))
    assert await desk.listed(server) == ["a", "b"]
    assert set(await desk.stored()) == {"a", "b"}
    peer.has(definition("b", description="changed"))
    assert await desk.listed(server) == ["b"]
    assert set(await desk.stored()) == {"b"}


async def test_an_empty_list_removes_all_and_warns(
    desk: Desk, peer: Peer, caplog: pytest.LogCaptureFixture
) -> None:
    """R-18"""
    peer.has(definition("a"))
    server = await desk.added("alpha", peer)
    await desk.listed(server)
    peer.has()
    with caplog.at_level(logging.WARNING):
        assert await desk.listed(server) == []
    assert await desk.stored() == {}
    assert desk.published[-1] == (server.id, 0)
    assert "alpha lists no tools" in caplog.text


async def test_a_list_cut_short_removes_nothing(desk: Desk, peer: Peer) -> None:
    """R-20: what is missing from half a list may still exist; what came is taken."""
    peer.has(definition("a"), definition("b"))
    server = await desk.added("alpha", peer)
    await desk.listed(server)
    broken = {"": page(definition("c"), next_cursor="x"), "x": {"error": {"code": -32603, "message": "no"}}}
    peer.say(lists={"tools/list": broken})
    assert sorted(await desk.listed(server)) == ["a", "b", "c"]
    assert set(await desk.stored()) == {"a", "b", "c"}
    assert [problem.name for problem in desk.aggregator.problems(server.id)] == ["tools/list"]
    peer.has(definition("c"))
    assert await desk.listed(server) == ["c"]
    assert desk.aggregator.problems(server.id) == ()


async def test_a_bad_tool_is_a_problem_until_it_is_good(desk: Desk, peer: Peer) -> None:
    """R-20"""
    peer.has(definition("good"), {"name": "bad"})
    server = await desk.added("alpha", peer)
    assert await desk.listed(server) == ["good"]
    assert [(it.kind, it.name) for it in desk.aggregator.problems(server.id)] == [("tool", "bad")]
    peer.has(definition("good"), definition("bad"))
    assert await desk.listed(server) == ["good", "bad"]
    assert desk.aggregator.problems(server.id) == ()


async def test_prompts_follow_what_is_listed(desk: Desk, peer: Peer) -> None:
    """R-17, R-18: a kind whose list failed keeps what was known of it."""

    async def held() -> set[str]:
        await desk.listed(server)
        stored = await desk.store.load_items()
        assert {item.key for item in desk.aggregator.catalog.items[server.id]} == {it.key for it in stored}
        return {item.key for item in stored}

    def has(*prompts: dict[str, object]) -> None:
        listed = {"tools/list": pages(()), "prompts/list": {"": page(*prompts, key="prompts")}}
        peer.say(lists=listed, capabilities={"tools": {}, "prompts": {}})

    has({"name": "one"}, {"name": "two"})
    server = await desk.added("alpha", peer)
    assert await held() == {"one", "two"}
    has({"name": "two", "title": "changed"}, {"name": "three"})
    assert await held() == {"two", "three"}
    peer.say(lists={"tools/list": pages(()), "prompts/list": {"": {"error": {"code": 1, "message": "no"}}}})
    assert await held() == {"two", "three"}


# Limits


async def test_a_server_with_too_many_tools_is_told_which_setting_says_so(
    sqlite: SqlStore, clock: FakeClock, peer: Peer
) -> None:
    """R-09"""
    desk = Desk(sqlite, clock, per_server=3)
    peer.has(*(definition(f"t{number}") for number in range(5)))
    server = await desk.added("alpha", peer)
    assert await desk.listed(server) == ["t0", "t1", "t2"]
    (problem,) = desk.aggregator.problems(server.id)
    assert problem.reason == "only the first 3 are taken, because of MCP_AGGREGATOR_MAX_TOOLS_PER_SERVER"
    assert set(await desk.stored()) == {"t0", "t1", "t2"}
    await desk.close()


async def test_a_gateway_with_too_many_tools_is_told_which_setting_says_so(
    sqlite: SqlStore, clock: FakeClock, new_peer: Callable[[str], Peer]
) -> None:
    """R-09: the tools of the others count, its own of last time do not."""
    desk = Desk(sqlite, clock, in_all=5)
    servers = []
    for name in ("alpha", "beta", "gamma"):
        peer = new_peer(name)
        peer.has(*(definition(f"t{number}") for number in range(3)))
        servers.append(await desk.added(name, peer))
    taken = [len(await desk.listed(server)) for server in (*servers, servers[0])]
    assert taken == [3, 2, 0, 3]
    assert len(desk.aggregator.catalog) == len(await desk.store.load_tools()) == 5
    assert desk.aggregator.problems(servers[0].id) == ()
    for server in servers[1:]:
        (problem,) = desk.aggregator.problems(server.id)
        assert problem.reason.endswith("because of MCP_AGGREGATOR_MAX_TOOLS")
    await desk.aggregator.forget(servers[0].id)
    assert len(await desk.listed(servers[2])) == 3
    await desk.close()


async def test_more_than_a_batch_is_stored_whole(sqlite: SqlStore, clock: FakeClock, peer: Peer) -> None:
    """R-18: 500 and more go in batches; each tool has an id of its own, and what vanished goes with them."""
    desk = Desk(sqlite, clock, per_server=2000, in_all=2000)
    peer.has(definition("gone"))
    server = await desk.added("alpha", peer)
    await desk.listed(server)
    peer.has(*(definition(f"t{number}") for number in range(1201)))
    assert len(await desk.listed(server)) == 1201
    stored = await desk.stored()
    assert len(stored) == 1201
    assert {tool.id for tool in stored.values()} == {
        tool.id for tool in desk.aggregator.catalog.tools_of(server.id).values()
    }
    await desk.close()


# When


async def test_a_storm_of_wishes_is_one_listing_a_second(desk: Desk, peer: Peer, clock: FakeClock) -> None:
    """R-18: and the last wish is never forgotten."""
    peer.has(definition("a"))
    server = await desk.added("alpha", peer)
    for _ in range(1000):
        desk.refresh(server)
    await until(lambda: clock.pauses == [REST_SECONDS])
    assert peer.asked("tools/list ") == 1
    peer.has(definition("a"), definition("b"))
    for _ in range(1000):
        desk.refresh(server)
    await desk.aggregator.settled(server.id, 1)
    assert peer.asked("tools/list ") == 1
    clock.advance(REST_SECONDS)
    await until(lambda: clock.pauses == [REST_SECONDS] * 2)
    assert peer.asked("tools/list ") == 2
    assert list(desk.aggregator.catalog.tools_of(server.id)) == ["a", "b"]
    clock.advance(REST_SECONDS)
    await until(lambda: server.id not in desk.aggregator._listings)
    assert peer.asked("tools/list ") == 2


async def test_a_listing_that_is_stopped_changes_nothing(desk: Desk, peer: Peer) -> None:
    """R-06: a server that is disconnected in mid-list."""
    peer.has(definition("a"))
    server = await desk.added("alpha", peer)
    await desk.listed(server)
    peer.say(lists={"tools/list": {"": "mute"}})
    desk.refresh(server)
    await desk.aggregator.stop(server.id)
    desk.refresh(server)
    await until(lambda: peer.asked("tools/list ") == 2)
    assert desk.aggregator.is_listing(server.id)
    waiting = asyncio.create_task(desk.aggregator.settled(server.id, 20))
    await asyncio.wait_for(desk.aggregator.stop(server.id), 5)
    await asyncio.wait_for(waiting, 5)
    assert not desk.aggregator.is_listing(server.id)
    assert list(desk.aggregator.catalog.tools_of(server.id)) == ["a"]
    assert set(await desk.stored()) == {"a"}


async def test_a_database_that_is_away_costs_one_listing(desk: Desk, peer: Peer) -> None:
    """R-33: what is known stays callable, and the next listing makes it good."""
    peer.has(definition("a"))
    server = await desk.added("alpha", peer)
    await desk.listed(server)
    await desk.store.close()
    peer.has(definition("b"))
    assert await desk.listed(server) == ["a"]
    await desk.store.open()
    assert await desk.listed(server) == ["b"]
    assert set(await desk.stored()) == {"b"}


# Restarts


async def test_what_was_known_is_known_after_a_restart(desk: Desk, peer: Peer, clock: FakeClock) -> None:
    """R-06, R-17: the same catalogue, read out of the stored definitions again; then nothing is written."""
    hints = {"readOnlyHint": True, "idempotentHint": True}
    prompts = {"": page({"name": "greet"}, key="prompts")}
    tools = (definition("api.v2.get", annotations=hints, description="Gets", odd={"kept": None}),)
    peer.say(
        lists={"tools/list": pages(tools), "prompts/list": prompts}, capabilities={"tools": {}, "prompts": {}}
    )
    server = await desk.added("alpha", peer)
    await desk.listed(server)
    again = Desk(desk.store, clock)
    await again.aggregator.load({server.id: server.name})
    assert again.aggregator.catalog.by_name == desk.aggregator.catalog.by_name
    assert again.aggregator.catalog.items == desk.aggregator.catalog.items
    (tool,) = again.aggregator.catalog.by_name.values()
    assert (tool.name, tool.read_only, tool.idempotent) == ("alpha.api.v2.get", True, True)
    assert b'"odd": {"kept": null}' in tool.definition


async def test_a_forgotten_server_leaves_nothing_in_the_catalogue(desk: Desk, peer: Peer) -> None:
    """R-07"""
    peer.has(definition("a"), {"name": "bad"})
    server = await desk.added("alpha", peer)
    await desk.listed(server)
    await desk.aggregator.forget(server.id)
    assert len(desk.aggregator.catalog) == 0
    assert desk.aggregator.problems(server.id) == ()
    assert server.id not in desk.aggregator.catalog.items
