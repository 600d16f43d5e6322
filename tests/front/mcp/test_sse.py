"""HTTP+SSE: the official client over it, and by hand what that client would not do."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import mcp_types as types
import pytest
from mcp import Client
from mcp.client.sse import sse_client

from tests.front.conftest import Running, registered, until
from tests.servers.peers import THIS_PYTHON
from trunkline.front.mcp import channel, sse
from trunkline.model import Scope, ServerStatus

EVERYTHING = Path(__file__).parents[2] / "conformance" / "everything_server.py"
HELLO = {"protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
SLOW = {"name": "echo.wait", "arguments": {"seconds": 20}}

pytestmark = pytest.mark.filterwarnings("default::mcp.shared.exceptions.MCPDeprecationWarning")


class Stream:
    """One connection, read and written by hand."""

    def __init__(self, front: Running, response: aiohttp.ClientResponse) -> None:
        self._front = front
        self.response = response
        self.endpoint = ""

    async def event(self, seconds: float = 5) -> tuple[str, str]:
        """The next event; keep-alives are passed over."""
        kind = data = ""
        async with asyncio.timeout(seconds):
            while line := (await self.response.content.readline()).decode():
                name, _, value = line.rstrip("\n").partition(": ")
                if name == "event":
                    kind = value
                elif name == "data":
                    data = value
                elif line == "\n" and data:
                    return kind, data
        raise EOFError

    async def message(self, seconds: float = 5) -> Any:
        kind, data = await self.event(seconds)
        assert kind == "message"
        return json.loads(data)

    async def post(self, message: object, scope: Scope = Scope.ADMIN, **more: Any) -> tuple[int, Any]:
        return await self._front.ask("POST", self.endpoint, scope=scope, json=message, **more)

    async def ask(self, method: str, params: object = None, identity: int | str = 1) -> Any:
        message = {"jsonrpc": "2.0", "id": identity, "method": method, "params": params or {}}
        assert await self.post(message) == (202, None)
        answer = await self.message()
        assert answer["id"] == identity
        return answer["result"] if "result" in answer else answer["error"]

    async def call(self, params: object, identity: int | str) -> None:
        """Without waiting for the answer."""
        message = {"jsonrpc": "2.0", "id": identity, "method": "tools/call", "params": params}
        assert (await self.post(message))[0] == 202


@contextlib.asynccontextmanager
async def connected(front: Running, path: str = "/sse", *, hello: bool = True) -> AsyncIterator[Stream]:
    async with front.client.get(front.url + path, headers=front.bearer()) as response:
        assert response.status == 200
        assert response.content_type == "text/event-stream"
        stream = Stream(front, response)
        kind, stream.endpoint = await stream.event()
        assert kind == "endpoint"
        if hello:
            assert (await stream.ask("initialize", HELLO))["protocolVersion"] == "2024-11-05"
            note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
            assert await stream.post(note) == (202, None)
        yield stream


async def everything(front: Running, era: str) -> None:
    config = {"command": THIS_PYTHON, "args": [str(EVERYTHING), "stdio", "--era", era]}
    body = {"name": "every", "transport_type": "STDIO", "connection_config": config}
    status, answer = await front.ask("POST", "/api/v1/aggregator/servers", json=body)
    assert status == 201, answer

    def ready() -> bool:
        server = front.gateway.get_server("every")
        return server.status is ServerStatus.CONNECTED and server.tool_count > 0

    await until(ready, 20)


def sdk(front: Running, path: str = "/sse", **callbacks: Any) -> Client:
    return Client(sse_client(front.url + path, headers=front.bearer()), mode="legacy", **callbacks)


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_the_official_client_lists_calls_hears_progress_and_is_asked(front: Running, era: str) -> None:
    await everything(front, era)
    seen: list[float] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        seen.append(progress)

    async def accept(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"username": "told", "email": "told"})

    async with sdk(front, elicitation_callback=accept) as client:
        assert "every__test_simple_text" in {tool.name for tool in (await client.list_tools()).tools}
        await client.call_tool("every__test_tool_with_progress", progress_callback=on_progress)
        assert seen == [0, 50, 100]
        asked = await client.call_tool("every__test_elicitation", {"message": "Who?"})
        assert "told" in str(asked.content)
        assert (await client.get_prompt("every__test_simple_prompt")).messages
        assert (await client.read_resource("test://static-text")).contents
    async with sdk(front, "/sse/servers/every") as client:
        assert "test_simple_text" in {tool.name for tool in (await client.list_tools()).tools}


async def test_changes_of_the_lists_are_told(front: Running, tmp_path: Path) -> None:
    async with connected(front) as stream:
        await registered(front, tmp_path)
        heard = await stream.message(10)
        assert heard == {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}


async def test_a_session_begins_with_initialize_once(front: Running) -> None:
    async with connected(front, hello=False) as stream:
        assert await stream.ask("ping") == {}
        assert (await stream.ask("tools/list"))["message"] == "A session begins with initialize"
        assert "serverInfo" in await stream.ask("initialize", HELLO)
        assert "initialized already" in (await stream.ask("initialize", HELLO))["message"]
        assert (await stream.ask("tools/list")) == {"tools": []}


async def test_many_calls_at_once_are_answered_each_under_its_own_id(front: Running, echo: str) -> None:
    async with connected(front) as stream:
        for number in range(40):
            await stream.call({"name": "echo.echo", "arguments": {"text": f"said {number}"}}, f"id-{number}")
        answers = {(answer := await stream.message())["id"]: str(answer["result"]) for _ in range(40)}
        for number in range(40):
            assert f'"text": "said {number}"' in answers[f"id-{number}"]


async def test_a_withdrawn_call_is_cancelled_and_not_answered(
    front: Running, echo: str, tmp_path: Path
) -> None:
    async with connected(front) as stream:
        await stream.call(SLOW, 5)
        await asyncio.sleep(0.2)
        note = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 5}}
        assert (await stream.post(note))[0] == 202
        await until((tmp_path / "cancelled").exists)
        assert await stream.ask("ping", identity=6) == {}


async def test_the_end_of_the_stream_ends_the_session_and_its_calls(
    front: Running, echo: str, tmp_path: Path
) -> None:
    async with connected(front) as stream:
        await stream.call(SLOW, 5)
        await asyncio.sleep(0.2)
        stream.response.close()
    await until((tmp_path / "cancelled").exists)
    status, refusal = await stream.post({"jsonrpc": "2.0", "id": 1, "method": "ping"})
    assert (status, refusal["id"]) == (404, 1)


async def test_a_session_is_its_keys_and_its_addresss_alone(front: Running, echo: str) -> None:
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    async with connected(front, "/sse/servers/echo") as stream:
        assert stream.endpoint.startswith("/messages/servers/echo?session_id=")
        assert len(stream.endpoint.partition("=")[2]) >= 22
        assert (await stream.post(ping, Scope.CALL))[0] == 404
        elsewhere = stream.endpoint.replace("/servers/echo", "")
        assert (await front.ask("POST", elsewhere, json=ping))[0] == 404
        assert await stream.ask("ping") == {}
    assert (await front.ask("POST", "/messages", json=ping))[0] == 404
    assert (await front.ask("GET", "/sse/servers/nobody"))[0] == 404


async def test_bad_messages_are_refused_and_harm_nobody(front: Running) -> None:
    async with connected(front) as stream:
        for data, status, code in (
            (b"{", 400, -32700),
            (b"[]", 400, -32600),
            (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', 400, -32600),
            (b"[" * 10_000, 400, -32600),
        ):
            answer = await front.ask(
                "POST", stream.endpoint, data=data, headers={"Content-Type": "application/json"}
            )
            assert (answer[0], answer[1]["error"]["code"]) == (status, code), data
        assert (await front.ask("POST", stream.endpoint, data=b"{}"))[0] == 415
        assert (await stream.post("x" * (5 << 20)))[0] == 413
        assert (await front.ask("GET", stream.endpoint))[0] == 405
        assert (await front.ask("POST", "/sse", json={}))[0] == 405
        assert await stream.ask("ping") == {}


async def test_the_doors_of_every_mount_hold_here_too(front: Running) -> None:
    async with front.client.get(front.url + "/sse") as answer:
        assert answer.status == 401
    for headers, status in (
        ({"Host": "evil.example"}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Accept": "application/json"}, 406),
    ):
        async with front.client.get(front.url + "/sse", headers={**front.bearer(), **headers}) as answer:
            assert answer.status == status


async def test_a_silent_stream_is_kept_alive(front: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    assert channel.KEEP_ALIVE_SECONDS == 15
    monkeypatch.setattr(channel, "KEEP_ALIVE_SECONDS", 0.1)
    async with connected(front) as stream:
        assert await asyncio.wait_for(stream.response.content.readline(), 5) == b": keep-alive\n"


async def test_too_many_requests_at_once_are_told_to_come_back(
    front: Running, echo: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sse, "MOST_AT_ONCE", 2)
    async with connected(front) as stream:
        for number in range(2):
            await stream.call(SLOW, number)
        message = {"jsonrpc": "2.0", "id": 9, "method": "ping"}
        url, headers = front.url + stream.endpoint, front.bearer()
        async with front.client.post(url, json=message, headers=headers) as answer:
            assert (answer.status, answer.headers["Retry-After"]) == (503, "1")


async def test_no_answer_is_lost_on_a_client_that_reads_late(
    front: Running, echo: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is dropped for a slow reader are notifications, never answers."""
    monkeypatch.setattr(channel, "MOST_BYTES", 200_000)
    async with connected(front) as stream:
        for number in range(100):
            await stream.call({"name": "echo.echo", "arguments": {"text": "x" * 60_000}}, number)
        await asyncio.sleep(1)
        assert sorted([(await stream.message(10))["id"] for _ in range(100)]) == list(range(100))
