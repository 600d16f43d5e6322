"""Proves the order of the gateway's verbs where it matters: drains, removals, restarts, what is published."""

import asyncio
import logging
import time

import pytest

from tests.core.clock import FakeClock
from tests.core.conftest import ADMIN, House, OpenHouse, until
from tests.core.peer import Peer, definition
from trunkline.core.gateway import PRUNE_SECONDS
from trunkline.errors import Lost, ServerNotFound, ServerUnavailable
from trunkline.model import Call, Event, HistoryEvent, ServerPatch, ServerStatus
from trunkline.ports import AuditFilter

S = ServerStatus


async def under_way(house: House, peer: Peer, tool: str = "slow") -> asyncio.Task[bytes]:
    """A call that its server has and never answers."""
    peer.has(definition(tool))
    peer.say(calls={tool: ["mute"]})
    await house.connected("alpha", peer.config)
    call = asyncio.create_task(house.call(f"alpha.{tool}"))
    await until(lambda: peer.asked(tool) == 1)
    return call


async def test_a_stop_refuses_new_calls_and_waits_for_the_others(open_house: OpenHouse, peer: Peer) -> None:
    """R-06: within reason, and says how many were cut off."""
    house = await open_house(shutdown_timeout=1)
    peer.has(definition("slow"))
    done = {"result": {"content": [{"type": "text", "text": "done"}]}}
    peer.say(calls={"slow": [{"wait": 0.4, "then": done}]})
    await house.connected("alpha", peer.config)
    call = asyncio.create_task(house.call("alpha.slow"))
    await until(lambda: peer.asked("slow") == 1)
    stopping = asyncio.create_task(house.gateway.drain())
    await until(lambda: house.gateway.draining)
    with pytest.raises(ServerUnavailable, match="shutting down"):
        await house.call("alpha.slow")
    await asyncio.wait_for(stopping, 5)
    assert b"done" in await asyncio.wait_for(call, 1)
    assert peer.asked("slow") == 1


async def test_a_stop_does_not_wait_for_ever(
    open_house: OpenHouse, peer: Peer, caplog: pytest.LogCaptureFixture
) -> None:
    """R-06"""
    house = await open_house(shutdown_timeout=1)
    call = await under_way(house, peer)
    started = time.monotonic()
    with caplog.at_level(logging.WARNING):
        await house.gateway.drain()
    assert 0.9 < time.monotonic() - started < 5
    assert "1 calls are cut off" in caplog.text
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)


async def test_what_happens_to_a_server_is_published_in_order(house: House, peer: Peer) -> None:
    """R-14: an event says which server is dirty, and every status it moves to."""
    heard: list[Event] = []
    house.gateway.events.subscribe(heard.append)
    peer.has(definition("tool"))
    server = await house.connected("alpha", peer.config)
    await house.gateway.disconnect("alpha", force=False, by=ADMIN)
    await house.gateway.remove("alpha", ADMIN)
    assert {event.server_id for event in heard} == {server.id}
    assert [(event.kind.removeprefix("server."), event.status) for event in heard] == [
        ("registered", S.DISCONNECTED),
        ("status_changed", S.CONNECTING),
        ("tools_listed", S.CONNECTING),
        ("status_changed", S.CONNECTED),
        ("status_changed", S.DISCONNECTED),
        ("removed", None),
    ]


async def test_a_disconnected_server_stays_away_though_its_connection_was_lost(
    house: House, peer: Peer
) -> None:
    """R-06, R-15: a loss in the drain ends the drain and revives nothing."""
    call = await under_way(house, peer)
    found = await house.gateway.disconnect("alpha", force=False, by=ADMIN)
    assert (found.status, found.pending_requests) == (S.DISCONNECTING, 1)
    house.gateway._sessions.fail(found.server_id, Lost("killed"))
    with pytest.raises(ServerUnavailable):
        await asyncio.wait_for(call, 5)
    await house.reaches("alpha", S.DISCONNECTED)
    assert house.gateway._sessions.get(found.server_id) is None
    history = [record.event for record in await house.gateway.history("alpha")]
    assert history == [HistoryEvent.DISCONNECTED, HistoryEvent.CONNECTED]


async def test_disconnecting_again_in_the_drain_changes_nothing_and_force_ends_it(
    house: House, peer: Peer
) -> None:
    """R-06"""
    call = await under_way(house, peer)
    first = await house.gateway.disconnect("alpha", force=False, by=ADMIN)
    assert await house.gateway.disconnect("alpha", force=False, by=ADMIN) == first
    ended = await house.gateway.disconnect("alpha", force=True, by=ADMIN)
    assert (ended.status, ended.pending_requests) == (S.DISCONNECTED, 0)
    with pytest.raises(ServerUnavailable):
        await asyncio.wait_for(call, 1)


async def test_verbs_that_meet_end_in_one_order(house: House, peer: Peer) -> None:
    """R-05, R-06: whatever the interleaving, the last wish is what is stored and what is so."""
    peer.has(definition("tool"))
    await house.connected("alpha", peer.config)
    for turn in range(6):
        verbs = [
            house.gateway.connect("alpha", ADMIN),
            house.gateway.disconnect("alpha", force=True, by=ADMIN),
            house.gateway.connect("alpha", ADMIN),
            house.gateway.disconnect("alpha", force=False, by=ADMIN),
        ]
        await asyncio.wait_for(asyncio.gather(*verbs[: 3 + turn % 2], return_exceptions=False), 20)
        for verb in verbs[3 + turn % 2 :]:
            verb.close()
        wanted = turn % 2 == 0
        await house.reaches("alpha", S.CONNECTED if wanted else S.DISCONNECTED)
        assert house.server("alpha").wanted is wanted
        (stored,) = await house.gateway._store.load_servers()
        assert stored.wanted is wanted


async def test_a_removal_wins_over_whoever_waited_for_it(house: House, peer: Peer) -> None:
    """R-07: nothing of the server comes back."""
    await house.connected("alpha", peer.config)
    ends = await asyncio.gather(
        house.gateway.remove("alpha", ADMIN),
        house.gateway.connect("alpha", ADMIN),
        house.gateway.change("alpha", ServerPatch({"description": "late"}), ADMIN),
        house.gateway.remove("alpha", ADMIN),
        return_exceptions=True,
    )
    assert ends[0] is None
    assert [type(end) for end in ends[1:]] == [ServerNotFound] * 3
    assert house.gateway.list_servers() == ([], 0)
    assert await house.gateway._store.load_servers() == []


async def test_a_new_configuration_reconnects_and_a_new_description_does_not(
    house: House, peer: Peer
) -> None:
    """R-10"""
    before = await house.connected("alpha", peer.config)
    connection = house.gateway._sessions.get(before.id)
    await house.gateway.change("alpha", ServerPatch({"description": "new"}), ADMIN)
    assert house.gateway._sessions.get(before.id) is connection
    config = {**peer.config, "env": {"NEW": "1"}}
    after = await house.gateway.change("alpha", ServerPatch({"connection_config": config}), ADMIN)
    assert after.status is S.CONNECTING
    await house.reaches("alpha", S.CONNECTED)
    assert house.gateway._sessions.get(before.id) is not connection


async def test_every_call_is_recorded_with_how_it_ended(house: House, peer: Peer) -> None:
    """R-51"""
    peer.has(definition("tool"), definition("die"))
    peer.say(calls={"die": ["die"]})
    server = await house.connected("alpha", peer.config)
    await house.call("alpha.tool")
    for name in ("alpha.die", "alpha.none"):
        with pytest.raises(Exception, match="alpha"):
            await house.gateway.call(Call(ADMIN, name, b'{"password":"s3cr3t"}', request_id="r-1"))
    records, total = await house.gateway.read_audit(AuditFilter(event="tool.called"))
    assert total == 3
    outcomes = {record.details["tool"]: record.details["outcome"] for record in records}
    assert outcomes == {"alpha.tool": "ok", "alpha.die": "SERVER_UNAVAILABLE", "alpha.none": "TOOL_NOT_FOUND"}
    assert {(it.actor, it.server_id, it.ip_address) for it in records} == {("ann", server.id, "192.0.2.1")}
    assert "s3cr3t" not in repr(records)


async def test_calls_are_not_recorded_where_the_operator_says_so(open_house: OpenHouse, peer: Peer) -> None:
    """R-51, R-53"""
    house = await open_house(audit_calls=False)
    peer.has(definition("tool"))
    await house.connected("alpha", peer.config)
    await house.call("alpha.tool")
    assert (await house.gateway.read_audit(AuditFilter(event="tool.called")))[1] == 0


async def test_a_database_that_is_away_is_said_and_calls_go_on(house: House, peer: Peer) -> None:
    """R-33"""
    peer.has(definition("tool"))
    await house.connected("alpha", peer.config)
    assert (await house.gateway.health()).status == "healthy"
    await house.gateway._store.close()
    report = await house.gateway.health()
    assert (report.status, report.checks["database"]) == ("degraded", "failed")
    assert any("database" in issue for issue in report.issues)
    assert b"tool was called" in await house.call("alpha.tool")
    await house.gateway._store.open()
    assert (await house.gateway.health()).status == "healthy"


async def test_old_audit_records_go_when_their_days_are_over(open_house: OpenHouse, clock: FakeClock) -> None:
    """R-51: after the days the operator set, and not before."""
    house = await open_house(clock=clock, audit_days=2)
    await house.register("alpha", {"command": "prog"}, auto_connect=False)

    async def kept() -> int:
        return (await house.gateway.read_audit(AuditFilter(event="server.registered")))[1]

    for hours, expected in ((24, 1), (23, 1), (7, 0)):
        rounds = clock.pauses.count(PRUNE_SECONDS)
        clock.advance(hours * 3600)
        await until(lambda rounds=rounds: clock.pauses.count(PRUNE_SECONDS) > rounds)  # type: ignore[misc]
        assert await kept() == expected


async def test_a_disconnect_does_not_undo_a_change_that_was_under_way(open_house: OpenHouse) -> None:
    """R-10: what was answered with 200 is still there after a restart."""
    house = await open_house()
    await house.register("alpha", {"command": "prog"}, auto_connect=False, description="old")
    changing = asyncio.create_task(house.gateway.change("alpha", ServerPatch({"description": "new"}), ADMIN))
    await asyncio.sleep(0)
    await asyncio.gather(changing, house.gateway.disconnect("alpha", force=False, by=ADMIN))
    assert house.server("alpha").description == "new"
    await open_house.close()
    assert (await open_house()).server("alpha").description == "new"


async def test_connecting_in_a_drain_whose_connection_is_lost_connects(house: House, peer: Peer) -> None:
    """R-05, R-06: the last wish was to connect."""
    peer.has(definition("slow"))
    peer.say(calls={"slow": ["mute"]})
    server = await house.connected("alpha", peer.config)
    call = asyncio.create_task(house.call("alpha.slow"))
    await until(lambda: peer.asked("slow") == 1)
    await house.gateway.disconnect("alpha", force=False, by=ADMIN)
    connecting = asyncio.create_task(house.gateway.connect("alpha", ADMIN))
    await asyncio.sleep(0)
    house.gateway._sessions.fail(server.id, Lost("killed"))
    await connecting
    await asyncio.gather(call, return_exceptions=True)
    await house.reaches("alpha", S.CONNECTED)
