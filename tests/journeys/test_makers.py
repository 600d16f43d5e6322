"""Servers of several makers on all transports: register, connect, discover, call."""

from pathlib import Path

import pytest

from tests.journeys.conftest import API, Door
from tests.servers.peers import SDK_SERVER, THIS_PYTHON, npm_server, old_sdk_python
from tests.servers.running import Upstreams


@pytest.mark.parametrize("line", ["mcp 1.30", "mcp 2.3"])
@pytest.mark.parametrize("transport", ["STDIO", "SSE", "HTTP"])
async def test_a_server_on_either_sdk_line_connects_and_answers(
    door: Door, upstreams: Upstreams, transport: str, line: str
) -> None:
    """R-11, R-17, R-26: all transports, both SDK lines, and so both protocol eras."""
    python = old_sdk_python() if line == "mcp 1.30" else THIS_PYTHON
    if transport == "STDIO":
        config: dict[str, object] = {"command": python, "args": [SDK_SERVER, "stdio"]}
    elif transport == "SSE":
        port = await upstreams.start("sdk_server.py", "sse", python=python)
        config = {"url": f"http://127.0.0.1:{port}/sse"}
    else:
        port = await upstreams.start("sdk_server.py", "http", python=python)
        config = {"base_url": f"http://127.0.0.1:{port}/mcp"}
    server = await door.connected("sdk", transport, config)
    assert server["tool_count"] == 5
    assert server["problems"] == []
    assert await door.tool_names("sdk") == ["sdk.add", "sdk.echo", "sdk.fail", "sdk.pid", "sdk.slow"]
    status, answer = await door.call("sdk.add", a=2, b=40)
    assert status == 200
    assert answer["content"][0]["text"] == "42"
    assert answer["structuredContent"] == {"result": 42}
    assert answer["metadata"]["routed_to"] == "sdk"
    assert answer["metadata"]["server_id"] == server["id"]
    status, answer = await door.call("sdk.fail")
    assert (status, answer["isError"]) == (200, True)


async def test_the_reference_servers_from_npm_connect_and_answer(door: Door, tmp_path: Path) -> None:
    """R-11, R-17, R-26 with the official TypeScript servers."""
    (tmp_path / "hello.txt").write_text("hello from a file")
    extra = {
        "server-everything": ("everything", ["stdio"], {}),
        "server-filesystem": ("files", [str(tmp_path)], {}),
        "server-memory": ("memory", [], {"MEMORY_FILE_PATH": str(tmp_path / "memory.jsonl")}),
    }
    for package, (name, arguments, env) in extra.items():
        node, script = npm_server(package)
        await door.register(name, "STDIO", {"command": node, "args": [script, *arguments], "env": env})
    for name in ("everything", "files", "memory"):
        server = await door.until(name, "CONNECTED")
        assert server["problems"] == []
        assert server["tool_count"] > 3
    assert await door.text("everything.echo", message="hi") == "Echo: hi"
    assert "hello from a file" in await door.text("files.read_text_file", path=str(tmp_path / "hello.txt"))
    entity = {"name": "Trunkline", "entityType": "gateway", "observations": ["works"]}
    await door.text("memory.create_entities", entities=[entity])
    assert "works" in await door.text("memory.read_graph")
    status, state = await door.ask("GET", f"{API}/state")
    assert (status, state["connected_servers"]) == (200, 3)
