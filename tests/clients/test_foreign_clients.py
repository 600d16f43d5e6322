"""The clients people have, not ours: the official SDKs of both lines and languages, and the Inspector.

Each goes through the gateway, over HTTP with a key and over the pipes of `trunkline stdio`, to servers of
either era. The SDK's second Python line is in tests/journeys.
"""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.cli.terminal import COMMAND
from tests.clients.foreign import HERE, inspector, node_script, printed
from tests.clients.mcpdo import mcpdo
from tests.conformance.everything_server import TOOLS
from tests.conformance.suite import LEGACY, MODERN
from tests.conformance.test_reference import SERVER
from tests.journeys.conftest import Door, eventually, running
from tests.servers.peers import old_sdk_python
from tests.servers.running import Upstreams
from trunkline.settings import load_settings

SIMPLE_TEXT = "This is a simple text response for testing."
COMES_AND_GOES = "every_thing__test_tool_that_comes_and_goes"

pytestmark = pytest.mark.asyncio(loop_scope="module")
either_way = pytest.mark.parametrize("over", ["HTTP", "stdio"])


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["legacy", "modern"])
async def door(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Door]:
    """One gateway for all clients, one after the other, in front of servers of one era."""
    upstreams = Upstreams()
    flags = {"data_dir": tmp_path_factory.mktemp("data"), "port": 0}
    try:
        everything = await upstreams.start(str(SERVER), "--era", request.param, "http")
        mirror = await upstreams.start("mirror.py", request.param)
        async with running(load_settings(flags=flags, environ={})) as door:
            for name, port in (("every-thing", everything), ("mirror", mirror)):
                await door.connected(name, "HTTP", {"base_url": f"http://127.0.0.1:{port}/mcp"})
            yield door
    finally:
        await upstreams.close()


def relay(door: Door) -> list[str]:
    """The command that clients on pipes start; the key is in its environment."""
    return [*COMMAND, "stdio", "--url", door.url]


@either_way
@pytest.mark.parametrize(
    ("client", "mode", "version"),
    [
        ("python_1.py", "", LEGACY),
        ("typescript_1.mjs", "", LEGACY),
        ("typescript_2.mjs", "legacy", LEGACY),
        ("typescript_2.mjs", "auto", MODERN),
    ],
)
async def test_an_official_sdk_does_all_a_client_can(
    door: Door, tmp_path: Path, client: str, mode: str, version: str, over: str
) -> None:
    """R-17, R-18, R-30."""
    python = client.endswith(".py")
    command = [old_sdk_python(), str(HERE / client)] if python else node_script(tmp_path, client)
    if over == "HTTP":
        way = {"URL": f"{door.url}/mcp", "KEY": door.key}
    else:
        way = {"COMMAND": json.dumps(relay(door)), "MCP_AGGREGATOR_KEY": door.key}
    found = await printed(command, tmp_path, MODE=mode, **way)
    listed = set(found.pop("listed")) | {COMES_AND_GOES}
    assert listed >= {f"every_thing__{name}" for name in TOOLS} | {"mirror__mirror"}
    assert found == {
        "version": version,
        "called": SIMPLE_TEXT,
        "progress": [0, 50, 100],
        "updated": "test://watched-resource",
        "changed": [COMES_AND_GOES],
        "accepted": 'User response: action=accept, content={"username": "told", "email": "told"}',
        "declined": "User response: action=decline, content=null",
        "sampled": "LLM response: told",
        "cancelled": 1,
    }


@either_way
@pytest.mark.parametrize("era", ["legacy", "auto"])
async def test_the_inspectors_command_line_lists_and_calls(
    door: Door, tmp_path: Path, era: str, over: str
) -> None:
    """R-17. `--cli` makes one request and ends: it cannot subscribe, answer a question or cancel.

    The Inspector's other command line can (below).
    """

    async def inspect(*arguments: str) -> Any:
        if over == "HTTP":
            key = ["--header", f"Authorization: Bearer {door.key}"]
            way = ["--server-url", f"{door.url}/mcp", "--transport", "http", *key]
        else:
            way = ["-e", f"MCP_AGGREGATOR_KEY={door.key}", "--transport", "stdio"]
        options = [*way, "--protocol-era", era, "--format", "json", *arguments]
        target = [] if over == "HTTP" else ["--", *relay(door)]
        return await printed([*inspector(), *options, *target], tmp_path)

    listed = {tool["name"] for tool in (await inspect("--method", "tools/list"))["result"]["tools"]}
    assert listed | {COMES_AND_GOES} >= {f"every_thing__{name}" for name in TOOLS}
    called = await inspect("--method", "tools/call", "--tool-name", "every_thing__test_simple_text")
    assert called["result"]["content"] == [{"type": "text", "text": SIMPLE_TEXT}]


@either_way
@pytest.mark.parametrize(("era", "spoken"), [("legacy", "legacy"), ("auto", "modern")])
async def test_the_inspectors_connection_lists_calls_subscribes_is_asked_and_cancels(
    door: Door, tmp_path: Path, era: str, spoken: str, over: str
) -> None:
    """R-17, R-18, R-30."""
    uri = "test://watched-resource"
    async with mcpdo(tmp_path) as inspect:
        if over == "HTTP":
            target = [f"{door.url}/mcp", "--header", f"Authorization: Bearer {door.key}"]
        else:
            target = ["-e", f"MCP_AGGREGATOR_KEY={door.key}", "--transport", "stdio", "--", *relay(door)]
        assert (await inspect.connect(era, *target))["protocolEra"] == spoken

        listed = {tool["name"] for tool in (await inspect("tools/list"))["tools"]}
        assert listed | {COMES_AND_GOES} >= {f"every_thing__{name}" for name in TOOLS}
        called = await inspect("tools/call", "every_thing__test_simple_text")
        assert called["content"] == [{"type": "text", "text": SIMPLE_TEXT}]

        async with inspect.running("resources/subscribe", uri) as subscription:
            assert (await subscription.next())["type"] == "subscribed"
            await door.text("every-thing.test_trigger_resource_update")
            assert (await subscription.next())["uri"] == uri
            await subscription.interrupt()

        asked = await inspect("tools/call", "every_thing__test_elicitation", "message:=Who?")
        pending = asked["elicitationPending"]
        assert pending["message"] == "Who?"
        fields = ("username:=told", "email:=told")
        answered = await inspect("elicitation/respond", pending["elicitationId"], *fields)
        assert "action=accept" in answered["content"][0]["text"]

        before = await seen(door)
        async with inspect.at_a_terminal("tools/call", "mirror__wait") as call:
            await eventually(lambda: seen(door), lambda now: now["waiting"] == before["waiting"] + 1)
            await call.interrupt()
        after = await eventually(lambda: seen(door), lambda now: now["cancelled"] == before["cancelled"] + 1)
        assert after["waiting"] == before["waiting"]


async def test_the_inspector_takes_tasks(door: Door, tmp_path: Path) -> None:
    """By the official client of the extension, where the server is of the newer era too; else as results."""

    async def begun() -> float:
        return await door.metric('trunkline_calls_total{outcome="task",server="every-thing"}') or 0.0

    before = await begun()
    async with mcpdo(tmp_path) as inspect:
        await inspect.connect("auto", f"{door.url}/mcp", "--header", f"Authorization: Bearer {door.key}")
        result = await inspect("tools/call", "every_thing__slow_compute", "seconds:=0.5")
        assert result["content"][0]["text"] == "Computed for 0.5 s"
        asked = await inspect("tools/call", "every_thing__confirm_delete", "filename:=notes")
        pending = asked["elicitationPending"]["elicitationId"]
        answered = await inspect("elicitation/respond", pending, "confirm:=true")
        assert answered["content"][0]["text"] == 'notes: action=accept, content={"confirm": true}'
    newer = (await door.server("every-thing"))["era"] == "modern"
    assert await begun() - before == (2 if newer else 0)


async def seen(door: Door) -> dict[str, int]:
    """How many calls wait at the server `mirror`, and how many were cancelled there."""
    status, answer = await door.call("mirror.seen")
    assert status == 200
    found: dict[str, int] = answer["structuredContent"]
    return found
