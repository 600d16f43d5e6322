"""Proves where a call goes, when it is sent again, and what its caller is told when it fails."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from tests.core.conftest import ADMIN, House, OpenHouse, until
from tests.core.peer import SCRIPT, Peer, definition
from tests.servers.running import Upstreams
from trunkline.errors import (
    CallTimeout,
    ExecutionFailed,
    ServerNotFound,
    ServerUnavailable,
    SessionNotFound,
    ToolAmbiguous,
    ToolNotFound,
    TrunklineError,
)
from trunkline.model import ServerStatus

READ_ONLY = {"readOnlyHint": True}
IDEMPOTENT = {"idempotentHint": True}
CHANGES = {"readOnlyHint": False, "idempotentHint": False}
DONE = {"result": {"content": [{"type": "text", "text": "done"}]}}


@pytest.fixture
async def upstreams() -> AsyncIterator[Upstreams]:
    servers = Upstreams()
    yield servers
    await servers.close()


async def refused(house: House, name: str, kind: type[TrunklineError], server_id: str | None = None) -> Any:
    with pytest.raises(kind) as error:
        await house.call(name, server_id)
    assert type(error.value) is kind
    return error.value


def ended(house: House, outcome: str) -> int:
    """How many calls to alpha ended so."""
    series = f'trunkline_calls_total{{outcome="{outcome}",server="alpha"}}'
    lines = house.gateway.metrics_text().decode().splitlines()
    return next((int(float(line.split()[-1])) for line in lines if line.startswith(series)), 0)


# Sent again, or not


@pytest.mark.parametrize("hints", [READ_ONLY, IDEMPOTENT], ids=["read-only", "idempotent"])
async def test_a_harmless_tool_is_asked_again_when_its_server_dies(
    house: House, peer: Peer, hints: dict[str, object]
) -> None:
    """R-29: it ran twice, and the caller notices nothing."""
    peer.has(definition("tool", annotations=hints))
    peer.say(calls={"tool": ["die", DONE]})
    await house.connected("alpha", peer.config)
    assert b"done" in await house.call("alpha.tool")
    assert peer.asked("tool") == 2
    assert (ended(house, "ok"), ended(house, "lost")) == (1, 0)


@pytest.mark.parametrize("hints", [CHANGES, {}, {"readOnlyHint": "true"}, None], ids=str)
async def test_a_tool_that_may_change_something_is_never_asked_twice(
    house: House, peer: Peer, hints: dict[str, object] | None
) -> None:
    """R-29: also where the hint is missing or no boolean; the caller is told that the outcome is unknown."""
    peer.has(definition("tool", annotations=hints))
    peer.say(calls={"tool": ["die", DONE]})
    await house.connected("alpha", peer.config)
    error = await refused(house, "alpha.tool", ServerUnavailable)
    assert error.context["outcome"] == "unknown"
    assert "outcome unknown" in error.detail
    assert error.extra["server"]["name"] == "alpha"
    await house.reaches("alpha", ServerStatus.CONNECTED)
    assert peer.asked("tool") == 1
    assert ended(house, "lost") == 1


async def test_a_harmless_tool_is_asked_again_only_once(house: House, peer: Peer) -> None:
    """R-29"""
    peer.has(definition("tool", annotations=READ_ONLY))
    peer.say(calls={"tool": ["die", "die", DONE]})
    await house.connected("alpha", peer.config)
    error = await refused(house, "alpha.tool", ServerUnavailable)
    assert error.context["outcome"] == "unknown"
    assert peer.asked("tool") == 2


@pytest.mark.parametrize("hints", [READ_ONLY, CHANGES], ids=["read-only", "changing"])
async def test_a_call_that_timed_out_is_not_sent_again(
    open_house: OpenHouse, peer: Peer, hints: dict[str, object]
) -> None:
    """R-29: the server has it and may still be at work, so even a reader is not asked twice."""
    house = await open_house(request_timeout=0.3)
    peer.has(definition("tool", annotations=hints))
    peer.say(calls={"tool": ["mute", DONE]})
    await house.connected("alpha", peer.config)
    error = await refused(house, "alpha.tool", CallTimeout)
    assert error.context["outcome"] == "unknown"
    assert peer.asked("tool") == 1
    assert ended(house, "timeout") == 1


async def test_the_servers_own_error_is_final(house: House, peer: Peer) -> None:
    """R-29"""
    peer.has(definition("tool", annotations=READ_ONLY))
    fault = {"code": -32099, "message": "out of paper", "data": {"tray": 2}}
    peer.say(calls={"tool": [{"error": fault}, DONE]})
    await house.connected("alpha", peer.config)
    error = await refused(house, "alpha.tool", ExecutionFailed)
    assert (error.context["code"], error.context["message"]) == (-32099, "out of paper")
    assert peer.asked("tool") == 1
    assert ended(house, "rpc_error") == 1


async def test_a_call_that_was_refused_unread_is_sent_again_whatever_it_does(
    house: House, peer: Peer, upstreams: Upstreams
) -> None:
    """R-15, R-29: the server has forgotten the session, so the call certainly did not run."""
    peer.has(definition("tool", annotations=CHANGES))
    peer.say(calls={"tool": ["forget", DONE]})
    port = await upstreams.start(SCRIPT, str(peer.file))
    await house.connected("alpha", {"base_url": f"http://127.0.0.1:{port}/mcp"}, "HTTP")
    assert b"done" in await house.call("alpha.tool")
    assert peer.asked("tool") == 2


async def test_a_call_refused_unread_twice_is_given_up(
    house: House, peer: Peer, upstreams: Upstreams
) -> None:
    """R-15, R-28: and its caller knows that it did not run."""
    peer.has(definition("tool"))
    peer.say(calls={"tool": ["forget"]})
    port = await upstreams.start(SCRIPT, str(peer.file))
    await house.connected("alpha", {"base_url": f"http://127.0.0.1:{port}/mcp"}, "HTTP")
    error = await refused(house, "alpha.tool", ServerUnavailable)
    assert error.context["outcome"] == "not_sent"
    assert peer.asked("tool") == 2


# Which tool


@pytest.fixture
async def crossed(house: House, new_peer: Callable[[str], Peer]) -> House:
    """Two servers whose tools have names that could be mistaken for each other."""
    for name, tools in (("alpha", ["same", "beta.tool", "alpha.own"]), ("beta", ["same", "tool", "only"])):
        peer = new_peer(name)
        peer.has(*(definition(tool) for tool in tools))
        says = {tool: [{"result": {"content": [], "from": f"{name}/{tool}"}}] for tool in tools}
        peer.say(calls=says)
        await house.connected(name, peer.config)
    await until(lambda: house.gateway.list_tools()[1] == 6)
    return house


@pytest.mark.parametrize(
    ("name", "server", "expected"),
    [
        ("alpha.same", None, "alpha/same"),
        ("only", None, "beta/only"),
        ("beta.tool", None, "beta/tool"),
        ("alpha.beta.tool", None, "alpha/beta.tool"),
        ("beta.tool", "alpha", "alpha/beta.tool"),
        ("beta.tool", "beta", "beta/tool"),
        ("tool", "beta", "beta/tool"),
        ("same", "beta", "beta/same"),
        ("alpha.own", None, "alpha/alpha.own"),
        ("alpha.own", "alpha", "alpha/alpha.own"),
        ("alpha.alpha.own", "alpha", "alpha/alpha.own"),
    ],
)
async def test_a_name_leads_to_one_tool(crossed: House, name: str, server: str | None, expected: str) -> None:
    """R-27: the explicit server, then the full name, then the tool's own name."""
    server_id = crossed.server(server).id if server else None
    assert f'"{expected}"'.encode() in await crossed.call(name, server_id)


async def test_a_name_of_several_tools_is_refused_with_all_of_them(crossed: House) -> None:
    """R-27"""
    error = await refused(crossed, "same", ToolAmbiguous)
    assert error.extra["candidates"] == ["alpha.same", "beta.same"]
    with pytest.raises(ToolAmbiguous):
        crossed.gateway.get_tool("same")


@pytest.mark.parametrize(
    ("name", "server"), [("bet.only", None), ("beta.onyl", None), ("only", "alpha"), ("beta.only", "alpha")]
)
async def test_an_unknown_name_is_refused_with_the_nearest(
    crossed: House, name: str, server: str | None
) -> None:
    """R-27: a tool of another server is not found on the one that was named."""
    server_id = crossed.server(server).id if server else None
    error = await refused(crossed, name, ToolNotFound, server_id)
    assert "beta.only" in error.context["nearest"]
    assert "beta.only" in error.detail


async def test_an_unknown_server_is_said_before_anything_else(crossed: House) -> None:
    """R-27"""
    await refused(crossed, "alpha.same", ServerNotFound, "550e8400-e29b-41d4-a716-446655440000")


async def test_a_tool_that_is_just_being_listed_is_waited_for(house: House, peer: Peer) -> None:
    """R-18, R-27: a call right after `list_changed` does not lose the race."""
    peer.has(definition("old"))
    await house.connected("alpha", peer.config)
    fresh = {"wait": 0.5, "then": {"result": {"tools": [definition("old"), definition("new")]}}}
    peer.say(lists={"tools/list": {"": fresh}})
    await until(lambda: not house.gateway._aggregator._listings)
    await house.gateway.refresh("alpha", ADMIN)
    assert b"new was called" in await house.call("alpha.new")
    await refused(house, "alpha.newer", ToolNotFound)


# Servers that cannot take a call


async def test_a_server_that_never_was_connected_refuses_at_once_and_says_why(
    house: House, peer: Peer
) -> None:
    """R-28: with the server's status; nobody waits for what is not coming back."""
    peer.has(definition("tool"))
    await house.connected("alpha", peer.config)
    await house.gateway.disconnect("alpha", force=False, by=ADMIN)
    error = await refused(house, "alpha.tool", ServerUnavailable)
    server = house.server("alpha")
    assert error.extra["server"] == {"id": server.id, "name": "alpha", "status": "DISCONNECTED"}
    assert error.retry_after is not None
    assert peer.asked("tool") == 0
    assert ended(house, "unavailable") == 1


async def test_a_call_waits_for_a_connection_that_is_just_being_made_again(house: House, peer: Peer) -> None:
    """R-15: it had not been sent, so it is queued."""
    peer.has(definition("tool"), definition("die"))
    peer.say(calls={"die": ["die"]})
    await house.connected("alpha", peer.config)
    await refused(house, "alpha.die", ServerUnavailable)
    assert b"tool was called" in await house.call("alpha.tool")
    assert peer.asked("tool") == 1


async def test_a_call_does_not_wait_for_ever_for_a_session(
    house: House, peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-28: a server that does not come back in time."""
    monkeypatch.setattr("trunkline.core.request_router.RETURN_SECONDS", 0.3)
    peer.has(definition("tool"), definition("die"))
    peer.say(calls={"die": ["die"]})
    await house.connected("alpha", peer.config)
    peer.say(start="die")
    await refused(house, "alpha.die", ServerUnavailable)
    with pytest.raises((ServerUnavailable, SessionNotFound)) as error:
        await asyncio.wait_for(house.call("alpha.tool"), 5)
    assert error.value.status == 503
    assert error.value.extra["server"]["name"] == "alpha"  # type: ignore[index]
    assert error.value.retry_after is not None
    assert peer.asked("tool") == 0


async def test_a_frozen_server_costs_a_call_its_time_and_no_more(open_house: OpenHouse, peer: Peer) -> None:
    """R-29: the process lives and says nothing."""
    house = await open_house(request_timeout=0.3)
    pid = peer.file.with_suffix(".pid")
    peer.has(definition("tool"))
    config: dict[str, object] = {
        "command": "/bin/sh",
        "args": ["-c", f'echo $$ > {pid}; exec "$@"', "sh", *_command(peer)],
    }
    await house.connected("alpha", config)
    os.kill(int(pid.read_text()), signal.SIGSTOP)
    try:
        error = await asyncio.wait_for(refused(house, "alpha.tool", CallTimeout), 5)
    finally:
        os.kill(int(pid.read_text()), signal.SIGCONT)
    assert error.context["outcome"] == "unknown"


def _command(peer: Peer) -> list[str]:
    config: dict[str, Any] = peer.config
    return [config["command"], *config["args"]]
