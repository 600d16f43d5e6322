"""Calls through the REST door: which tool, what comes back, and what is said when it does not."""

import asyncio
import json
import time

import aiohttp

from tests.journeys.conftest import API, Door, Open, eventually
from tests.servers.peers import scripted
from tests.servers.running import Upstreams


async def test_a_result_passes_unchanged_with_fields_nobody_knows(door: Door) -> None:
    """R-26, R-30: field for field what the server sent, byte for byte, with ours beside."""
    await door.connected("alpha", "STDIO", scripted())
    status, answer = await door.call("alpha.odd_result")
    assert status == 200
    metadata = answer.pop("metadata")
    assert answer == {
        "content": [{"type": "hologram", "beam": [1, 2.5, None]}, {"type": "text", "text": "und ümläute 🦉"}],
        "structuredContent": {"a": None, "b": [{"c": 1.0}]},
        "unheardOf": {"kept": True},
        "_meta": {"example.org/key": None},
        "isError": False,
    }
    assert set(metadata) >= {
        *("routed_to", "server_id", "routing_time_ms", "execution_time_ms", "total_time_ms")
    }
    assert metadata["total_time_ms"] >= metadata["execution_time_ms"] >= 0


async def test_a_tool_is_found_by_its_full_name_by_its_own_and_by_server(door: Door) -> None:
    """R-27: explicit id, then `server.tool`, then the tool's own name; only the first dot splits (R-18)."""
    dotted = {"name": "api.v2.create", "inputSchema": {"type": "object"}}
    lonely = {"name": "lonely", "inputSchema": {"type": "object"}}
    first = await door.connected("server-a", "STDIO", scripted(tools=[dotted, lonely]))
    second = await door.connected("server-b", "STDIO", scripted())
    assert await door.text("server-a.api.v2.create") == "api.v2.create was called"
    assert await door.text("api.v2.create") == "api.v2.create was called"
    assert await door.text("lonely") == "lonely was called"
    status, answer = await door.call("pid")
    assert (status, answer["error_code"]) == (400, "TOOL_AMBIGUOUS")
    assert answer["candidates"] == ["server-a.pid", "server-b.pid"]
    pids = set()
    for server in (first, second):
        status, answer = await door.call("pid", server["id"])
        assert (status, answer["metadata"]["server_id"]) == (200, server["id"])
        pids.add(answer["content"][0]["text"])
    assert len(pids) == 2
    status, answer = await door.call("pid", "550e8400-e29b-41d4-a716-446655440000")
    assert (status, answer["error_code"]) == (404, "SERVER_NOT_FOUND")
    status, answer = await door.call("server-a.ecoh")
    assert (status, answer["error_code"]) == (404, "TOOL_NOT_FOUND")
    assert "server-a.echo" in answer["detail"]


async def test_a_server_that_was_never_listed_is_unavailable_and_its_tools_not_unknown(door: Door) -> None:
    """R-27, R-28: nobody can know yet that it has no such tool."""
    server = await door.register("alpha", "STDIO", scripted(), auto_connect=False)
    for name, server_id in (("alpha.echo", None), ("echo", server["id"]), ("alpha.echo", server["id"])):
        status, refused = await door.call(name, server_id)
        assert (status, refused["error_code"]) == (503, "SERVER_UNAVAILABLE")
        assert refused["server"] == {"id": server["id"], "name": "alpha", "status": "DISCONNECTED"}
    for name in ("echo", "alpha", "beta.echo", f"{server['id']}.echo"):
        assert (await door.call(name))[1]["error_code"] == "TOOL_NOT_FOUND"
    await door.ask("POST", f"{API}/servers/alpha/connect")
    await door.until("alpha", "CONNECTED")
    assert (await door.call("alpha.nothing"))[1]["error_code"] == "TOOL_NOT_FOUND"
    await door.ask("POST", f"{API}/servers/alpha/disconnect")
    assert (await door.call("alpha.nothing"))[1]["error_code"] == "TOOL_NOT_FOUND"


async def test_the_servers_own_error_is_told_with_code_message_and_data(door: Door) -> None:
    """R-29."""
    await door.connected("alpha", "STDIO", scripted())
    status, answer = await door.call("alpha.rpc_error")
    assert (status, answer["error_code"]) == (502, "EXECUTION_FAILED")
    assert answer["context"]["code"] == -32099
    assert answer["context"]["message"] == "out of paper"
    assert answer["context"]["data"] == {"tray": 2}


async def test_a_call_past_its_time_is_cancelled_upstream_and_answered_504(open_door: Open) -> None:
    """R-29."""
    door = await open_door(request_timeout=0.5)
    await door.connected("alpha", "STDIO", scripted())
    started = time.monotonic()
    status, answer = await door.call("alpha.slow", seconds=20)
    assert (status, answer["error_code"]) == (504, "TIMEOUT")
    assert time.monotonic() - started < 3

    async def cancelled() -> str:
        return await door.text("alpha.canceled")

    assert await eventually(cancelled, lambda count: count == "1") == "1"


async def test_progress_extends_the_deadline_up_to_the_cap(open_door: Open) -> None:
    """R-29: a tool that reports progress may take longer than the request timeout, but not than the cap."""
    door = await open_door(request_timeout=0.6, request_timeout_cap=2.5)
    await door.connected("alpha", "STDIO", scripted())
    assert await door.text("alpha.progress", seconds=1.2, every=0.1) == "done"
    started = time.monotonic()
    status, _ = await door.call("alpha.progress", seconds=30, every=0.1)
    assert status == 504
    assert 2 < time.monotonic() - started < 5


async def test_a_caller_who_goes_away_cancels_the_call_upstream(door: Door) -> None:
    """R-29."""
    await door.connected("alpha", "STDIO", scripted())
    body = {"name": "alpha.slow", "arguments": {"seconds": 20}}
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {door.key}"}) as session:
        going = asyncio.create_task(session.post(f"{door.url}/api/v1/tools/call", json=body))
        await door.in_flight("alpha", 1)
        going.cancel()
        await asyncio.gather(going, return_exceptions=True)

    async def cancelled() -> str:
        return await door.text("alpha.canceled")

    await eventually(cancelled, lambda count: count == "1")


async def test_large_results_pass_and_too_large_ones_cost_only_themselves(open_door: Open) -> None:
    """R-30."""
    door = await open_door(message_limit=12 * 1024 * 1024)
    await door.connected("alpha", "STDIO", scripted())
    for size in (64 * 1024, 1024 * 1024, 10 * 1024 * 1024):
        assert await door.text("alpha.large", size=size) == "x" * size
    neighbour = asyncio.create_task(door.text("alpha.slow", seconds=1))
    status, answer = await door.call("alpha.large", size=13 * 1024 * 1024)
    assert status == 502, answer
    assert "12 MiB" in answer["detail"]
    assert await neighbour == "done"
    assert await door.text("alpha.echo", text="still here") == "still here"


async def test_noise_and_answers_to_nothing_harm_nobody(door: Door) -> None:
    """R-16, R-20."""
    await door.connected("alpha", "STDIO", scripted())
    for _ in range(5):
        assert await door.text("alpha.noise", lines=200) == "made"
        assert await door.text("alpha.echo", text="fine") == "fine"
    noise = await door.metric('trunkline_noise_lines_total{server="alpha"}')
    assert noise is not None
    assert noise >= 1000


async def test_many_callers_never_get_each_others_answers(door: Door, upstreams: Upstreams) -> None:
    """R-16."""
    for number in range(4):
        await door.register(f"local-{number}", "STDIO", scripted())
        port = await upstreams.start("scripted_mcp.py", "http")
        await door.register(f"remote-{number}", "HTTP", {"base_url": f"http://127.0.0.1:{port}/mcp"})
    names = [f"{kind}-{number}" for number in range(4) for kind in ("local", "remote")]
    for name in names:
        await door.until(name, "CONNECTED")

    async def caller(which: int) -> int:
        wrong = 0
        for turn in range(60):
            name, text = names[(which + turn) % len(names)], f"{which}/{turn}"
            wrong += await door.text(f"{name}.echo", text=text) != text
        return wrong

    assert sum(await asyncio.gather(*(caller(which) for which in range(16)))) == 0


async def test_every_call_leaves_an_audit_record(door: Door) -> None:
    """R-51."""
    await door.connected("alpha", "STDIO", scripted())
    await door.text("alpha.echo", text="a secret argument")
    await door.call("alpha.rpc_error")
    status, page = await door.ask("GET", "/api/v1/aggregator/audit?event=tool.called&server=alpha")
    assert (status, page["total"]) == (200, 2)
    newest, oldest = page["records"]
    assert (newest["details"]["tool"], newest["details"]["outcome"]) == (
        "alpha.rpc_error",
        "EXECUTION_FAILED",
    )
    assert (oldest["details"]["tool"], oldest["details"]["outcome"]) == ("alpha.echo", "ok")
    assert (oldest["server_name"], oldest["ip_address"]) == ("alpha", "127.0.0.1")
    assert "a secret argument" not in json.dumps(page)
