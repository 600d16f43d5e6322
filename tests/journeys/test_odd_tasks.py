"""Tasks of a server that says odd things, and clients that get them wrong: codes, owners, lost streams."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import mcp_types as types
import pytest

from tests.journeys.conftest import API, Door, Open, eventually
from tests.journeys.mcp_client import Answer, McpClient, mcp_client
from tests.journeys.tasks_of_sdk import EXTENSION
from tests.journeys.test_mcp_cells import sdk, text_of
from tests.servers.running import Upstreams

TAKES: dict[str, Any] = {"extensions": {EXTENSION: {}}}
TASK = {"taskId": "own-id", "status": "working", "createdAt": "c", "lastUpdatedAt": "l", "ttlMs": None}
METHODS = ("tasks/get", "tasks/update", "tasks/cancel")

pytestmark = [
    pytest.mark.parametrize("open_door", ["sqlite"], indirect=True),
    pytest.mark.filterwarnings("default::mcp.shared.exceptions.MCPDeprecationWarning"),
]


async def odd(door: Door, upstreams: Upstreams, name: str = "odd") -> None:
    port = await upstreams.start("odd_tasks.py")
    await door.connected(name, "HTTP", {"base_url": f"http://127.0.0.1:{port}/mcp"})


@contextlib.asynccontextmanager
async def newer(
    door: Door, path: str = "/mcp", key: str | None = None, takes: bool = True
) -> AsyncIterator[McpClient]:
    capabilities = TAKES if takes else {}
    async with mcp_client(door.url + path, key or door.key, modern=True, capabilities=capabilities) as client:
        yield client


async def begun(client: McpClient, **more: Any) -> str:
    task_id: str = (await client.call("odd.begin", {**TASK, **more})).result["taskId"]
    return task_id


async def seen(client: McpClient, method: str) -> list[dict[str, Any]]:
    asked: list[dict[str, Any]] = (await client.call("odd.seen")).result["structuredContent"]
    return [each for each in asked if each["method"] == method]


async def other_key(door: Door, scope: str = "call") -> str:
    status, made = await door.ask("POST", f"{API}/keys", {"name": f"other-{scope}", "scope": scope})
    assert status == 201, made
    return str(made["key"])


# Ids


async def test_an_id_that_is_not_this_keys_task_is_unknown(door: Door, upstreams: Upstreams) -> None:
    """Another key's, a changed one, one of another server's address: each is refused like no id at all."""
    await odd(door, upstreams)
    await odd(door, upstreams, "other")
    async with newer(door) as client:
        task_id = await begun(client)
        assert (await client.ask("tasks/get", {"taskId": task_id})).result["taskId"] == task_id
        mangled = task_id[:-2] + ("AA" if task_id[-2:] != "AA" else "BB")
        for method in METHODS:
            unknown = await client.ask(method, {"taskId": "unknown", "inputResponses": {}}, id=9)
            assert (unknown.status, unknown.code) == (400, -32602)
            for wrong in (mangled, "own-id", task_id + ".", "t1.."):
                refused = await client.ask(method, {"taskId": wrong, "inputResponses": {}}, id=9)
                assert (refused.status, refused.body) == (unknown.status, unknown.body)
            async with newer(door, key=await other_key(door)) as stranger:
                foreign = await stranger.ask(method, {"taskId": task_id, "inputResponses": {}}, id=9)
                assert (foreign.status, foreign.body) == (unknown.status, unknown.body)
            async with newer(door, "/mcp/servers/other") as elsewhere:
                astray = await elsewhere.ask(method, {"taskId": task_id, "inputResponses": {}}, id=9)
                assert (astray.status, astray.body) == (unknown.status, unknown.body)
        async with newer(door, "/mcp/servers/odd") as there:
            assert (await there.ask("tasks/get", {"taskId": task_id})).result["status"] == "working"
        assert len(await seen(client, "tasks/get")) == 2
        assert await seen(client, "tasks/cancel") == []
        status, _ = await door.ask("DELETE", f"{API}/servers/odd")
        assert status == 204
        gone = await client.ask("tasks/get", {"taskId": task_id}, id=9)
        assert (gone.status, gone.code) == (400, -32602)


@pytest.mark.parametrize("own", ["ä id with späces ", "=?base64?YQ==?=", "x" * 2000, "a.b/c"])
async def test_any_id_a_server_gives_is_found_again(door: Door, upstreams: Upstreams, own: str) -> None:
    await odd(door, upstreams)
    async with newer(door) as client:
        task_id = await begun(client, taskId=own)
        for method in METHODS:
            more = {"inputResponses": {"k": {"odd": 1.5}}} if method == "tasks/update" else {}
            answer = (await client.ask(method, {"taskId": task_id, **more, "further": [1]})).result
            assert answer["resultType"] == "complete"
            [asked] = await seen(client, method)
            assert asked["params"] == {"taskId": own, **more, "further": [1]}
            header = asked["name"]
            assert header == own if own in ("x" * 2000, "a.b/c") else header.startswith("=?base64?")


async def test_a_task_whose_id_cannot_be_passed_on_is_an_error(door: Door, upstreams: Upstreams) -> None:
    await odd(door, upstreams)
    async with newer(door) as client:
        for own in ("x" * 5000, "", 7):
            answer = await client.call("odd.begin", {**TASK, "taskId": own})
            assert answer.code == -32603
            assert "id cannot be passed on" in answer.message["error"]["message"]


# Requests


async def test_a_client_declares_the_extension_with_every_request(door: Door, upstreams: Upstreams) -> None:
    await odd(door, upstreams)
    async with newer(door) as client, newer(door, takes=False) as other:
        task_id = await begun(client)
        needed: dict[str, Any] = {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}
        for method in METHODS:
            for asked in (task_id, "unknown"):
                refused = await other.ask(method, {"taskId": asked})
                assert (refused.status, refused.code) == (400, -32021)
                assert refused.message["error"]["data"] == needed
        refused = await other.ask("subscriptions/listen", {"notifications": {"taskIds": [task_id]}})
        assert (refused.status, refused.code) == (400, -32021)
        assert refused.message["error"]["data"] == needed


async def test_what_is_wrong_with_a_request_has_its_code(door: Door, upstreams: Upstreams) -> None:
    await odd(door, upstreams)
    async with newer(door) as client:
        task_id = await begun(client)

        async def sent(
            method: str, params: dict[str, Any], headers: dict[str, str | None]
        ) -> tuple[int, int]:
            message, given = client.request(method, params)
            kept = {name: value for name, value in {**given, **headers}.items() if value is not None}
            answer = await client.post(message, kept)
            return answer.status, answer.code

        for method in METHODS:
            assert await sent(method, {"taskId": task_id}, {"Mcp-Name": None}) == (400, -32020)
            assert await sent(method, {"taskId": task_id}, {"Mcp-Name": "own-id"}) == (400, -32020)
            assert await sent(method, {"taskId": task_id}, {"Mcp-Method": "tools/call"}) == (400, -32020)
            assert await sent(method, {}, {}) == (400, -32602)
            assert await sent(method, {"taskId": 7}, {"Mcp-Name": "7"}) == (400, -32602)
        for method in ("tasks/list", "tasks/result"):
            assert await sent(method, {"taskId": task_id}, {}) == (404, -32601)
    async with mcp_client(door.url + "/mcp", door.key, modern=False, capabilities=TAKES) as old:
        for method in METHODS:
            assert (await old.ask(method, {"taskId": task_id})).code == -32601


async def test_a_key_that_may_only_read_changes_no_task(door: Door, upstreams: Upstreams) -> None:
    await odd(door, upstreams)
    async with newer(door, key=await other_key(door, "read")) as reader:
        assert (await reader.ask("tasks/get", {"taskId": "x"})).code == -32602
        for method in ("tasks/update", "tasks/cancel"):
            refused = await reader.ask(method, {"taskId": "x"})
            assert (refused.status, refused.code) == (403, -32600)


async def test_what_is_done_to_a_task_is_limited_and_written_down_like_a_call(
    open_door: Open, upstreams: Upstreams
) -> None:
    door = await open_door(rate_limit=3)
    await odd(door, upstreams)
    async with newer(door) as client:
        task_id = await begun(client)
        for method in ("tasks/cancel", "tasks/update"):
            assert (await client.ask(method, {"taskId": task_id})).status == 200
        refused = await client.ask("tasks/cancel", {"taskId": task_id})
        assert (refused.status, "Retry-After" in refused.headers) == (429, True)
        for _ in range(5):
            assert (await client.ask("tasks/get", {"taskId": task_id})).status == 200
    status, page = await door.ask("GET", f"{API}/audit?server=odd")
    assert status == 200
    written = [(each["event"], each["details"].get("outcome")) for each in page["records"]]
    assert written[:3] == [("task.updated", "ok"), ("task.cancelled", "ok"), ("tool.called", "task")]
    assert "own-id" not in str(page)
    assert await door.metric('trunkline_calls_total{outcome="task",server="odd"}') == 1


# Who takes tasks


async def test_a_server_hears_of_the_extension_only_from_who_declares_it(
    door: Door, upstreams: Upstreams
) -> None:
    await odd(door, upstreams)
    async with newer(door) as client:
        await client.call("odd.become", TASK)
        async with newer(door, takes=False) as other:
            await other.call("odd.become", TASK)
        async with mcp_client(door.url + "/mcp", door.key, modern=False, capabilities=TAKES) as old:
            await old.call("odd.become", TASK)
        await door.call("odd.become", None, **TASK)
        asked = [each["capabilities"] for each in await seen(client, "tools/call")]
        assert asked == [TAKES, {}, {}, {}]
        assert {str(each["capabilities"]) for each in await seen(client, "tools/list")} == {"{}"}


async def test_a_task_of_the_earlier_revision_is_asked_of_nobody(door: Door, upstreams: Upstreams) -> None:
    """Its server would answer in a way that nobody newer understands."""
    await odd(door, upstreams)
    async with newer(door) as client:
        asked = {"name": "odd.become", "arguments": TASK, "task": {"ttl": 60_000}, "more": 1}
        await client.ask("tools/call", asked)
        [call] = await seen(client, "tools/call")
        assert call["params"] == {"name": "become", "arguments": TASK, "more": 1}


async def test_a_task_that_nobody_offered_to_take_is_an_error(door: Door, upstreams: Upstreams) -> None:
    await odd(door, upstreams)
    async with newer(door, takes=False) as client:
        answer = await client.call("odd.begin", TASK)
        assert answer.code == -32603
        assert "answered with a task" in answer.message["error"]["message"]
    async with mcp_client(door.url + "/mcp", door.key, modern=False) as old:
        assert (await old.call("odd.begin", TASK)).code == -32603
    status, answer = await door.call("odd.begin", None, **TASK)
    assert (status, answer["error_code"]) == (502, "EXECUTION_FAILED")


async def test_the_result_in_a_task_is_cut_like_that_of_a_call(open_door: Open, upstreams: Upstreams) -> None:
    door = await open_door(result_limit=4096)
    await odd(door, upstreams)
    async with newer(door) as client:
        task_id = await begun(client)
        large = {"content": [{"type": "text", "text": "x" * 10_000}]}
        async with client.listening(task_ids=[task_id]) as heard:
            await client.call("odd.become", {**TASK, "status": "completed", "result": large})
            told = await asyncio.wait_for(heard.wait_for("notifications/tasks"), 10)
        asked = (await client.ask("tasks/get", {"taskId": task_id})).result
        for task in (asked, told["params"]):
            assert "at most 4096 are passed on" in task["result"]["content"][-1]["text"]
            assert len(str(task)) < 5000


# Hearing of tasks


async def test_the_end_of_a_task_is_heard_of_also_when_the_stream_was_broken(
    door: Door, upstreams: Upstreams
) -> None:
    """Nothing is told twice on a stream, and what was told on a broken one is asked after."""
    await odd(door, upstreams)
    async with newer(door) as client:
        task_id = await begun(client, status="input_required")
        async with client.listening(task_ids=[task_id]) as heard:
            await client.call("odd.become", {**TASK, "status": "working", "statusMessage": "going on"})
            first = await asyncio.wait_for(heard.wait_for("notifications/tasks"), 10)
            assert first["params"]["taskId"] == task_id
            meta = first["params"]["_meta"]
            assert meta["example.org/own"] is True
            agreed = await heard.wait_for("notifications/subscriptions/acknowledged")
            assert (
                meta["io.modelcontextprotocol/subscriptionId"]
                == agreed["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"]
            )
            await client.call("odd.cut")
            result = {"content": [], "isError": False}
            await client.call("odd.become", {**TASK, "status": "completed", "result": result})
            last = await asyncio.wait_for(
                heard.wait_for("notifications/tasks", lambda it: it["params"]["status"] == "completed"), 10
            )
            assert (last["params"]["taskId"], last["params"]["result"]) == (task_id, result)
            assert "resultType" not in last["params"]
        [listened, again] = await seen(client, "subscriptions/listen")
        assert listened["capabilities"] == again["capabilities"] == TAKES
        assert "progressToken" not in listened["meta"]


async def test_a_stream_ends_when_a_task_of_it_is_lost(door: Door, upstreams: Upstreams) -> None:
    """Then its client asks, and is told that there is no such task."""
    await odd(door, upstreams)
    async with newer(door) as client:
        task_id = await begun(client)
        async with client.listening(task_ids=[task_id]) as heard:
            await client.call("odd.forget", {"taskId": "own-id"})
            await client.call("odd.cut")
            await asyncio.wait_for(heard.wait_for(None), 10)
        gone = await client.ask("tasks/get", {"taskId": task_id})
        assert (gone.status, gone.code) == (400, -32602)


async def test_the_first_that_is_heard_is_what_will_be_heard_of(door: Door, upstreams: Upstreams) -> None:
    await odd(door, upstreams)
    async with newer(door) as client:
        task_id = await begun(client, eager=True)
        for _ in range(5):
            async with client.listening(task_ids=[task_id]) as heard:
                await asyncio.wait_for(heard.wait_for("notifications/tasks"), 10)
                assert heard.methods[0] == "notifications/subscriptions/acknowledged"


async def test_who_stops_listening_is_not_told_for(door: Door, upstreams: Upstreams) -> None:
    """A subscription at a server ends with its client's, and with its tasks."""
    await odd(door, upstreams)

    async def listeners() -> int:
        found: int = (await client.call("odd.seen", {"listeners": True})).result["listeners"]
        return found

    async with newer(door) as client:
        before = await listeners()
        first, second = await begun(client), await begun(client, taskId="second")
        async with client.listening(task_ids=[first, second]):
            assert await listeners() == before + 1
        await eventually(listeners, lambda count: count == before)
        async with client.listening(task_ids=[first]):
            await client.call("odd.become", {**TASK, "status": "cancelled"})
            await eventually(listeners, lambda count: count == before)


async def test_nothing_is_heard_of_tasks_that_are_not_ones_own(door: Door, upstreams: Upstreams) -> None:
    await odd(door, upstreams)
    async with newer(door) as client, newer(door, key=await other_key(door)) as stranger:
        task_id = await begun(client)
        async with (
            stranger.listening(task_ids=[task_id, "own-id"]) as heard,
            client.listening(task_ids=[task_id]) as own,
        ):
            agreed = await heard.wait_for("notifications/subscriptions/acknowledged")
            assert "taskIds" not in agreed["params"]["notifications"]
            await client.call("odd.become", {**TASK, "status": "cancelled"})
            await asyncio.wait_for(own.wait_for("notifications/tasks"), 10)
            assert "notifications/tasks" not in heard.methods


# Waiting on behalf of an older client


async def old_call(door: Door, client: McpClient, identity: int) -> "asyncio.Task[Answer]":
    call = asyncio.ensure_future(client.call("odd.alone", TASK, id=identity))
    await eventually(lambda: asked_after(door), lambda count: count > 0)
    return call


async def asked_after(door: Door) -> int:
    async with newer(door) as client:
        return len(await seen(client, "tasks/get"))


async def cancels(door: Door) -> int:
    async with newer(door) as client:
        return len(await seen(client, "tasks/cancel"))


async def test_a_cancelled_call_cancels_the_task_that_is_waited_for(door: Door, upstreams: Upstreams) -> None:
    await odd(door, upstreams)
    async with mcp_client(door.url + "/mcp", door.key, modern=False) as client:
        call = await old_call(door, client, 77)
        note = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 77}}
        assert (await client.post(note)).status == 202
        await eventually(lambda: cancels(door), lambda count: count == 1)
        assert (await asyncio.wait_for(call, 10)).body == b""


async def test_a_task_that_takes_too_long_is_cancelled(open_door: Open, upstreams: Upstreams) -> None:
    door = await open_door(request_timeout=1.0, request_timeout_cap=1.0)
    await odd(door, upstreams)
    async with mcp_client(door.url + "/mcp", door.key, modern=False) as client:
        answer = await client.call("odd.alone", TASK)
        assert answer.code == -32603
        assert "no end of its task within 1 s" in answer.message["error"]["message"]
    assert await cancels(door) == 1


@pytest.mark.parametrize(
    ("ends", "said"),
    [
        (
            {"status": "failed", "error": {"code": -32603, "message": "no paper"}},
            "The task has failed: no paper",
        ),
        ({"status": "cancelled", "statusMessage": "by hand"}, "The task was cancelled: by hand"),
        ({"status": "cancelled"}, "The task was cancelled"),
    ],
)
async def test_a_task_without_a_result_is_a_tool_that_failed(
    door: Door, upstreams: Upstreams, ends: dict[str, Any], said: str
) -> None:
    await odd(door, upstreams)
    async with mcp_client(door.url + "/mcp", door.key, modern=False) as client:
        call = await old_call(door, client, 1)
        async with newer(door) as other:
            await other.call("odd.become", {**TASK, **ends})
        answer = (await asyncio.wait_for(call, 10)).result
        assert (answer["isError"], answer["content"][0]["text"]) == (True, said)


async def test_a_task_does_not_end_with_a_request_that_was_lost(door: Door, upstreams: Upstreams) -> None:
    await odd(door, upstreams)
    async with mcp_client(door.url + "/mcp", door.key, modern=False) as client, newer(door) as other:
        await other.call("odd.hang_up", {"times": 2})
        call = await old_call(door, client, 1)
        done = {"content": [{"type": "text", "text": "done"}]}
        await other.call("odd.become", {**TASK, "status": "completed", "result": done})
        assert (await asyncio.wait_for(call, 20)).result["content"][0]["text"] == "done"


async def test_a_task_that_is_lost_is_never_begun_again(door: Door, upstreams: Upstreams) -> None:
    """The tool may have run: its call is not made anew for a poll that failed."""
    await odd(door, upstreams)
    async with mcp_client(door.url + "/mcp", door.key, modern=False) as client:
        call = await old_call(door, client, 1)
        await upstreams.kill()
        answer = await asyncio.wait_for(call, 30)
        assert answer.code == -32603
        assert "unknown" in answer.message["error"]["message"]


QUESTION = {
    "method": "elicitation/create",
    "params": {"mode": "form", "message": "Who?", "requestedSchema": {"type": "object", "properties": {}}},
}


async def test_what_a_task_asks_is_put_to_the_client_once(door: Door, upstreams: Upstreams) -> None:
    """Also when its server still says that it waits, after it was answered."""
    await odd(door, upstreams)
    put: list[str] = []

    async def answer(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        put.append(params.message)
        return types.ElicitResult(action="accept", content={"name": "told"})

    async with sdk(door, "legacy", elicitation_callback=answer) as client, newer(door) as other:
        asking = {**TASK, "status": "input_required", "pollIntervalMs": 0, "inputRequests": {"q": QUESTION}}
        call = asyncio.ensure_future(client.call_tool("odd.alone", asking))
        await eventually(lambda: asked_after(door), lambda count: count > 3)
        assert put == ["Who?"]
        [update] = await seen(other, "tasks/update")
        answers = {"q": {"action": "accept", "content": {"name": "told"}}}
        assert update["params"] == {"taskId": "own-id", "inputResponses": answers}
        done = {"content": [{"type": "text", "text": "done"}]}
        await other.call("odd.become", {**TASK, "status": "completed", "result": done})
        assert text_of(await asyncio.wait_for(call, 10)) == "done"


async def test_a_task_whose_question_nobody_can_answer_is_cancelled(door: Door, upstreams: Upstreams) -> None:
    await odd(door, upstreams)
    asking = {**TASK, "status": "input_required", "inputRequests": {"q": QUESTION}}
    async with mcp_client(door.url + "/mcp", door.key, modern=False) as client:
        answer = await client.call("odd.alone", asking)
        assert "does not support elicitation/create" in answer.message["error"]["message"]
    assert await cancels(door) == 1
    status, refused = await door.call("odd.alone", None, **asking)
    assert (status, refused["error_code"]) == (502, "EXECUTION_FAILED")
    assert await cancels(door) == 2
