"""`trunkline stdio` as clients start it: beside a gateway that runs, and as the gateway itself."""

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import mcp_types as types
import pytest
from mcp import Client, StdioServerParameters

from tests.cli.terminal import COMMAND, Cli, Serving, clean_environment, serve
from tests.journeys.conftest import eventually
from tests.journeys.tasks_of_sdk import Waiting
from tests.servers.peers import THIS_PYTHON, old_sdk_python
from trunkline.cli.gateway_client import find_gateway

TESTS = Path(__file__).parents[1]
EVERYTHING = [THIS_PYTHON, str(TESTS / "conformance" / "everything_server.py"), "stdio"]
ECHO = [THIS_PYTHON, str(TESTS / "front" / "echo_server.py")]
LEGACY, MODERN = "2025-11-25", "2026-07-28"
ENVELOPE: dict[str, Any] = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": {},
}
HELLO: dict[str, Any] = {
    "protocolVersion": LEGACY,
    "capabilities": {},
    "clientInfo": {"name": "t", "version": "1"},
}
INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}

pytestmark = pytest.mark.filterwarnings("default::mcp.shared.exceptions.MCPDeprecationWarning")
both_eras = pytest.mark.parametrize("mode", ["legacy", MODERN])


class Place:
    """A data folder, with a gateway that `serve` runs or without."""

    def __init__(self, folder: Path) -> None:
        self.data_dir = folder / "data"
        self.cli = Cli(self.data_dir, folder)
        self.serving: Serving | None = None

    def serve(self, *arguments: str) -> None:
        self.serving = serve(self.data_dir, *arguments)

    def stop(self) -> None:
        if self.serving is not None:
            self.serving.process.kill()
            self.serving.process.wait(20)
            self.serving = None

    def add(self, name: str, command: list[str]) -> None:
        self.cli.ok("servers", "add", name, "--", *command)

    async def in_flight(self, calls: int) -> None:
        """Returns when so many calls are at the server `echo`."""
        address = find_gateway(None, None, self.data_dir)
        headers = {"Authorization": f"Bearer {address.key}"}
        async with aiohttp.ClientSession(address.url, headers=headers) as session:

            async def seen() -> str:
                async with session.get("/metrics") as response:
                    return await response.text()

            series = f'trunkline_calls_in_flight{{server="echo"}} {calls}.0'
            await eventually(seen, lambda text: series in text)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    found = Place(tmp_path)
    yield found
    found.stop()


@pytest.fixture(params=["attached", "by itself"])
def either(request: pytest.FixtureRequest, place: Place) -> Place:
    """With a server registered; run by `serve`, or by nobody any more."""
    place.serve()
    place.add("every", EVERYTHING)
    if request.param == "by itself":
        place.stop()
    return place


class Talk:
    """A client by hand: lines in, lines out, and nothing but messages among them."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        assert process.stdin is not None
        assert process.stdout is not None
        self.stdin, self._stdout = process.stdin, process.stdout

    def write(self, *messages: object) -> None:
        for message in messages:
            data = message if isinstance(message, bytes) else json.dumps(message).encode() + b"\n"
            self.stdin.write(data)

    async def read(self, seconds: float = 20) -> Any:
        line = await asyncio.wait_for(self._stdout.readline(), seconds)
        assert line.endswith(b"\n"), "stdout has ended"
        message = json.loads(line)
        assert message["jsonrpc"] == "2.0"
        return message

    async def until(self, holds: Callable[[Any], bool], seconds: float = 20) -> Any:
        async with asyncio.timeout(seconds):
            while not holds(message := await self.read(seconds)):
                pass
            return message

    def ask(self, method: str, identity: int | str, modern: bool = False, **params: Any) -> None:
        meta = {"_meta": {**ENVELOPE, **params.pop("meta", {})}} if modern else {}
        params = {**params, **meta}
        self.write({"jsonrpc": "2.0", "id": identity, "method": method, "params": params})

    async def answer(self, method: str, identity: int | str, modern: bool = False, **params: Any) -> Any:
        self.ask(method, identity, modern, **params)
        return await self.until(lambda message: message.get("id") == identity)

    async def open(self) -> None:
        assert "result" in await self.answer("initialize", "hello", **HELLO)
        self.write(INITIALIZED)

    async def cancel(self, identity: int | str) -> None:
        note = {"method": "notifications/cancelled", "params": {"requestId": identity}}
        self.write({"jsonrpc": "2.0", **note})

    async def close(self) -> int:
        """stdin ends; the exit code."""
        self.stdin.close()
        return await asyncio.wait_for(self.process.wait(), 20)


@contextlib.asynccontextmanager
async def talking(place: Place, *arguments: str, **environ: str) -> AsyncIterator[Talk]:
    process = await asyncio.create_subprocess_exec(
        *COMMAND, "stdio", "--data-dir", str(place.data_dir), *arguments,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=32 << 20,
        env=clean_environment(**environ),
    )  # fmt: skip
    try:
        yield Talk(process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def sdk(place: Place, mode: str, *arguments: str, **callbacks: Any) -> Client:
    whole = [*COMMAND[1:], "stdio", "--data-dir", str(place.data_dir), *arguments]
    return Client(StdioServerParameters(command=COMMAND[0], args=whole), mode=mode, **callbacks)


async def accept(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
    assert isinstance(params, types.ElicitRequestFormParams)
    content: dict[str, Any] = dict.fromkeys(params.requested_schema["properties"], "told")
    return types.ElicitResult(action="accept", content=content)


async def all_tools(client: Client) -> set[str]:
    """Once the server is connected: a gateway that just started lists what it knew, and connects."""
    for _ in range(200):
        names = {tool.name for tool in (await client.list_tools()).tools}
        if names and not (await client.call_tool("every__test_simple_text")).is_error:
            return names
        await asyncio.sleep(0.1)
    raise AssertionError("the server never connected")


@both_eras
async def test_the_official_client_lists_calls_hears_progress_and_is_asked(either: Place, mode: str) -> None:
    seen: list[float] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        seen.append(progress)

    async with sdk(either, mode, elicitation_callback=accept) as client:
        assert "every__test_elicitation" in await all_tools(client)
        await client.call_tool("every__test_tool_with_progress", progress_callback=on_progress)
        assert seen == [0, 50, 100]
        asked = await client.call_tool("every__test_elicitation", {"message": "Who?"})
        assert "told" in str(asked.content)
        twice = await client.call_tool("every__test_input_required_result_multi_round")
        assert str(twice.content).count("told") == 2
        assert (await client.get_prompt("every__test_simple_prompt")).messages
        assert (await client.read_resource("test://template/über/data")).contents
        region = await client.call_tool("every__test_header_parameter", {"region": "Süd"})
        assert "Region: Süd" in str(region.content)


async def test_the_official_client_takes_tasks(either: Place) -> None:
    waiting = Waiting()
    async with sdk(either, MODERN, extensions=[waiting]) as client:
        await all_tools(client)
        result = await client.call_tool("every__slow_compute", {"seconds": 0.3})
        assert "Computed for 0.3 s" in str(result.content)
    assert len(waiting.begun) == 1


@both_eras
async def test_one_server_alone_under_its_own_names(place: Place, mode: str) -> None:
    place.serve()
    place.add("every", EVERYTHING)
    async with sdk(place, mode, "--server", "every") as client:
        assert "test_simple_text" in {tool.name for tool in (await client.list_tools()).tools}


async def test_a_client_of_the_first_sdk_line(either: Place) -> None:
    script = str(TESTS / "servers" / "old_client.py")
    process = await asyncio.create_subprocess_exec(
        await asyncio.to_thread(old_sdk_python), script,
        *COMMAND, "stdio", "--data-dir", str(either.data_dir),
        stdout=asyncio.subprocess.PIPE, env=clean_environment(),
    )  # fmt: skip
    said, _ = await asyncio.wait_for(process.communicate(), 60)
    found = json.loads(said)
    assert found["version"] == LEGACY
    assert "every__test_elicitation" in found["tools"]
    assert "told" in found["asked"]
    assert found["progress"] == [0, 50, 100]
    assert found["prompt"] == 1


@both_eras
async def test_a_cancelled_call_is_cancelled_at_its_server_and_not_answered(place: Place, mode: str) -> None:
    place.serve()
    place.add("echo", [*ECHO, str(place.data_dir)])
    modern = mode == MODERN
    async with talking(place) as talk:
        if not modern:
            await talk.open()
        for identity in (1, "1"):
            talk.ask("tools/call", identity, modern, name="echo.wait", arguments={"seconds": 3})
        await place.in_flight(2)
        await talk.cancel(1)
        await appears(place.data_dir / "cancelled")
        assert "result" in await talk.answer("tools/list", 2, modern)
        assert (await talk.read())["id"] == "1"


async def appears(file: Path, seconds: float = 5) -> None:
    async def there() -> bool:
        return await asyncio.to_thread(file.exists)

    assert await eventually(there, bool, seconds)


@both_eras
async def test_the_end_of_stdin_cancels_what_runs_and_ends_the_session(place: Place, mode: str) -> None:
    place.serve()
    place.add("echo", [*ECHO, str(place.data_dir)])
    async with talking(place) as talk:
        if mode != MODERN:
            await talk.open()
        talk.ask("tools/call", 1, mode == MODERN, name="echo.wait", arguments={"seconds": 30})
        await place.in_flight(1)
        assert await talk.close() == 0
        await appears(place.data_dir / "cancelled")


async def test_answers_come_as_they_are_ready_each_under_its_own_id(place: Place) -> None:
    place.serve()
    place.add("echo", [*ECHO, str(place.data_dir)])
    async with talking(place) as talk:
        talk.ask("tools/call", "slow", True, name="echo.wait", arguments={"seconds": 1.5})
        for number in range(100):
            talk.ask("tools/call", number, True, name="echo.echo", arguments={"text": f"said {number}"})
        for _ in range(100):
            answer = await talk.read()
            assert f'said {answer["id"]}"' in answer["result"]["content"][0]["text"]
        assert (await talk.read())["id"] == "slow"


async def test_what_is_no_message_is_answered_as_an_error_and_harms_nobody(place: Place) -> None:
    place.serve()
    async with talking(place, MCP_AGGREGATOR_BODY_LIMIT="5000") as talk:
        big = {"jsonrpc": "2.0", "id": "big", "method": "tools/list", "params": {"x": "y" * 6000}}
        for data, identity, code in (
            (b"half a line\n", None, -32700),
            (b"\xff\xfe\n", None, -32700),
            (b"[]\n", None, -32600),
            (b'{"jsonrpc":"2.0","id":null,"method":"ping"}\n', None, -32600),
            (b"[" * 4000 + b"\n", None, -32600),
            (json.dumps(big).encode() + b"\n", "big", -32600),
            (b'{"jsonrpc":"2.0","id":5,"method":"tools/list"}\n', 5, -32600),
        ):
            talk.write(data)
            answer = await talk.read()
            assert (answer["id"], answer["error"]["code"]) == (identity, code), data
        talk.write(b"\n \n", INITIALIZED, {"jsonrpc": "2.0", "id": "nobody asked", "result": {}})
        talk.ask("server/discover", 6, True, meta={"io.modelcontextprotocol/protocolVersion": "2031-01-01"})
        answer = await talk.read()
        assert (answer["id"], answer["error"]["code"]) == (6, -32022)
        assert "result" in await talk.answer("tools/list", 7, True)
        talk.write(b'{"jsonrpc":"2.0","id":8,')
        talk.stdin.close()
        assert (await talk.read())["error"]["code"] == -32700
        assert await talk.process.wait() == 0


async def test_lines_written_at_once_are_all_answered(place: Place) -> None:
    """As `printf … | trunkline stdio` does it: nobody waits for the handshake, and stdin ends."""
    place.serve()
    async with talking(place) as talk:
        talk.ask("initialize", 1, **HELLO)
        talk.write(INITIALIZED)
        talk.ask("tools/list", 2)
        talk.stdin.close()
        answers = {answer["id"]: answer for answer in (await talk.read(), await talk.read())}
        assert "result" in answers[1]
        assert "result" in answers[2]
        assert await talk.process.wait() == 0


@both_eras
async def test_it_outlives_a_gateway_that_is_started_anew(place: Place, mode: str) -> None:
    """A call is not repeated for the client; what its session held is there again."""
    place.serve("--port", "0")
    place.add("every", EVERYTHING)
    modern = mode == MODERN
    async with talking(place) as talk:
        if not modern:
            await talk.open()
            assert "result" in await talk.answer("logging/setLevel", 1, level="error")
        place.add("echo", [*ECHO, str(place.data_dir)])
        talk.ask("tools/call", "lost", modern, name="echo.wait", arguments={"seconds": 30})
        await place.in_flight(1)
        await asyncio.to_thread(place.stop)
        lost = await talk.until(lambda message: message.get("id") == "lost")
        assert "Whether it had an effect is not known" in lost["error"]["message"]
        await asyncio.to_thread(place.serve)
        if not modern:
            changed = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
            await talk.until(lambda message: message == changed, 40)
        tools = (await talk.answer("tools/list", 2, modern))["result"]["tools"]
        assert "every__test_simple_text" in {tool["name"] for tool in tools}
        assert await talk.close() == 0


async def test_a_call_into_a_forgotten_session_is_not_repeated(place: Place) -> None:
    place.serve()
    async with talking(place) as talk:
        await talk.open()
        assert place.serving is not None
        port = place.serving.url.rpartition(":")[2]
        await asyncio.to_thread(place.stop)
        await asyncio.to_thread(place.serve, "--port", port)
        answers = [await talk.answer("tools/call", number, name="x.y", arguments={}) for number in range(3)]
        said = [answer["error"]["message"] for answer in answers]
        assert "call again" in said[0] or "Tool not found" in said[0]
        assert "Tool not found" in said[2]


async def test_the_second_client_uses_the_gateway_of_the_first_and_goes_on_without_it(place: Place) -> None:
    async with talking(place) as first:
        await first.open()
        async with talking(place) as second:
            await second.open()
            place.add("echo", [*ECHO, str(place.data_dir)])
            call: dict[str, Any] = {"name": "echo__echo", "arguments": {"text": "once"}}
            assert "result" in await second.answer("tools/call", 1, **call)
            assert await first.close() == 0
            listed = await second.answer("tools/list", 2)
            assert len(listed["result"]["tools"]) > 0
            with contextlib.suppress(FileNotFoundError):
                word = json.loads((place.data_dir / "gateway.json").read_text())
                assert word["pid"] == second.process.pid
            assert await second.close() == 0
    assert not (place.data_dir / "gateway.json").exists()


async def test_it_ends_in_good_order_when_told_to_and_when_nobody_reads(place: Place) -> None:
    for attached in (False, True):
        if attached:
            place.serve()
        async with talking(place) as talk:
            await talk.open()
            talk.process.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(talk.process.wait(), 20) == 0
    reading, writing = os.pipe()
    process = await asyncio.create_subprocess_exec(
        *COMMAND, "stdio", "--data-dir", str(place.data_dir),
        stdin=asyncio.subprocess.PIPE, stdout=writing, env=clean_environment(),
    )  # fmt: skip
    os.close(reading)
    os.close(writing)
    assert process.stdin is not None
    process.stdin.write(b"{\n")
    assert await asyncio.wait_for(process.wait(), 20) == 0


async def test_it_says_why_there_is_no_gateway(place: Place) -> None:
    done = place.cli("stdio", "--url", "http://127.0.0.1:9")
    assert (done.code, done.out) == (3, "")
    assert "No gateway answers at http://127.0.0.1:9" in done.err
    place.serve()
    wrong = place.cli("stdio", "--key", "wrong")
    assert (wrong.code, wrong.out) == (1, "")
    assert "UNAUTHORIZED" in wrong.err


async def test_a_server_that_is_not_there_is_said_to_be_not_there(place: Place) -> None:
    place.serve()
    async with talking(place, "--server", "no body") as talk:
        answer = await talk.answer("initialize", 1, **HELLO)
        assert answer["error"]["message"] == "Server not found: no body"
