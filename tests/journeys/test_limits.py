"""What a limit keeps out, also when many come at once: servers, tools, connections."""

import asyncio
from functools import partial

import pytest

from tests.journeys.conftest import API, Open, eventually
from tests.servers.peers import scripted


async def test_many_registrations_at_once_do_not_exceed_the_limit(open_door: Open) -> None:
    """R-09."""
    door = await open_door(max_servers=3)

    async def register(number: int) -> int:
        config = {"name": f"server-{number}", "transport_type": "STDIO", "connection_config": scripted()}
        return (await door.ask("POST", f"{API}/servers", {**config, "auto_connect": False}))[0]

    assert sorted(await asyncio.gather(*(register(number) for number in range(12)))) == [201] * 3 + [422] * 9
    assert (await door.ask("GET", f"{API}/servers"))[1]["total"] == 3
    await door.ask(
        "DELETE", f"{API}/servers/{(await door.ask('GET', f'{API}/servers'))[1]['servers'][0]['id']}"
    )
    assert sorted(await asyncio.gather(*(register(number) for number in range(12, 15)))) == [201, 422, 422]


async def test_many_listings_at_once_do_not_exceed_the_limit_of_all(open_door: Open) -> None:
    """R-09."""
    door = await open_door(max_tools=40)
    names = [f"server-{number}" for number in range(4)]
    await asyncio.gather(*(door.register(name, "STDIO", scripted(count=15)) for name in names))
    shown = [await door.until(name, "CONNECTED") for name in names]
    assert (await door.ask("GET", "/api/v1/tools"))[1]["total"] == 40
    cut = [server for server in shown if server["tool_count"] < 30]
    assert len(cut) == 3
    assert all("MCP_AGGREGATOR_MAX_TOOLS" in str(server["problems"]) for server in cut)


@pytest.mark.parametrize("paging", ["", "same"])
async def test_a_server_that_renames_its_tools_does_not_grow(open_door: Open, paging: str) -> None:
    """R-09, R-18: names that are gone go, whether its list was cut by our limit or never ends."""
    door = await open_door(max_tools_per_server=20)
    await door.connected("alpha", "STDIO", scripted(count=30, renames=True, paging=paging))
    for listing in range(2, 4):
        await door.ask("POST", f"{API}/servers/alpha/tools/refresh")
        name = f"alpha.tool_0_of_listing_{listing}"
        names = await eventually(
            partial(door.tool_names, "alpha"), partial(lambda it, them: it in them, name)
        )
        assert len(names) == 20
        assert not [name for name in names if "listing_" in name and not name.endswith(f"_{listing}")]
    assert "MCP_AGGREGATOR_MAX_TOOLS_PER_SERVER" in str((await door.server("alpha"))["problems"])


async def test_a_server_beyond_the_sessions_waits_for_one_and_says_so(open_door: Open) -> None:
    """R-09: ERROR with the setting, connected by itself when a session ends; connecting it is 422."""
    door = await open_door(max_sessions=1)
    await door.connected("alpha", "STDIO", scripted())
    await door.register("beta", "STDIO", scripted())
    waiting = await door.until("beta", "ERROR", seconds=5)
    assert "MCP_AGGREGATOR_MAX_SESSIONS" in waiting["error_message"]
    status, refused = await door.ask("POST", f"{API}/servers/beta/connect")
    assert (status, refused["error_code"]) == (422, "VALIDATION_ERROR")
    assert "all 1 sessions are in use" in str(refused["detail"])
    assert "MCP_AGGREGATOR_MAX_SESSIONS" in str(refused["detail"])
    assert (await door.server("beta"))["status"] == "ERROR"
    assert (await door.ask("POST", f"{API}/servers/alpha/connect"))[0] == 200
    await door.ask("POST", f"{API}/servers/alpha/disconnect")
    await door.until("beta", "CONNECTED", seconds=5)
    status, _ = await door.ask("POST", f"{API}/servers/alpha/connect")
    assert status == 422
    assert (await door.server("alpha"))["status"] == "DISCONNECTED"


async def test_a_dead_server_takes_no_session_from_a_living_one(open_door: Open) -> None:
    """R-09: only connections that are open or being opened count."""
    door = await open_door(max_sessions=1)
    await door.register("dead", "STDIO", {"command": "no-such-program-anywhere"})
    await door.until("dead", "ERROR")
    await door.connected("alpha", "STDIO", scripted())
    assert await door.text("alpha.echo", text="lives") == "lives"
