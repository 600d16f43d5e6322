"""Proves the desired state: what may be registered, what is kept of it, and how a status may move."""

import itertools
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.core.clock import FakeClock
from tests.core.conftest import ADMIN
from trunkline.core.journal import Journal
from trunkline.core.server_registry import MOVES, IllegalMove, ServerRegistry
from trunkline.errors import SealBroken, ServerAlreadyExists, ServerNotFound, ValidationError
from trunkline.model import (
    MASK,
    Era,
    HistoryEvent,
    Server,
    ServerDraft,
    ServerPatch,
    ServerStatus,
    StdioSpec,
    Transport,
)
from trunkline.ports import AuditFilter
from trunkline.security.admission import Admission
from trunkline.security.cipher import AesCipher, load_key_ring
from trunkline.security.outbound import Outbound
from trunkline.security.profiles import Profiles
from trunkline.security.variables import Variables
from trunkline.store.sql import SqlStore

S = ServerStatus
LEGAL = {
    *((S.DISCONNECTED, S.CONNECTING), (S.CONNECTING, S.CONNECTED), (S.CONNECTING, S.ERROR)),
    *((S.CONNECTING, S.DISCONNECTED), (S.CONNECTED, S.DEGRADED), (S.CONNECTED, S.ERROR)),
    *((S.CONNECTED, S.DISCONNECTING), (S.CONNECTED, S.DISCONNECTED), (S.DEGRADED, S.CONNECTED)),
    *((S.DEGRADED, S.ERROR), (S.DEGRADED, S.DISCONNECTING), (S.DEGRADED, S.DISCONNECTED)),
    *((S.ERROR, S.CONNECTING), (S.ERROR, S.DISCONNECTED), (S.DISCONNECTING, S.DISCONNECTED)),
    (S.DISCONNECTING, S.CONNECTED),
}
WAY_TO = {
    S.DISCONNECTED: (),
    S.CONNECTING: (S.CONNECTING,),
    S.CONNECTED: (S.CONNECTING, S.CONNECTED),
    S.DEGRADED: (S.CONNECTING, S.CONNECTED, S.DEGRADED),
    S.ERROR: (S.CONNECTING, S.ERROR),
    S.DISCONNECTING: (S.CONNECTING, S.CONNECTED, S.DISCONNECTING),
}


@dataclass
class Desk:
    """A registry of real parts, and what it stands on."""

    registry: ServerRegistry
    store: SqlStore
    journal: Journal
    clock: FakeClock
    again: Any
    """Makes another registry on the same store."""

    async def added(self, name: str = "alpha", **changes: Any) -> Server:
        draft = ServerDraft(name, "STDIO", {"command": "prog", "env": {"TOKEN": "s3cr3t-value"}})
        return await self.registry.register(replace(draft, **changes), ADMIN)

    def walked(self, server: Server, *statuses: ServerStatus) -> Server:
        for status in statuses:
            moved = self.registry.move(server.id, status, f"because of {status}")
            assert moved is not None
            server = moved
        return server

    async def stored(self) -> Server:
        await self.journal.settle()
        (server,) = await self.store.load_servers()
        return server


@pytest.fixture
async def desk(sqlite: SqlStore, clock: FakeClock, tmp_path: Path) -> AsyncIterator[Desk]:
    journal = Journal(sqlite, on_audit_dropped=lambda count: None)
    journal.start()
    cipher = AesCipher(load_key_ring(None, tmp_path))
    policy = Admission(
        stdio="any",
        profiles=Profiles({}),
        variables=Variables((), {}),
        outbound=Outbound(allowed_networks=(), on_loopback=True, allow_insecure_http=False),
    )

    def make(max_servers: int = 3) -> ServerRegistry:
        return ServerRegistry(
            store=sqlite,
            cipher=cipher,
            policy=policy,
            clock=clock,
            journal=journal,
            max_servers=max_servers,
        )

    yield Desk(make(), sqlite, journal, clock, make)
    await journal.close()


# The state machine


@pytest.mark.parametrize(("before", "after"), list(itertools.product(S, S)), ids=str)
async def test_a_status_moves_only_where_the_machine_leads(
    desk: Desk, before: ServerStatus, after: ServerStatus
) -> None:
    """R-14: every pair; an illegal move raises, and changes and stores nothing."""
    server = desk.walked(await desk.added(), *WAY_TO[before])
    if (before, after) in LEGAL:
        moved = desk.registry.move(server.id, after, "why")
        assert moved == desk.registry.get(server.id)
        assert moved is not None
        assert (moved.status, moved.error_message) == (after, "why")
        stored = await desk.stored()
        assert (stored.status, stored.error_message) == (after, "why")
        return
    with pytest.raises(IllegalMove, match=f"alpha: {before} → {after}"):
        desk.registry.move(server.id, after)
    assert desk.registry.get(server.id) == server
    assert (await desk.stored()).status is before


def test_the_machine_has_a_row_for_every_status_and_no_other_move() -> None:
    """R-14"""
    assert {(before, after) for before, row in MOVES.items() for after in row} == LEGAL
    assert set(MOVES) == set(S)


async def test_every_move_leaves_its_row_in_the_history(desk: Desk) -> None:
    """R-14: connecting leaves none the first time, and RECONNECT after an error."""
    server = await desk.added()
    way = [S.CONNECTING, S.CONNECTED, S.DEGRADED, S.CONNECTED, S.ERROR, S.CONNECTING, S.ERROR]
    way += [S.DISCONNECTED, S.CONNECTING, S.CONNECTED, S.DISCONNECTING, S.DISCONNECTED]
    for status in way:
        desk.clock.advance(1)
        desk.walked(server, status)
    await desk.journal.settle()
    history = [record.event for record in reversed(await desk.store.history(server.id))]
    assert history == [
        *(HistoryEvent.CONNECTED, HistoryEvent.DEGRADED, HistoryEvent.CONNECTED, HistoryEvent.ERROR),
        *(HistoryEvent.RECONNECT, HistoryEvent.ERROR, HistoryEvent.DISCONNECTED),
        *(HistoryEvent.CONNECTED, HistoryEvent.DISCONNECTED),
    ]


async def test_when_it_connected_is_when_the_connection_was_made(desk: Desk) -> None:
    """R-11: coming back from DEGRADED, or from a drain, is the same connection."""
    server = await desk.added()
    desk.clock.advance(5)
    connected = desk.walked(server, S.CONNECTING, S.CONNECTED)
    assert connected.connected_at == desk.clock.now()
    desk.clock.advance(5)
    assert desk.walked(server, S.DEGRADED, S.CONNECTED).connected_at == connected.connected_at
    assert desk.walked(server, S.DISCONNECTING, S.CONNECTED).connected_at == connected.connected_at
    again = desk.walked(server, S.ERROR, S.CONNECTING, S.CONNECTED)
    assert again.connected_at == desk.clock.now()
    assert (await desk.stored()).connected_at == desk.clock.now()


async def test_a_server_that_is_gone_moves_nowhere(desk: Desk) -> None:
    """R-07: a late report about it does nothing."""
    server = await desk.added()
    await desk.registry.remove(server, ADMIN)
    assert desk.registry.move(server.id, S.CONNECTING) is None
    desk.registry.say(server.id, "late")
    desk.registry.note_era(server.id, Era.MODERN)
    desk.registry.note_tool_count(server.id, 3)
    desk.registry.note_checks([server.id])
    await desk.journal.settle()
    assert (desk.registry.all(), await desk.store.load_servers()) == ([], [])


async def test_after_a_restart_nothing_is_connected(desk: Desk) -> None:
    """R-03, R-14: and what was wanted is still wanted."""
    first, second = await desk.added("first"), await desk.added("second", auto_connect=False)
    desk.walked(first, S.CONNECTING, S.CONNECTED)
    await desk.journal.settle()
    again = desk.again()
    await again.load()
    assert [(it.name, it.status, it.wanted) for it in again.all()] == [
        ("first", S.DISCONNECTED, True),
        ("second", S.DISCONNECTED, False),
    ]
    assert {it.status for it in await desk.store.load_servers()} == {S.DISCONNECTED}
    assert again.get(second.id).id == second.id
    moved = again.move(first.id, S.CONNECTING)
    assert moved is not None


# What is observed


async def test_what_is_observed_is_stored_once(desk: Desk) -> None:
    """R-17, R-32"""
    server = await desk.added()
    desk.clock.advance(7)
    desk.registry.note_era(server.id, Era.MODERN)
    desk.registry.note_tool_count(server.id, 15)
    desk.registry.note_checks([server.id, "unknown"])
    stored = await desk.stored()
    assert (stored.era, stored.tool_count, stored.last_health_check) == (Era.MODERN, 15, desk.clock.now())
    assert desk.registry.get("alpha").last_health_check == desk.clock.now()


async def test_servers_are_counted_by_status(desk: Desk) -> None:
    """R-33: each status is there, if only with 0."""
    desk.walked(await desk.added("a"), S.CONNECTING, S.ERROR)
    await desk.added("b")
    assert desk.registry.counts() == {**dict.fromkeys(S, 0), S.ERROR: 1, S.DISCONNECTED: 1}


# Registering


@pytest.mark.parametrize("name", ["a", "z9", "a-b_c", "a" * 255])
async def test_a_good_name_is_taken(desk: Desk, name: str) -> None:
    """R-01"""
    assert (await desk.added(name)).name == name
    assert desk.registry.get(name) is desk.registry.named(name)


@pytest.mark.parametrize(
    "name", ["", "A", "1a", "-a", "_a", "a.b", "a b", "a\n", "ä", "a/b", "a" * 256, "ａ"]
)
async def test_a_bad_name_is_refused_and_leaves_nothing(desk: Desk, name: str) -> None:
    """R-02: a line break at its end too."""
    with pytest.raises(ValidationError) as refused:
        await desk.added(name)
    assert {fault.loc for fault in refused.value.faults} == {("body", "name")}
    assert (desk.registry.all(), await desk.store.load_servers()) == ([], [])


async def test_a_description_has_its_length(desk: Desk) -> None:
    """R-01"""
    await desk.added("a", description="x" * 1000)
    with pytest.raises(ValidationError) as refused:
        await desk.added("b", description="x" * 1001)
    assert refused.value.faults[0].loc == ("body", "description")


async def test_every_fault_of_a_registration_is_said_at_once(desk: Desk) -> None:
    """R-02"""
    with pytest.raises(ValidationError) as refused:
        await desk.added("A" * 300, description="x" * 2000)
    assert [fault.loc[1] for fault in refused.value.faults] == ["name", "name", "description"]


async def test_a_taken_name_is_refused_and_free_again_when_it_is_removed(desk: Desk) -> None:
    """R-02, R-07"""
    server = await desk.added()
    with pytest.raises(ServerAlreadyExists, match="Server already exists: alpha"):
        await desk.added()
    await desk.registry.remove(server, ADMIN)
    with pytest.raises(ServerNotFound):
        desk.registry.get("alpha")
    assert (await desk.added()).id != server.id


async def test_one_server_too_many_is_refused_with_limit_and_setting(desk: Desk) -> None:
    """R-09: at the limit it is taken, above it not; removing one makes room."""
    servers = [await desk.added(name) for name in ("a", "b", "c")]
    with pytest.raises(ValidationError) as refused:
        await desk.added("d")
    assert "limit is 3" in refused.value.faults[0].msg
    assert "MCP_AGGREGATOR_MAX_SERVERS" in refused.value.faults[0].msg
    assert len(await desk.store.load_servers()) == 3
    await desk.registry.remove(servers[0], ADMIN)
    assert (await desk.added("d")).name == "d"


async def test_a_configuration_is_sealed_and_opens_in_its_own_row_alone(desk: Desk) -> None:
    """R-48"""
    first, second = await desk.added("first"), await desk.added("second")
    stored = await desk.store.load_servers()
    assert "s3cr3t" not in repr(stored)
    assert "prog" not in repr(stored)
    assert desk.registry.spec(first) == StdioSpec("prog", (), {"TOKEN": "s3cr3t-value"})
    with pytest.raises(SealBroken):
        desk.registry.spec(replace(first, sealed_config=second.sealed_config))
    assert desk.registry.masked_config(first)["env"] == {"TOKEN": MASK}


# Changing


async def changed(desk: Desk, **changes: object) -> Server:
    return await desk.registry.change(desk.registry.get("alpha"), ServerPatch(changes), ADMIN)


async def test_a_change_keeps_what_it_does_not_name(desk: Desk) -> None:
    """R-10"""
    before = await desk.added(description="old")
    desk.clock.advance(60)
    after = await changed(desk, description="new")
    assert after == replace(before, description="new", updated_at=desk.clock.now())
    assert await desk.stored() == after == desk.registry.get("alpha")
    (record,), _ = await desk.store.read_audit(AuditFilter(event="server.updated"))
    assert record.details["changed"] == ["description"]


async def test_a_change_that_changes_nothing_leaves_no_trace(desk: Desk) -> None:
    """R-10: also a configuration that comes back as it was shown."""
    before = await desk.added(description="same")
    shown = desk.registry.masked_config(before)
    assert await changed(desk, description="same", connection_config=shown) is before
    assert (await desk.store.read_audit(AuditFilter(event="server.updated")))[1] == 0


async def test_a_new_way_to_the_server_is_sealed_anew_and_its_era_asked_again(desk: Desk) -> None:
    """R-10, R-48: the mask in a change stands for the secret that was there."""
    before = await desk.added()
    desk.registry.note_era(before.id, Era.MODERN)
    config = {"command": "other", "env": {"TOKEN": MASK}}
    after = await changed(desk, connection_config=config)
    assert after.sealed_config != before.sealed_config
    assert after.era is None
    assert desk.registry.spec(after) == StdioSpec("other", (), {"TOKEN": "s3cr3t-value"})
    assert desk.registry.spec(await desk.stored()) == desk.registry.spec(after)
    assert (after.transport, after.name) == (Transport.STDIO, "alpha")


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"description": "x" * 1001}, "description"),
        ({"description": 7}, "description"),
        ({"health_check_url": 7}, "health_check_url"),
        ({"health_check_url": "http://10.0.0.1/health"}, "health_check_url"),
        ({"connection_config": []}, "connection_config"),
        ({"connection_config": {}}, "connection_config"),
        ({"description": "good", "connection_config": {"command": ""}}, "connection_config"),
    ],
)
async def test_a_bad_change_changes_nothing(desk: Desk, change: dict[str, object], field: str) -> None:
    """R-02, R-10"""
    before = await desk.added()
    with pytest.raises(ValidationError) as refused:
        await changed(desk, **change)
    assert {fault.loc[:2] for fault in refused.value.faults} == {("body", field)}
    assert await desk.stored() == before == desk.registry.get("alpha")


async def test_whether_it_is_wanted_outlives_the_process(desk: Desk) -> None:
    """R-03, R-51"""
    server = await desk.added()
    await desk.registry.want(server, False, "server.disconnected", ADMIN)
    assert not desk.registry.get("alpha").wanted
    assert not (await desk.stored()).wanted
    (record,), _ = await desk.store.read_audit(AuditFilter(event="server.disconnected"))
    assert (record.server_name, record.actor, record.ip_address) == ("alpha", "ann", "192.0.2.1")
