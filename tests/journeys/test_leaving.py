"""Disconnecting and removing while calls run, while somebody thinks better of it, and without a database."""

import asyncio
import time

from tests.journeys.conftest import API, Door, Open
from tests.servers.peers import scripted


async def test_a_removal_lets_calls_end_and_takes_no_new_ones(door: Door) -> None:
    """R-06, R-07."""
    await door.connected("alpha", "STDIO", scripted())
    running = asyncio.create_task(door.call("alpha.slow", seconds=1.5))
    await door.in_flight("alpha", 1)
    removing = [asyncio.create_task(door.ask("DELETE", f"{API}/servers/alpha")) for _ in range(2)]
    await door.until("alpha", "DISCONNECTING", seconds=1)
    status, refused = await door.call("alpha.echo", text="x")
    assert (status, refused["error_code"]) == (503, "SERVER_UNAVAILABLE")
    assert (await running)[0] == 200
    assert sorted([(await answer)[0] for answer in removing]) == [204, 404]
    assert (await door.ask("GET", "/api/v1/tools"))[1]["total"] == 0


async def test_a_removal_waits_no_longer_than_a_drain(open_door: Open) -> None:
    """R-06, R-07: the stragglers get 503."""
    door = await open_door(drain_timeout=0.3)
    await door.connected("alpha", "STDIO", scripted())
    running = asyncio.create_task(door.call("alpha.slow", seconds=20))
    await door.in_flight("alpha", 1)
    assert (await door.ask("DELETE", f"{API}/servers/alpha"))[0] == 204
    status, refused = await asyncio.wait_for(running, 5)
    assert (status, refused["error_code"]) == (503, "SERVER_UNAVAILABLE")


async def test_a_removal_without_a_database_leaves_the_server_as_it_was(open_door: Open) -> None:
    """R-07: refused, and nothing half done: the same process serves on."""
    door = await open_door()
    await door.connected("alpha", "STDIO", scripted())
    before = await door.text("alpha.pid")
    async with open_door.without("audit_log"):
        status, refused = await door.ask("DELETE", f"{API}/servers/alpha")
        assert (status, refused["error_code"]) == (503, "STORAGE_UNAVAILABLE")
        assert (await door.server("alpha"))["status"] == "CONNECTED"
        assert await door.text("alpha.pid") == before
    assert (await door.ask("DELETE", f"{API}/servers/alpha"))[0] == 204


async def test_the_end_of_an_old_drain_cuts_off_no_newer_one(open_door: Open) -> None:
    """R-06: disconnect, connect, disconnect again: each drain has its whole time."""
    door = await open_door(drain_timeout=2)
    await door.connected("alpha", "STDIO", scripted())
    running = asyncio.create_task(door.call("alpha.slow", seconds=3))
    await door.in_flight("alpha", 1)
    await door.ask("POST", f"{API}/servers/alpha/disconnect")
    await asyncio.sleep(1.5)
    _, answer = await door.ask("POST", f"{API}/servers/alpha/connect")
    assert answer["status"] == "CONNECTED"
    started = time.monotonic()
    _, answer = await door.ask("POST", f"{API}/servers/alpha/disconnect")
    assert answer["status"] == "DISCONNECTING"
    assert (await running)[0] == 200
    assert time.monotonic() - started < 2
    await door.until("alpha", "DISCONNECTED")
