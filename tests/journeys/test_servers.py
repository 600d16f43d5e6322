"""The life of a registration, through REST, with real servers behind it."""

import asyncio
import time
from pathlib import Path

import pytest

from tests.journeys.conftest import API, Door, Open, eventually
from tests.servers.peers import scripted
from tests.servers.running import Upstreams


async def test_a_registration_is_answered_with_all_its_fields(door: Door) -> None:
    """R-01, R-03."""
    server = await door.register("alpha", "stdio", scripted(), description="The first")
    assert set(server) >= {
        *("id", "name", "description", "transport_type", "status", "health_check_url"),
        *("tool_count", "registered_at", "connected_at"),
    }
    assert (server["transport_type"], server["status"], server["connected_at"]) == (
        "STDIO",
        "CONNECTING",
        None,
    )
    assert server["registered_at"].endswith("Z")
    quiet = await door.register("beta", "STDIO", scripted(), auto_connect=False)
    assert quiet["status"] == "DISCONNECTED"
    connected = await door.until("alpha", "CONNECTED")
    assert connected["connected_at"] is not None
    assert (await door.server("beta"))["status"] == "DISCONNECTED"


async def test_a_name_is_taken_once_also_in_a_race(door: Door) -> None:
    """R-02."""
    body = {
        "name": "twin",
        "transport_type": "STDIO",
        "connection_config": scripted(),
        "auto_connect": False,
    }
    answers = await asyncio.gather(*(door.ask("POST", f"{API}/servers", body) for _ in range(8)))
    assert sorted(status for status, _ in answers) == [201] + [409] * 7
    refused = next(answer for status, answer in answers if status == 409)
    assert refused["error_code"] == "SERVER_ALREADY_EXISTS"
    assert refused["detail"] == "Server already exists: twin"


@pytest.mark.parametrize(
    ("change", "loc"),
    [
        ({"name": "Alpha"}, ["body", "name"]),
        ({"name": "a.b"}, ["body", "name"]),
        ({"name": "a b"}, ["body", "name"]),
        ({"name": "a" * 256}, ["body", "name"]),
        ({"description": "x" * 1001}, ["body", "description"]),
        ({"transport_type": "SSE", "connection_config": {}}, ["body", "connection_config", "url"]),
        ({"transport_type": "HTTP", "connection_config": {}}, ["body", "connection_config", "base_url"]),
        ({"transport_type": "STDIO", "connection_config": {}}, ["body", "connection_config", "command"]),
        (
            {"transport_type": "HTTP", "connection_config": {"base_url": "file:///etc/passwd"}},
            ["body", "connection_config", "base_url"],
        ),
        (
            {"transport_type": "HTTP", "connection_config": {"base_url": "http://u:p@127.0.0.1/"}},
            ["body", "connection_config", "base_url"],
        ),
        (
            {"transport_type": "HTTP", "connection_config": {"base_url": "http://[::ffff:10.0.0.1]/"}},
            ["body", "connection_config", "base_url"],
        ),
        ({"health_check_url": "nonsense"}, ["body", "health_check_url"]),
        ({"surprise": 1}, ["body", "surprise"]),
    ],
)
async def test_a_bad_registration_says_where_it_is_wrong_and_leaves_nothing(
    door: Door, change: dict[str, object], loc: list[str]
) -> None:
    """R-02."""
    body = {"name": "alpha", "transport_type": "STDIO", "connection_config": scripted(), **change}
    status, answer = await door.ask("POST", f"{API}/servers", body)
    assert status == 422, answer
    assert loc in [fault["loc"] for fault in answer["detail"]]
    assert all({"loc", "msg", "type"} <= set(fault) for fault in answer["detail"])
    assert (await door.ask("GET", f"{API}/servers"))[1]["total"] == 0


async def test_servers_are_listed_filtered_and_paged(door: Door) -> None:
    """R-04."""
    for name in ("c", "a", "b"):
        await door.register(name, "STDIO", scripted(), auto_connect=name == "b")
    await door.until("b", "CONNECTED")
    status, page = await door.ask("GET", f"{API}/servers?limit=2&offset=1")
    assert status == 200
    assert (page["total"], page["limit"], page["offset"]) == (3, 2, 1)
    assert [server["name"] for server in page["servers"]] == ["b", "c"]
    _, connected = await door.ask("GET", f"{API}/servers?status=connected&include_tools=true")
    assert [server["name"] for server in connected["servers"]] == ["b"]
    assert "b.echo" in [tool["name"] for tool in connected["servers"][0]["tools"]]
    status, missing = await door.ask("GET", f"{API}/servers/550e8400-e29b-41d4-a716-446655440000")
    assert (status, missing["error_code"]) == (404, "SERVER_NOT_FOUND")


async def test_a_configuration_is_shown_masked(door: Door) -> None:
    """R-04, R-48."""
    config = {"base_url": "http://127.0.0.1:9/mcp", "headers": {"Authorization": "Bearer s3cr3t-value"}}
    await door.register("hidden", "HTTP", config, auto_connect=False)
    shown = await door.server("hidden")
    assert shown["connection_config"]["base_url"] == "http://127.0.0.1:9/mcp"
    assert "s3cr3t-value" not in str(shown)
    assert set(shown) >= {"error_message", "updated_at", "connection_config"}


async def test_connecting_twice_is_no_fault(door: Door) -> None:
    """R-05."""
    server = await door.register("alpha", "STDIO", scripted(), auto_connect=False)
    status, answer = await door.ask("POST", f"{API}/servers/{server['id']}/connect")
    assert (status, answer["status"]) == (200, "CONNECTING")
    assert answer["server_id"] == server["id"]
    await door.until("alpha", "CONNECTED")
    status, answer = await door.ask("POST", f"{API}/servers/{server['id']}/connect")
    assert (status, answer["status"], answer["message"]) == (200, "CONNECTED", "Server already connected")


async def test_disconnecting_an_idle_server_is_done_at_once_and_again(door: Door) -> None:
    """R-06: the tools stay stored, are not callable meanwhile, and return."""
    await door.connected("alpha", "STDIO", scripted())
    for _ in range(2):
        status, answer = await door.ask("POST", f"{API}/servers/alpha/disconnect")
        assert (status, answer["status"], answer["pending_requests"]) == (200, "DISCONNECTED", 0)
    assert "alpha.echo" in await door.tool_names("alpha")
    status, refused = await door.call("alpha.echo", text="x")
    assert (status, refused["error_code"]) == (503, "SERVER_UNAVAILABLE")
    assert refused["server"]["status"] == "DISCONNECTED"
    await door.ask("POST", f"{API}/servers/alpha/connect")
    await door.until("alpha", "CONNECTED")
    assert await door.text("alpha.echo", text="back") == "back"


async def test_disconnecting_lets_calls_in_flight_finish_and_refuses_new_ones(door: Door) -> None:
    """R-06."""
    await door.connected("alpha", "STDIO", scripted())
    running = [asyncio.create_task(door.call("alpha.slow", seconds=1)) for _ in range(3)]
    await door.in_flight("alpha", 3)
    status, answer = await door.ask("POST", f"{API}/servers/alpha/disconnect", {"force": False})
    assert (status, answer["status"], answer["pending_requests"]) == (200, "DISCONNECTING", 3)
    status, refused = await door.call("alpha.echo", text="x")
    assert (status, refused["error_code"]) == (503, "SERVER_UNAVAILABLE")
    assert [status for status, _ in await asyncio.gather(*running)] == [200] * 3
    await door.until("alpha", "DISCONNECTED")


async def test_stragglers_get_503_when_the_time_to_drain_is_over(open_door: Open) -> None:
    """R-06."""
    door = await open_door(drain_timeout=0.3)
    await door.connected("alpha", "STDIO", scripted())
    running = asyncio.create_task(door.call("alpha.slow", seconds=20))
    await door.in_flight("alpha", 1)
    await door.ask("POST", f"{API}/servers/alpha/disconnect")
    status, refused = await asyncio.wait_for(running, 5)
    assert (status, refused["error_code"]) == (503, "SERVER_UNAVAILABLE")
    assert (await door.until("alpha", "DISCONNECTED"))["error_message"] is None


async def test_a_forced_disconnect_cuts_calls_off_at_once(door: Door) -> None:
    """R-06."""
    await door.connected("alpha", "STDIO", scripted())
    running = asyncio.create_task(door.call("alpha.slow", seconds=20))
    await door.in_flight("alpha", 1)
    started = time.monotonic()
    status, answer = await door.ask("POST", f"{API}/servers/alpha/disconnect", {"force": True})
    assert (status, answer["status"]) == (200, "DISCONNECTED")
    assert (await running)[0] == 503
    assert time.monotonic() - started < 5


async def test_connecting_during_the_drain_keeps_the_connection(door: Door) -> None:
    """R-06: nothing is lost when somebody thinks better of it."""
    await door.connected("alpha", "STDIO", scripted())
    before = await door.text("alpha.pid")
    running = asyncio.create_task(door.call("alpha.slow", seconds=1))
    await door.in_flight("alpha", 1)
    await door.ask("POST", f"{API}/servers/alpha/disconnect")
    _, answer = await door.ask("POST", f"{API}/servers/alpha/connect")
    assert answer["status"] == "CONNECTED"
    assert (await running)[0] == 200
    assert await door.text("alpha.pid") == before


async def test_a_removed_server_is_gone_with_its_tools(door: Door) -> None:
    """R-07."""
    await door.connected("alpha", "STDIO", scripted())
    assert (await door.ask("GET", "/api/v1/tools"))[1]["total"] > 0
    assert await door.ask("DELETE", f"{API}/servers/alpha") == (204, None)
    assert (await door.ask("GET", "/api/v1/tools"))[1]["total"] == 0
    assert (await door.ask("DELETE", f"{API}/servers/alpha"))[0] == 404
    status, answer = await door.call("alpha.echo", text="x")
    assert (status, answer["error_code"]) == (404, "TOOL_NOT_FOUND")
    await door.connected("alpha", "STDIO", scripted())


async def test_tools_can_be_listed_anew(door: Door) -> None:
    """R-08."""
    server = await door.connected("alpha", "STDIO", scripted())
    status, listing = await door.ask("GET", f"{API}/servers/alpha/tools")
    assert status == 200
    assert (listing["classified"], listing["unclassified"]) == (0, listing["total"])
    assert set(listing["tools"][0]) >= {
        *("id", "name", "original_name", "description", "skill_ids", "primary_skill_id"),
        *("is_classified", "discovered_at"),
    }
    before = int(await door.text("alpha.listings"))
    status, answer = await door.ask("POST", f"{API}/servers/alpha/tools/refresh")
    assert (status, answer["status"], answer["server_id"]) == (202, "REFRESHING", server["id"])

    async def listings() -> int:
        return int(await door.text("alpha.listings"))

    await eventually(listings, lambda count: count == before + 1)


async def test_limits_are_said_with_their_setting(open_door: Open) -> None:
    """R-09."""
    door = await open_door(max_servers=1, max_tools_per_server=20)
    await door.connected("alpha", "STDIO", scripted(count=50))
    shown = await door.server("alpha")
    assert shown["tool_count"] == 20
    assert "MCP_AGGREGATOR_MAX_TOOLS_PER_SERVER" in str(shown["problems"])
    body = {"name": "beta", "transport_type": "STDIO", "connection_config": scripted()}
    status, answer = await door.ask("POST", f"{API}/servers", body)
    assert (status, answer["error_code"]) == (422, "VALIDATION_ERROR")
    assert "MCP_AGGREGATOR_MAX_SERVERS" in answer["detail"][0]["msg"]


async def test_a_change_of_address_takes_effect_and_the_name_never_changes(
    door: Door, upstreams: Upstreams
) -> None:
    """R-10, R-14: a masked secret that comes back in a change stays what it was."""
    first = await upstreams.start("scripted_mcp.py", "http")
    second = await upstreams.start("scripted_mcp.py", "http")
    config = {"base_url": f"http://127.0.0.1:{first}/mcp", "headers": {"X-Token": "kept-secret"}}
    await door.connected("alpha", "HTTP", config, description="old")
    before = await door.text("alpha.pid")
    status, _ = await door.ask("PATCH", f"{API}/servers/alpha", {"name": "beta"})
    assert status == 422
    shown = (await door.server("alpha"))["connection_config"]
    change = {
        "connection_config": {**shown, "base_url": f"http://127.0.0.1:{first}/mcp/"},
        "description": "new",
    }
    status, changed = await door.ask("PATCH", f"{API}/servers/alpha", change)
    assert (status, changed["description"]) == (200, "new")
    await door.until("alpha", "CONNECTED")
    assert await door.text("alpha.pid") == before
    moved = {"connection_config": {"base_url": f"http://127.0.0.1:{second}/mcp"}}
    assert (await door.ask("PATCH", f"{API}/servers/alpha", moved))[0] == 200
    await door.until("alpha", "CONNECTED")
    assert await door.text("alpha.pid") != before


async def test_what_was_registered_is_there_after_a_restart(open_door: Open) -> None:
    """R-03, R-54: wanted servers connect again, unwanted ones stay away, ids and tools stay."""
    door = await open_door()
    server = await door.connected("alpha", "STDIO", scripted())
    await door.connected("beta", "STDIO", scripted())
    await door.ask("POST", f"{API}/servers/beta/disconnect")
    _, tools = await door.ask("GET", f"{API}/servers/alpha/tools")
    ids = {tool["name"]: tool["id"] for tool in tools["tools"]}
    await open_door.close()
    door = await open_door()
    again = await door.until("alpha", "CONNECTED")
    assert again["id"] == server["id"]
    assert (await door.server("beta"))["status"] == "DISCONNECTED"
    _, tools = await door.ask("GET", f"{API}/servers/alpha/tools")
    assert {tool["name"]: tool["id"] for tool in tools["tools"]} == ids


async def test_a_gateway_that_is_switched_off_connects_nothing(open_door: Open, tmp_path: Path) -> None:
    """R-53: only health is served; switched on again, what was wanted is connected."""
    starts = tmp_path / "starts"
    config = scripted(starts=str(starts))
    door = await open_door()
    await door.connected("alpha", "STDIO", config)
    await open_door.close()
    before = starts.read_text()
    door = await open_door(enabled=False)
    assert (await door.ask("GET", f"{API}/servers"))[1]["error_code"] == "GATEWAY_DISABLED"
    await asyncio.sleep(1)
    _, health = await door.ask("GET", f"{API}/health")
    assert health["servers"] == {"total": 1, "connected": 0, "error": 0}
    assert starts.read_text() == before
    await open_door.close()
    door = await open_door()
    await door.until("alpha", "CONNECTED")
    assert starts.read_text() != before
