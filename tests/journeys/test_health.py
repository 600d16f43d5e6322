"""Health as the operator sees it: by ping, by address, degraded, down, and back."""

import asyncio
import json
import os
import signal
from pathlib import Path

import pytest

from tests.journeys.conftest import API, Open, eventually
from tests.servers.peers import scripted, single_minded
from tests.servers.running import Upstreams


async def test_an_ill_address_degrades_then_downs_then_heals(
    open_door: Open, upstreams: Upstreams, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-31, R-32: 5xx counts; DEGRADED still executes, with a warning (R-28)."""
    ill = tmp_path / "ill"
    monkeypatch.setenv("SCRIPT", json.dumps({"ill": str(ill)}))
    port = await upstreams.start("scripted_mcp.py", "http")
    door = await open_door(health_interval=1.0)
    address = f"http://127.0.0.1:{port}"
    await door.connected(
        "alpha", "HTTP", {"base_url": f"{address}/mcp"}, health_check_url=f"{address}/health"
    )
    checked = await eventually(lambda: door.server("alpha"), lambda it: it["last_health_check"] is not None)
    assert checked["status"] == "CONNECTED"
    ill.touch()
    await door.until("alpha", "DEGRADED")
    status, answer = await door.call("alpha.echo", text="still serves")
    assert status == 200
    assert "degraded" in answer["metadata"]["warning"]
    status, refused = await door.ask("POST", f"{API}/servers/alpha/tools/refresh")
    assert (status, refused["error_code"]) == (503, "SERVER_UNAVAILABLE")
    assert refused["server"]["name"] == "alpha"
    _, health = await door.ask("GET", f"{API}/servers/alpha/health")
    assert health["consecutive_failures"] >= 2
    assert "500" in health["last_error"]
    await door.until("alpha", "ERROR", "CONNECTING")
    ill.unlink()
    await door.until("alpha", "CONNECTED")
    healed = await eventually(
        lambda: door.ask("GET", f"{API}/servers/alpha/health"), lambda it: it[1]["consecutive_failures"] == 0
    )
    assert healed[0] == 200
    failures = await door.metric('mcp_aggregator_health_check_failures_total{server="alpha"}')
    assert failures is not None
    assert failures >= 3


async def test_an_address_that_stays_ill_cuts_the_connection_once(
    open_door: Open, upstreams: Upstreams, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-31, R-32: it comes back DEGRADED, takes calls, and heals by one check; a dead session is found."""
    ill = tmp_path / "ill"
    monkeypatch.setenv("SCRIPT", json.dumps({"ill": str(ill)}))
    port = await upstreams.start("scripted_mcp.py", "http")
    door = await open_door(health_interval=0.3)
    await door.connected("alpha", "STDIO", scripted(), health_check_url=f"http://127.0.0.1:{port}/health")

    async def failures() -> int:
        return int((await door.ask("GET", f"{API}/servers/alpha/health"))[1]["consecutive_failures"])

    async def errors() -> int:
        history = (await door.ask("GET", f"{API}/servers/alpha/history"))[1]["history"]
        return [record["event"] for record in history].count("ERROR")

    ill.touch()
    await eventually(failures, lambda count: count > 3)
    pid = int(await door.text("alpha.pid"))
    seen = await failures()
    status, answer = await door.call("alpha.slow", seconds=1.5)
    assert (status, "degraded" in answer["metadata"]["warning"]) == (200, True)
    assert await failures() >= seen + 3
    assert (await door.server("alpha"))["status"] == "DEGRADED"
    assert (await errors(), int(await door.text("alpha.pid"))) == (1, pid)
    os.kill(pid, signal.SIGSTOP)
    await eventually(errors, lambda count: count == 2)
    await door.until("alpha", "DEGRADED")
    assert int(await door.text("alpha.pid")) != pid
    ill.unlink()
    await door.until("alpha", "CONNECTED")
    assert await failures() == 0


async def test_a_frozen_child_is_found_out_and_replaced(open_door: Open) -> None:
    """R-31, R-32: a process that lives and says nothing."""
    door = await open_door(health_interval=0.3, health_timeout=0.3)
    await door.connected("alpha", "STDIO", scripted())
    pid = int(await door.text("alpha.pid"))
    os.kill(pid, signal.SIGSTOP)
    await door.until("alpha", "DEGRADED")
    await door.until("alpha", "ERROR", "CONNECTING")
    await door.until("alpha", "CONNECTED")
    assert int(await door.text("alpha.pid")) != pid


async def test_a_busy_child_is_not_killed_by_its_probe(open_door: Open) -> None:
    """R-31, R-32: a server that works on a call, one at a time, and answers no ping meanwhile."""
    door = await open_door(health_interval=0.2, health_timeout=0.2)
    await door.connected("busy", "STDIO", single_minded("3"))
    working = asyncio.create_task(door.text("busy.work"))
    await door.in_flight("busy", 1)
    seen = set()
    while not working.done():
        seen.add((await door.server("busy"))["status"])
        await asyncio.wait({working}, timeout=0.1)
    assert await working == "worked"
    assert seen == {"CONNECTED"}


async def test_state_and_health_count_what_there_is(open_door: Open) -> None:
    """R-33."""
    door = await open_door()
    await door.connected("alpha", "STDIO", scripted())
    await door.register("broken", "STDIO", {"command": "no-such-program-anywhere"})
    await door.register("asleep", "STDIO", scripted(), auto_connect=False)
    await door.until("broken", "ERROR")
    _, state = await door.ask("GET", f"{API}/state")
    assert (state["total_servers"], state["connected_servers"], state["error_servers"]) == (3, 1, 1)
    assert (state["disconnected_servers"], state["connecting_servers"]) == (1, 0)
    assert state["total_tools"] == state["unclassified_tools"] == 15
    assert state["classified_tools"] == 0
    assert state["health_check_interval_seconds"] == 30
    assert state["uptime_seconds"] >= 0
    assert state["last_sync"].endswith("Z")
    status, health = await door.ask("GET", f"{API}/health")
    assert (status, health["status"]) == (200, "degraded")
    assert health["checks"]["database"] == "ok"
    assert health["servers"] == {"total": 3, "connected": 1, "error": 1}
    assert health["issues"] == ["1 server in error state"]


@pytest.mark.parametrize(("broken", "status"), [(1, "healthy"), (2, "degraded")])
async def test_health_is_degraded_below_the_share_at_which_the_alert_warns(
    open_door: Open, broken: int, status: str
) -> None:
    """R-33: four of five is the contract's example of healthy. One that is not wanted does not count."""
    door = await open_door()
    names = ["one", "two", "three", "four", "five"]
    for name in names:
        bad = name in names[:broken]
        await door.register(name, "STDIO", {"command": "no-such-program-anywhere"} if bad else scripted())
    await door.register("asleep", "STDIO", scripted(), auto_connect=False)
    for name in names:
        await door.until(name, "ERROR" if name in names[:broken] else "CONNECTED")
    _, health = await door.ask("GET", f"{API}/health")
    assert health["status"] == status
    assert health["checks"] == {"database": "ok", "sessions": "ok" if status == "healthy" else "degraded"}
    assert health["servers"] == {"total": 6, "connected": 5 - broken, "error": broken}
    assert health["issues"] == [f"{broken} server{'s' * (broken > 1)} in error state"]
