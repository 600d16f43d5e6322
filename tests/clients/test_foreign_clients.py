"""The clients people have, not ours: the official SDKs of both lines and languages, and the Inspector.

Each goes through the gateway, with a key, to servers of either era. The SDK's second Python line is in
tests/journeys.
"""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.clients.foreign import HERE, inspector, node_script, printed
from tests.conformance.everything_server import TOOLS
from tests.conformance.suite import LEGACY, MODERN
from tests.conformance.test_reference import SERVER
from tests.journeys.conftest import Door, running
from tests.servers.peers import old_sdk_python
from tests.servers.running import Upstreams
from trunkline.settings import load_settings

SIMPLE_TEXT = "This is a simple text response for testing."
COMES_AND_GOES = "every_thing__test_tool_that_comes_and_goes"

pytestmark = pytest.mark.asyncio(loop_scope="module")


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
    door: Door, tmp_path: Path, client: str, mode: str, version: str
) -> None:
    """R-17, R-18, R-30."""
    python = client.endswith(".py")
    command = [old_sdk_python(), str(HERE / client)] if python else node_script(tmp_path, client)
    found = await printed(command, tmp_path, URL=f"{door.url}/mcp", KEY=door.key, MODE=mode)
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


@pytest.mark.parametrize("era", ["legacy", "auto"])
async def test_the_inspector_lists_and_calls(door: Door, tmp_path: Path, era: str) -> None:
    async def inspect(*arguments: str) -> Any:
        at = ["--server-url", f"{door.url}/mcp", "--transport", "http", "--protocol-era", era]
        key = ["--header", f"Authorization: Bearer {door.key}", "--format", "json"]
        return await printed([*inspector(), *at, *key, *arguments], tmp_path)

    listed = {tool["name"] for tool in (await inspect("--method", "tools/list"))["result"]["tools"]}
    assert listed | {COMES_AND_GOES} >= {f"every_thing__{name}" for name in TOOLS}
    called = await inspect("--method", "tools/call", "--tool-name", "every_thing__test_simple_text")
    assert called["result"]["content"] == [{"type": "text", "text": SIMPLE_TEXT}]
