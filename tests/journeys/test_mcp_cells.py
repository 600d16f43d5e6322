"""Clients of both eras, servers of both eras, through the gateway: all four cells."""

import asyncio
import json
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from hypothesis import given
from hypothesis import settings as searching
from hypothesis import strategies as st
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from pydantic import FileUrl

from tests.journeys.cells import NEW, OLD, feature
from tests.journeys.conftest import Door, Open, eventually
from tests.journeys.mcp_client import LEGACY, MODERN, McpClient, mcp_client
from tests.servers.peers import THIS_PYTHON, scripted
from tests.servers.running import Upstreams

EVERYTHING = Path(__file__).parents[1] / "conformance" / "everything_server.py"
pytestmark = [
    pytest.mark.parametrize("open_door", ["sqlite"], indirect=True),
    pytest.mark.filterwarnings("default::mcp.shared.exceptions.MCPDeprecationWarning"),
]


async def everything(door: Door, upstreams: Upstreams, era: str, transport: str = "HTTP") -> None:
    if transport == "STDIO":
        config: dict[str, object] = {"command": THIS_PYTHON, "args": [str(EVERYTHING), "stdio", "--era", era]}
    else:
        port = await upstreams.start(str(EVERYTHING), "--era", era, "http")
        config = {"base_url": f"http://127.0.0.1:{port}/mcp"}
    await door.connected("every-thing", transport, config)


def sdk(door: Door, mode: str, path: str = "/mcp", **callbacks: Any) -> Client:
    http = create_mcp_http_client(headers={"Authorization": f"Bearer {door.key}"})
    return Client(streamable_http_client(door.url + path, http_client=http), mode=mode, **callbacks)


def text_of(result: types.CallToolResult) -> str:
    [said] = result.content
    assert isinstance(said, types.TextContent)
    return said.text


@feature("Tools, prompts, resources, templates, completions", "safe names, canonical names, own names")
@pytest.mark.parametrize("transport", ["HTTP", "STDIO"])
async def test_tools_prompts_and_resources_of_a_server(
    door: Door, upstreams: Upstreams, mode: str, era: str, transport: str
) -> None:
    """R-17, R-18, R-30: under safe names, by the SDK's own client."""
    await everything(door, upstreams, era, transport)
    async with sdk(door, mode) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        simple = tools["every_thing__test_simple_text"]
        assert simple.title == "every-thing.test_simple_text"
        assert simple.meta is not None
        assert simple.meta["trunkline/name"] == "every-thing.test_simple_text"
        for name in ("every_thing__test_simple_text", "every-thing.test_simple_text", "test_simple_text"):
            assert "simple text" in text_of(await client.call_tool(name))
        failed = await client.call_tool("every_thing__test_error_handling")
        assert failed.is_error
        prompts = {prompt.name for prompt in (await client.list_prompts()).prompts}
        assert "every_thing__test_simple_prompt" in prompts
        prompt = await client.get_prompt("every_thing__test_simple_prompt")
        assert prompt.messages
        assert "test://static-text" in {each.uri for each in (await client.list_resources()).resources}
        read = await client.read_resource("test://static-text")
        assert read.contents[0].uri == "test://static-text"
        assert (await client.list_resource_templates()).resource_templates
        from_template = await client.read_resource("test://template/17/data")
        assert "17" in str(from_template.contents[0])
        reference = types.PromptReference(name="every_thing__test_prompt_with_arguments")
        await client.complete(reference, {"name": "arg1", "value": "te"})


@feature("Progress", "under the client's own token")
async def test_progress_reaches_the_caller(door: Door, upstreams: Upstreams, mode: str, era: str) -> None:
    await everything(door, upstreams, era)
    seen: list[float] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        seen.append(progress)

    async with sdk(door, mode) as client:
        await client.call_tool("every_thing__test_tool_with_progress", progress_callback=on_progress)
    assert seen == [0, 50, 100]


async def accept(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
    assert isinstance(params, types.ElicitRequestFormParams)
    content: dict[str, Any] = dict.fromkeys(params.requested_schema["properties"], "told")
    return types.ElicitResult(action="accept", content=content)


async def decline(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
    return types.ElicitResult(action="decline")


async def complete(context: Any, params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
    return types.CreateMessageResult(role="assistant", content=types.TextContent(text="told"), model="none")


async def roots(context: Any) -> types.ListRootsResult:
    return types.ListRootsResult(roots=[types.Root(uri=FileUrl("file:///told"))])


ASKED: dict[str, Any] = {
    "elicitation_callback": accept,
    "sampling_callback": complete,
    "list_roots_callback": roots,
}


ASKING = ("input_required", "elicitation", "sampling")


@feature(
    "Elicitation by form, sampling, roots",
    "in any number of rounds, from tools and prompts; a parked call dies with the gateway and says so",
)
@pytest.mark.parametrize("transport", ["HTTP", "STDIO"])
async def test_a_server_asks_the_client_in_the_middle_of_a_call(
    door: Door, upstreams: Upstreams, mode: str, era: str, transport: str
) -> None:
    """Elicitation, sampling and roots, also in two rounds, also from a prompt."""
    await everything(door, upstreams, era, transport)
    async with sdk(door, mode, **ASKED) as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        asking = [
            name for name in names if "input_required" in name or "elicitation" in name or "sampling" in name
        ]
        assert len(asking) > 8
        for name in asking:
            result = await client.call_tool(name, {"message": "Who?", "prompt": "What?"})
            assert "told" in text_of(result), (name, result)
        prompt = await client.get_prompt("every_thing__test_input_required_result_prompt")
        assert "told" in str(prompt.messages[0].content)


@feature("A refused question", "the server is told")
async def test_a_refusal_reaches_the_server(door: Door, upstreams: Upstreams, mode: str, era: str) -> None:
    await everything(door, upstreams, era)
    async with sdk(door, mode, elicitation_callback=decline) as client:
        result = await client.call_tool("every_thing__test_elicitation", {"message": "Who?"})
        assert "action=decline" in text_of(result)


@feature(
    "A question nobody answers",
    "after MCP_AGGREGATOR_QUESTION_TIMEOUT the server is told, or the call is given up",
    but={(NEW, "modern"): "the client's own matter"},
)
async def test_a_question_nobody_answers_ends_in_time(
    open_door: Open, upstreams: Upstreams, mode: str, era: str
) -> None:
    """Never a hang: the call ends, at the client as at the server, and both work on."""
    door = await open_door(question_timeout="1")
    await everything(door, upstreams, era)
    name, arguments = "every_thing__test_elicitation", {"message": "Who?"}
    if era == "modern":
        name = "every_thing__test_input_required_result_elicitation"
    able: dict[str, object] = {"elicitation": {"form": {}}}
    modern = mode == NEW
    async with (
        asyncio.timeout(15),
        mcp_client(door.url + "/mcp", door.key, modern=modern, capabilities=able) as client,
    ):
        answer = await client.call(name, arguments)
        if modern:
            assert answer.result["resultType"] == "input_required"
            again = {"name": name, "arguments": arguments, "requestState": answer.result["requestState"]}
            await door.in_flight("every-thing", 0)
            late = await client.ask("tools/call", {**again, "inputResponses": {"q1": {"action": "decline"}}})
            assert (late.status, late.code) == (400, -32602)
        else:
            asked = [each["id"] for each in answer.heard if each["method"] == "elicitation/create"]
            withdrawn = [
                each["params"]["requestId"]
                for each in answer.heard
                if each["method"] == "notifications/cancelled"
            ]
            assert asked == withdrawn
            assert "did not answer elicitation/create within 1 s" in json.dumps(answer.message)
        plain = await client.call("every_thing__test_simple_text")
        assert plain.result["content"]


@feature("Lists that change", "announced at most once a second, and only when something changed")
@pytest.mark.parametrize("transport", ["HTTP", "STDIO"])
async def test_a_change_of_a_list_is_announced(
    door: Door, upstreams: Upstreams, mode: str, era: str, transport: str
) -> None:
    """R-18: what the server says is heard, read and told on."""
    await everything(door, upstreams, era, transport)
    async with (
        mcp_client(door.url + "/mcp", door.key, modern=mode == MODERN) as client,
        client.listening() as heard,
    ):
        before = {tool["name"] for tool in (await client.ask("tools/list")).result["tools"]}
        await client.call("every_thing__test_trigger_tool_change")
        await asyncio.wait_for(heard.wait_for("notifications/tools/list_changed"), 10)
        after = {tool["name"] for tool in (await client.ask("tools/list")).result["tools"]}
        assert len(before ^ after) == 1


@feature("Resource subscriptions", "one subscription at the server, however many clients")
@pytest.mark.parametrize("transport", ["HTTP", "STDIO"])
async def test_a_change_of_a_resource_is_told(
    door: Door, upstreams: Upstreams, mode: str, era: str, transport: str
) -> None:
    await everything(door, upstreams, era, transport)
    uri = "test://watched-resource"
    async with (
        mcp_client(door.url + "/mcp", door.key, modern=mode == MODERN) as client,
        client.listening(uri) as heard,
    ):
        await client.call("every_thing__test_trigger_resource_update", {"uri": uri})
        told = await asyncio.wait_for(heard.wait_for("notifications/resources/updated"), 10)
        assert told["params"]["uri"] == uri


@feature("Log messages", "of the level asked for; those of no call are dropped")
async def test_log_messages_reach_the_caller(door: Door, upstreams: Upstreams, mode: str, era: str) -> None:
    await everything(door, upstreams, era)
    async with mcp_client(door.url + "/mcp", door.key, modern=mode == MODERN) as client:
        level: dict[str, Any] = {}
        if mode == MODERN:
            level = {"io.modelcontextprotocol/logLevel": "info"}
        else:
            assert (await client.ask("logging/setLevel", {"level": "info"})).result == {}
        answer = await client.call("every_thing__test_tool_with_logging", **level)
        said = [each["params"]["data"] for each in answer.heard if each["method"] == "notifications/message"]
        assert said == ["Tool execution started", "Tool processing data", "Tool execution completed"]


# By hand

json_trees = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)


@feature("Any JSON as arguments and result", "byte for byte; unknown fields and kinds of content included")
async def test_any_json_passes_unchanged(door: Door, upstreams: Upstreams, mode: str, era: str) -> None:
    """R-30: arguments and results, unknown fields and kinds of content included, byte for byte."""
    port = await upstreams.start("mirror.py", era)
    await door.connected("mirror", "HTTP", {"base_url": f"http://127.0.0.1:{port}/mcp"})
    modern = mode == MODERN
    loop = asyncio.get_running_loop()
    async with mcp_client(door.url + "/mcp", door.key, modern=modern) as client:

        async def passes(tree: dict[str, Any], spaced: bool) -> None:
            given = json.dumps(tree, ensure_ascii=spaced, separators=None if spaced else (",", ":"))
            message, headers = client.request("tools/call", {"name": "mirror__mirror", "arguments": {}})
            body = json.dumps(message).replace('"arguments": {}', '"arguments": ' + given).encode()
            answer = await client.post(body, headers)
            kept = given.encode()
            assert b'"structuredContent":{"it":%b}' % kept in answer.body
            assert b'"unheardOf":%b' % kept in answer.body
            assert b'"beam":%b' % kept in answer.body
            assert answer.result.get("resultType") == ("complete" if modern or era == "modern" else None)

        @searching(max_examples=25)
        @given(st.dictionaries(st.text(max_size=8), json_trees, max_size=5), st.booleans())
        def search(tree: dict[str, Any], spaced: bool) -> None:
            asyncio.run_coroutine_threadsafe(passes(tree, spaced), loop).result(30)

        await asyncio.to_thread(search)


@feature("Cancellation", "by message in the older era, by closing the stream in the newer one")
async def test_a_cancelled_call_is_cancelled_at_its_server_and_no_other(
    door: Door, upstreams: Upstreams, mode: str, era: str
) -> None:
    """In the newer era by closing the stream, in the older one by a message."""
    port = await upstreams.start("mirror.py", era)
    await door.connected("mirror", "HTTP", {"base_url": f"http://127.0.0.1:{port}/mcp"})
    modern = mode == MODERN
    async with mcp_client(door.url + "/mcp", door.key, modern=modern) as client:
        calls = [
            asyncio.ensure_future(client.call("mirror.wait", {}, id=identity, progressToken=f"t{identity}"))
            for identity in (1, 2)
        ]
        await door.in_flight("mirror", 2)
        if modern:
            calls[0].cancel()
        else:
            cancelled = {"method": "notifications/cancelled", "params": {"requestId": 1}}
            await client.post({"jsonrpc": "2.0", **cancelled})

        async def cancelled_there() -> int:
            seen: int = (await client.call("mirror.seen")).result["structuredContent"]["cancelled"]
            return seen

        await eventually(cancelled_there, lambda count: count == 1, 0.5)
        assert not calls[1].done()
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)


@feature("Colliding ids and progress tokens", "no answer and no progress goes astray")
async def test_clients_with_the_same_ids_and_tokens_never_get_each_others_answers(
    door: Door, upstreams: Upstreams, mode: str, era: str
) -> None:
    """R-16: 16 clients, one id, one progress token."""
    port = await upstreams.start("mirror.py", era)
    await door.connected("mirror", "HTTP", {"base_url": f"http://127.0.0.1:{port}/mcp"})

    async def one(number: int) -> None:
        async with mcp_client(door.url + "/mcp", door.key, modern=mode == MODERN) as client:
            for turn in range(40):
                mine = {"it": [number, turn]}
                answer = await client.call("mirror.mirror", mine, id=7, progressToken="same")
                assert answer.message["id"] == 7
                assert answer.result["unheardOf"] == mine
            heard = Counting(client)
            waiting = asyncio.ensure_future(
                heard.call("mirror.wait", {"by": number}, id=7, progressToken="same")
            )
            await asyncio.wait_for(heard.enough.wait(), 20)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            assert {(params["progressToken"], params["message"]["by"]) for params in heard.progress} == {
                ("same", number)
            }

    await asyncio.gather(*(one(number) for number in range(16)))


class Counting(McpClient):
    """Counts the progress it hears of."""

    def __init__(self, other: McpClient) -> None:
        self.__dict__.update(other.__dict__)
        self.progress: list[dict[str, Any]] = []
        self.enough = asyncio.Event()

    async def on_heard(self, message: dict[str, Any]) -> None:
        self.progress.append(message["params"])
        if len(self.progress) >= 5:
            self.enough.set()


async def test_an_old_session_is_bound_to_its_address_and_its_key(door: Door, upstreams: Upstreams) -> None:
    port = await upstreams.start("mirror.py", "legacy")
    await door.connected("mirror", "HTTP", {"base_url": f"http://127.0.0.1:{port}/mcp"})
    status, made = await door.ask("POST", "/api/v1/aggregator/keys", {"name": "other", "scope": "call"})
    assert status == 201, made
    async with mcp_client(door.url + "/mcp", door.key, modern=False) as client:
        assert len(client.headers["Mcp-Session-Id"]) >= 22
        stolen = {"Authorization": f"Bearer {made['key']}"}
        message, _ = client.request("tools/list")
        assert (await client.post(message, stolen)).status == 404
        client.url = door.url + "/mcp/servers/mirror"
        assert (await client.post(message)).status == 404
        client.url = door.url + "/mcp"
        assert (await client.post(message)).status == 200
    assert client.headers["MCP-Protocol-Version"] == LEGACY


@feature(
    "Elicitation by URL",
    "the newer era has no ids for it: an older client gets one of the gateway's making, a newer one none",
)
async def test_a_user_is_sent_to_an_address(door: Door, upstreams: Upstreams, mode: str, era: str) -> None:
    await everything(door, upstreams, era)
    sent: list[str] = []

    async def visit(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        assert isinstance(params, types.ElicitRequestURLParams)
        assert bool(params.elicitation_id) is (mode == OLD)
        sent.append(params.url)
        return types.ElicitResult(action="accept")

    async with sdk(door, mode, elicitation_callback=visit) as client:
        result = await client.call_tool("every_thing__send_away")
        assert (text_of(result), sent) == ("action=accept, content=null", ["https://visit.me/"])


@feature(
    "Word that a visit is over",
    "to the session that was sent, once",
    but={
        (NEW, "modern"): "not part of the era",
        (OLD, "modern"): "not part of the era",
        (NEW, "legacy"): "not part of the era",
    },
)
async def test_who_was_sent_to_an_address_hears_when_that_is_over(door: Door, mode: str, era: str) -> None:
    """Whether it was sent by a question or by an error; nobody else hears of it."""
    tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("sign_in", "been_there")]
    await door.connected("door", "STDIO", scripted(tools=tools))
    complete = "notifications/elicitation/complete"
    async with (
        mcp_client(door.url + "/mcp", door.key, modern=False) as client,
        mcp_client(door.url + "/mcp", door.key, modern=False) as other,
        client.listening() as heard,
        other.listening() as unsent,
    ):
        assert (await client.call("door.sign_in")).code == -32042
        for visit in ("nobodys", "e1", "e1"):
            await client.call("door.been_there", {"id": visit})
        told = await asyncio.wait_for(heard.wait_for(complete), 10)
        assert told["params"] == {"elicitationId": "e1"}
        await client.call("door.grow", {"name": "more"})
        for each in (heard, unsent):
            await asyncio.wait_for(each.wait_for("notifications/tools/list_changed"), 10)
        assert heard.methods.count(complete) == 1
        assert complete not in unsent.methods


async def test_a_question_that_sends_away_is_heard_of_too(door: Door, upstreams: Upstreams) -> None:
    await everything(door, upstreams, "legacy")
    over: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def visit(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        return types.ElicitResult(action="accept")

    async def on_message(message: Any) -> None:
        if isinstance(message, types.ElicitCompleteNotification):
            over.set_result(message.params.elicitation_id)

    async with sdk(door, OLD, elicitation_callback=visit, message_handler=on_message) as client:
        await client.call_tool("every_thing__send_away")
        assert await asyncio.wait_for(over, 10) == "visit-1"


@feature(
    "Elicitation by URL, asked by an error",
    "-32042 of an older server becomes a question; calling again makes the call anew",
    but={(NEW, "modern"): "not part of the era", (OLD, "modern"): "not part of the era"},
)
async def test_an_error_that_asks_for_a_visit(door: Door, mode: str, era: str) -> None:
    tool = {"name": "sign_in", "inputSchema": {"type": "object"}}
    await door.connected("door", "STDIO", scripted(tools=[tool]))
    able: dict[str, Any] = {"elicitation": {"url": {}}}
    async with mcp_client(door.url + "/mcp", door.key, modern=mode == NEW, capabilities=able) as client:
        answer = await client.call("door.sign_in")
        if mode == OLD:
            assert answer.code == -32042
            assert answer.message["error"]["data"]["elicitations"][0]["elicitationId"] == "e1"
            return
        asked = answer.result
        assert asked["resultType"] == "input_required"
        [(key, question)] = asked["inputRequests"].items()
        assert question["params"] == {"mode": "url", "url": "https://sign.in/1", "message": "Sign in"}
        again = {"name": "door.sign_in", "arguments": {}, "inputResponses": {key: {"action": "accept"}}}
        assert (await client.ask("tools/call", again)).result["content"][0]["text"] == "signed in"
    async with mcp_client(door.url + "/mcp", door.key, modern=mode == NEW) as unable:
        refused = await unable.call("door.sign_in")
        assert (refused.status, refused.code) == (400, -32021)
