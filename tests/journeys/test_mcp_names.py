"""What tools are called for clients of the protocol, and that it stays so."""

import asyncio

import pytest

from tests.journeys.conftest import Door, Open
from tests.journeys.mcp_client import McpClient, mcp_client
from tests.servers.peers import scripted


async def names(client: McpClient) -> set[str]:
    return {tool["name"] for tool in (await client.ask("tools/list")).result["tools"]}


async def test_an_alias_stays_when_other_servers_come_and_go(open_door: Open) -> None:
    """R-18: also over a restart, and for two servers whose names differ in what is lost."""
    door = await open_door()
    for name in ("git-hub", "git_hub"):
        await door.connected(name, "STDIO", scripted())
    async with mcp_client(door.url + "/mcp", door.key, modern=True) as client:
        both = await names(client)
        second = {name for name in both if not name.startswith("git_hub__")}
        assert len(both) == 2 * len(second)
        [told] = [name for name in second if name.endswith("__echo")]
        await door.ask("DELETE", "/api/v1/aggregator/servers/git-hub")
        assert await names(client) == second
    await open_door.close()
    door = await open_door()
    await door.until("git_hub", "CONNECTED")
    async with mcp_client(door.url + "/mcp", door.key, modern=True) as client:
        assert await names(client) == second
        answer = await client.call(told, {"text": "still here"})
        assert answer.result["content"][0]["text"] == "still here"


@pytest.mark.parametrize("open_door", ["sqlite"], indirect=True)
async def test_names_with_dots_are_advertised_where_that_is_wanted(open_door: Open) -> None:
    door = await open_door(tool_names="dotted")
    await door.connected("git-hub", "STDIO", scripted())
    async with mcp_client(door.url + "/mcp", door.key, modern=True) as client:
        assert "git-hub.echo" in await names(client)
        assert (await client.call("git_hub__echo", {"text": "x"})).result["content"][0]["text"] == "x"


@pytest.mark.parametrize("open_door", ["sqlite"], indirect=True)
async def test_a_dead_server_neither_empties_nor_delays_a_list(open_door: Open) -> None:
    """Its tools stay, and calling one says what is the matter; a disconnected server's are gone."""
    door = await open_door()
    await door.connected("dies", "STDIO", scripted())
    await door.connected("lives", "STDIO", scripted())
    await door.register("mute", "STDIO", scripted(start="mute"))
    async with mcp_client(door.url + "/mcp", door.key, modern=True) as client:
        before = await names(client)
        await door.ask("PATCH", "/api/v1/aggregator/servers/dies", broken())
        await door.until("dies", "ERROR", "CONNECTING")
        assert await asyncio.wait_for(names(client), 1) == before
        refused = await client.call("dies__echo", {"text": "x"})
        assert "dies" in refused.message["error"]["message"]
        await door.ask("POST", "/api/v1/aggregator/servers/dies/disconnect", {"force": True})
        assert await names(client) == {name for name in before if name.startswith("lives__")}


def broken() -> dict[str, object]:
    return {"connection_config": {"command": "/no/such/program"}}


async def test_what_a_server_says_of_itself_is_told_with_its_name(door: Door) -> None:
    await door.connected("alpha", "STDIO", scripted(instructions="Ask alpha first."))
    async with mcp_client(door.url + "/mcp", door.key, modern=True) as client:
        assert (await client.ask("server/discover")).result["instructions"] == "# alpha\nAsk alpha first."
        client.url += "/servers/alpha"
        assert (await client.ask("server/discover")).result["instructions"] == "Ask alpha first."
