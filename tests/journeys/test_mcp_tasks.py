"""Tasks of newer servers: relayed to clients that take them, waited for on behalf of those that know none."""

import asyncio
from typing import Any

import pytest

from tests.journeys.cells import NEW, OLD, feature
from tests.journeys.conftest import Door, Open, eventually
from tests.journeys.mcp_client import McpClient, mcp_client
from tests.journeys.tasks_of_sdk import EXTENSION, Waiting
from tests.journeys.test_mcp_cells import accept, everything, sdk, text_of
from tests.servers.running import Upstreams

TAKES: dict[str, Any] = {"elicitation": {}, "extensions": {EXTENSION: {}}}
NOT_THERE = "not part of the era"

pytestmark = [
    pytest.mark.parametrize("open_door", ["sqlite"], indirect=True),
    pytest.mark.filterwarnings("default::mcp.shared.exceptions.MCPDeprecationWarning"),
]


async def told(client: McpClient, task_id: str, *statuses: str) -> dict[str, Any]:
    """The task once it has one of these statuses."""

    async def ask() -> dict[str, Any]:
        return (await client.ask("tasks/get", {"taskId": task_id})).result

    return await eventually(ask, lambda task: task["status"] in statuses)


@feature(
    "Tasks",
    "under an id of the gateway's own, for the key that made the call; the task outlives the gateway",
    but={
        (OLD, "legacy"): NOT_THERE,
        (NEW, "legacy"): NOT_THERE,
        (OLD, "modern"): "not declared; see the next row",
    },
)
@pytest.mark.parametrize("transport", ["HTTP", "STDIO"])
async def test_a_task_is_asked_after_answered_and_heard_of(
    door: Door, upstreams: Upstreams, mode: str, era: str, transport: str
) -> None:
    await everything(door, upstreams, era, transport)
    async with mcp_client(door.url + "/mcp", door.key, modern=mode == NEW, capabilities=TAKES) as client:
        begun = (await client.call("every_thing__confirm_delete", {"filename": "notes"})).result
        assert (begun["resultType"], begun["status"], begun["ttlMs"]) == ("task", "working", 600_000)
        task_id = begun["taskId"]
        asked = await told(client, task_id, "input_required")
        assert (asked["resultType"], asked["taskId"]) == ("complete", task_id)
        [(key, question)] = asked["inputRequests"].items()
        assert question["params"]["message"] == "Delete it?"
        async with client.listening(task_ids=["made up", task_id]) as heard:
            agreed = await heard.wait_for("notifications/subscriptions/acknowledged")
            assert agreed["params"]["notifications"]["taskIds"] == [task_id]
            answers = {key: {"action": "accept", "content": {"confirm": True}}}
            given = {"taskId": task_id, "inputResponses": answers}
            taken = (await client.ask("tasks/update", given)).result
            assert {name: taken[name] for name in taken if name != "_meta"} == {"resultType": "complete"}
            ended = await asyncio.wait_for(
                heard.wait_for("notifications/tasks", lambda it: it["params"]["status"] == "completed"), 10
            )
        assert ended["params"]["taskId"] == task_id
        assert ended["params"]["_meta"] == agreed["params"]["_meta"]
        ended_too = await told(client, task_id, "completed")
        assert ended["params"]["result"] == ended_too["result"]
        assert "notes: action=accept" in ended_too["result"]["content"][0]["text"]
        long = (await client.call("every_thing__slow_compute", {"seconds": 60})).result["taskId"]
        assert (await client.ask("tasks/cancel", {"taskId": long})).result["resultType"] == "complete"
        await told(client, long, "cancelled")


async def test_the_official_client_takes_tasks(door: Door, upstreams: Upstreams) -> None:
    await everything(door, upstreams, "modern")
    waiting = Waiting()
    async with sdk(door, NEW, extensions=[waiting]) as client:
        result = await client.call_tool("every_thing__slow_compute", {"seconds": 0.3})
        assert text_of(result) == "Computed for 0.3 s"
        failed = await client.call_tool("every_thing__failing_job")
        assert failed.is_error
    assert len(set(waiting.begun)) == 2


async def test_a_task_outlives_the_gateway(open_door: Open, upstreams: Upstreams) -> None:
    """Its id says where it is, so that a gateway that never saw it finds it."""
    door = await open_door()
    await everything(door, upstreams, "modern")
    async with mcp_client(door.url + "/mcp", door.key, modern=True, capabilities=TAKES) as client:
        task_id = (await client.call("every_thing__slow_compute", {"seconds": 0.5})).result["taskId"]
    await open_door.close()
    door = await open_door()
    await door.until("every-thing", "CONNECTED")
    async with mcp_client(door.url + "/mcp", door.key, modern=True, capabilities=TAKES) as client:
        ended = await told(client, task_id, "completed")
        assert ended["result"]["content"][0]["text"] == "Computed for 0.5 s"


@feature(
    "Tools that run as a task alone",
    "the gateway waits for the task and puts what it asks to the client; cancelled with the call",
    but={(OLD, "legacy"): NOT_THERE, (NEW, "legacy"): NOT_THERE, (NEW, "modern"): "-32021, or a task"},
)
@pytest.mark.parametrize("transport", ["HTTP", "STDIO"])
async def test_a_client_that_knows_no_tasks_gets_what_a_task_came_to(
    door: Door, upstreams: Upstreams, mode: str, era: str, transport: str
) -> None:
    await everything(door, upstreams, era, transport)
    async with sdk(door, mode, elicitation_callback=accept) as client:
        failed = await client.call_tool("every_thing__failing_job")
        assert (failed.is_error, text_of(failed)) == (True, "The job has failed")
        asked = await client.call_tool("every_thing__multi_input")
        assert text_of(asked).count('{"name": "told"}') == 2
        first = await client.call_tool("every_thing__test_tool_with_task")
        assert "told" in text_of(first)
        confirmed = await client.call_tool("every_thing__confirm_delete", {"filename": "notes"})
        assert "notes: action=accept" in text_of(confirmed)
    status, answer = await door.call("every-thing.failing_job")
    assert (status, answer["isError"], answer["content"][0]["text"]) == (200, True, "The job has failed")


async def test_a_newer_client_that_takes_no_tasks_is_told_that_one_is_needed(
    door: Door, upstreams: Upstreams
) -> None:
    await everything(door, upstreams, "modern")
    async with mcp_client(door.url + "/mcp", door.key, modern=True) as client:
        refused = await client.call("every_thing__failing_job")
        assert (refused.status, refused.code) == (400, -32021)
        data = refused.message["error"]["data"]
        assert data == {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}
        at_once = (await client.call("every_thing__slow_compute", {"seconds": 0.1})).result
        assert at_once["resultType"] == "complete"


async def test_the_extension_is_declared_where_tasks_can_come_from(door: Door, upstreams: Upstreams) -> None:
    """At the address of all, and of a server that has them; never of one of the session era."""
    await everything(door, upstreams, "modern")
    port = await upstreams.start("mirror.py", "modern")
    await door.connected("mirror", "HTTP", {"base_url": f"http://127.0.0.1:{port}/mcp"})
    for path, has_it in (("/mcp", True), ("/mcp/servers/every-thing", True), ("/mcp/servers/mirror", False)):
        async with mcp_client(door.url + path, door.key, modern=True) as client:
            extensions = (await client.ask("server/discover")).result["capabilities"].get("extensions", {})
            assert (extensions.get(EXTENSION) == {}) is has_it, path
        async with mcp_client(door.url + path, door.key, modern=False) as client:
            hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {}}
            message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
            answer = await client.post(message, {"Mcp-Session-Id": ""})
            assert "extensions" not in str(answer.message)
