"""The relay of `trunkline stdio` against a gateway whose every answer the test decides, and can look into."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.front.conftest import until
from trunkline.cli.stdio import relay as relay_module
from trunkline.cli.stdio.home import Home, Wanted
from trunkline.cli.stdio.link import Link
from trunkline.cli.stdio.relay import Relay
from trunkline.settings import Settings
from trunkline.telemetry import Redactor
from trunkline.wire.lines import Oversized

MODERN, LEGACY = "2026-07-28", "2025-11-25"
NAMESPACE = "io.modelcontextprotocol/"
ENVELOPE = {NAMESPACE + "protocolVersion": MODERN, NAMESPACE + "clientCapabilities": {}}
HELLO = {
    "protocolVersion": LEGACY,
    "capabilities": {"roots": {}},
    "clientInfo": {"name": "t", "version": "1"},
}
Answer = Callable[[web.Request, dict[str, Any]], Awaitable[web.StreamResponse]]


class Gateway:
    """Keeps what it was sent; answers as the test says, or as a session of the older era is answered."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, dict[str, str], Any]] = []
        self.sessions = 0
        self.answer: Answer | None = None
        self.events: asyncio.Queue[bytes | None] = asyncio.Queue()

    async def serve(self, request: web.Request) -> web.StreamResponse:
        if request.path == "/health":
            return web.json_response({"status": "healthy"})
        message = json.loads(await request.read() or b"null")
        self.seen.append((request.method, dict(request.headers), message))
        if request.method == "GET":
            return await self._listen(request)
        if request.method == "DELETE":
            return web.Response(status=204)
        if message.get("method") == "initialize" and self.answer is None:
            self.sessions += 1
            result = {
                "protocolVersion": LEGACY,
                "capabilities": {},
                "serverInfo": {"name": "g", "version": ""},
            }
            return told(message, result, {"Mcp-Session-Id": f"s{self.sessions}"})
        if self.answer is not None:
            return await self.answer(request, message)
        session = request.headers.get("Mcp-Session-Id")
        if session is not None and session != f"s{self.sessions}":
            return web.json_response(error(message, -32600, "There is no such session"), status=404)
        return told(message, {}) if "id" in message else web.Response(status=202)

    async def _listen(self, request: web.Request) -> web.StreamResponse:
        if request.headers["Mcp-Session-Id"] != f"s{self.sessions}":
            return web.json_response(error({}, -32600, "There is no such session"), status=404)
        response = await stream(request)
        with contextlib.suppress(ConnectionError):
            while (event := await self.events.get()) is not None:
                await response.write(event)
        return response

    @property
    def methods(self) -> list[str]:
        return [message["method"] for verb, _, message in self.seen if verb == "POST" and "method" in message]

    def last(self, method: str) -> dict[str, Any]:
        return next(
            message for _, _, message in reversed(self.seen) if message and message["method"] == method
        )

    def headers_of(self, verb: str) -> list[dict[str, str]]:
        return [headers for each, headers, _ in self.seen if each == verb]


def told(
    message: dict[str, Any], result: dict[str, Any], headers: dict[str, str] | None = None
) -> web.Response:
    body = {"jsonrpc": "2.0", "id": message["id"], "result": result}
    return web.json_response(body, headers=headers)


def error(message: dict[str, Any], code: int, said: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": message.get("id"), "error": {"code": code, "message": said}}


async def stream(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    await response.write(b": here\n\n")
    return response


class Client:
    def __init__(self, relay: Relay, said: list[Any]) -> None:
        self.relay = relay
        self.said = said

    async def tell(self, method: str, **params: Any) -> None:
        await self.relay.take(json.dumps({"jsonrpc": "2.0", "method": method, "params": params}).encode())

    async def ask(self, method: str, identity: int | str = 1, **params: Any) -> Any:
        await self.send(method, identity, **params)
        return await self.answer(identity)

    async def send(self, method: str, identity: int | str = 1, **params: Any) -> None:
        message = {"jsonrpc": "2.0", "id": identity, "method": method, "params": params}
        await self.relay.take(json.dumps(message).encode())

    async def answer(self, identity: int | str = 1) -> Any:
        """Taken out of what was said."""

        def place() -> int | None:
            found = (index for index, each in enumerate(self.said) if each.get("id") == identity)
            return next(found, None)

        await until(lambda: place() is not None)
        return self.said.pop(place() or 0)

    async def open(self) -> None:
        assert "result" in await self.ask("initialize", "hello", **HELLO)
        await self.tell("notifications/initialized")


@pytest.fixture
async def gateway() -> Gateway:
    return Gateway()


@pytest.fixture
async def client(gateway: Gateway, tmp_path: Path) -> AsyncIterator[Client]:
    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", gateway.serve)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    said: list[Any] = []

    async def say(line: bytes) -> None:
        assert b"\n" not in line
        said.append(json.loads(line))

    wanted = Wanted(f"http://127.0.0.1:{port}", "the-key", tmp_path, "/mcp")
    home = Home(wanted, Settings(data_dir=tmp_path), Redactor(), on_own_ended=lambda: None)
    relay = Relay(Link(home, say), limit=1000)
    yield Client(relay, said)
    await relay.finish()
    await home.close()
    await runner.cleanup()


async def test_a_session_is_carried_in_headers_and_left_in_the_end(gateway: Gateway, client: Client) -> None:
    await client.open()
    assert (await client.ask("tools/list"))["result"] == {}
    await client.relay.take(b'{"jsonrpc":"2.0","id":"theirs","result":{"roots":[]}}')
    await client.relay.finish()
    verbs = [(verb, headers.get("Mcp-Session-Id")) for verb, headers, _ in gateway.seen]
    assert verbs[0] == ("POST", None)
    assert verbs[-1] == ("DELETE", "s1")
    assert {session for _, session in verbs[1:]} == {"s1"}
    assert gateway.seen[0][1]["Authorization"] == "Bearer the-key"
    assert gateway.headers_of("DELETE")[0]["MCP-Protocol-Version"] == LEGACY
    assert {"id": "theirs", "jsonrpc": "2.0", "result": {"roots": []}} in [it for _, _, it in gateway.seen]


async def test_a_forgotten_session_is_opened_anew_as_it_was(gateway: Gateway, client: Client) -> None:
    await client.open()
    await client.ask("logging/setLevel", level="error")
    for uri in ("a:1", "a:2"):
        await client.ask("resources/subscribe", uri=uri)
    await client.ask("resources/unsubscribe", uri="a:1")
    gateway.sessions, before = 7, len(gateway.methods)
    assert (await client.ask("prompts/list"))["result"] == {}
    assert gateway.methods[before:] == [
        *("prompts/list", "initialize", "notifications/initialized", "logging/setLevel"),
        *("resources/subscribe", "prompts/list"),
    ]
    assert gateway.last("initialize")["params"] == HELLO
    assert gateway.last("logging/setLevel")["params"] == {"level": "error"}
    assert gateway.last("resources/subscribe")["params"] == {"uri": "a:2"}
    told_of = [each["method"] for each in client.said]
    assert told_of == [f"notifications/{kind}/list_changed" for kind in ("tools", "prompts", "resources")]


async def test_a_call_into_a_forgotten_session_is_not_sent_again(gateway: Gateway, client: Client) -> None:
    await client.open()
    gateway.sessions = 7
    both = await asyncio.gather(*(client.ask("tools/call", number, name="x") for number in (1, 2)))
    assert all("call again" in each["error"]["message"] for each in both)
    assert gateway.methods.count("tools/call") == 2
    assert gateway.methods.count("initialize") == 2
    assert "result" in await client.ask("tools/call", 3, name="x")


async def test_the_stream_of_a_session_is_taken_up_where_it_ended(gateway: Gateway, client: Client) -> None:
    await client.open()
    note = b'{"jsonrpc":"2.0",\ndata: "method":"notifications/x"}'
    gateway.events.put_nowait(b"id: g-4\ndata: %b\n\n" % note)
    gateway.events.put_nowait(None)
    await until(lambda: len(gateway.headers_of("GET")) == 2)
    assert gateway.headers_of("GET")[1]["Last-Event-ID"] == "g-4"
    assert client.said == [{"jsonrpc": "2.0", "method": "notifications/x"}]
    gateway.sessions = 7
    gateway.events.put_nowait(None)
    await until(lambda: len(gateway.headers_of("GET")) == 4, 20)
    assert gateway.headers_of("GET")[3]["Mcp-Session-Id"] == "s8"


@pytest.mark.parametrize(
    ("method", "params", "name"),
    [
        ("tools/list", {}, None),
        ("tools/call", {"name": "files__read"}, "files__read"),
        ("prompts/get", {"name": "größe"}, "=?base64?Z3LDtsOfZQ==?="),
        ("resources/read", {"uri": "file:///a b"}, "file:///a b"),
        ("resources/read", {"uri": "=?base64?eA==?="}, "=?base64?PT9iYXNlNjQ/ZUE9PT89?="),
    ],
)
async def test_an_enveloped_request_is_mirrored_in_headers(
    gateway: Gateway, client: Client, method: str, params: dict[str, Any], name: str | None
) -> None:
    assert "result" in await client.ask(method, _meta=ENVELOPE, **params)
    [headers] = gateway.headers_of("POST")
    assert headers["MCP-Protocol-Version"] == MODERN
    assert headers["Mcp-Method"] == method
    assert headers.get("Mcp-Name") == name
    assert "Mcp-Session-Id" not in headers


async def test_arguments_a_tool_wants_mirrored_are_learned_when_they_lack(
    gateway: Gateway, client: Client
) -> None:
    schema = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}
    tool = {"name": "s__tool", "inputSchema": schema, "_meta": {"trunkline/name": "s.tool"}}

    async def answer(request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        if message["method"] == "tools/list":
            first = "cursor" not in message["params"]
            return told(message, {"tools": [], "nextCursor": "2"} if first else {"tools": [tool]})
        if request.headers.get("Mcp-Param-Region") != message["params"]["arguments"]["region"]:
            return web.json_response(error(message, -32020, "Mcp-Param-Region is missing"), status=400)
        return told(message, {"region": "ok"})

    gateway.answer = answer
    for identity, name in enumerate(("s__tool", "s.tool", "tool")):
        call = {"name": name, "arguments": {"region": "north"}, "_meta": ENVELOPE}
        assert (await client.ask("tools/call", identity, **call))["result"] == {"region": "ok"}
    before = len(gateway.methods)
    call = {"name": "tool", "arguments": {"region": "south"}, "_meta": ENVELOPE}
    assert (await client.ask("tools/call", 9, **call))["result"] == {"region": "ok"}
    assert gateway.methods[before:] == ["tools/call"]
    other = {"name": "other", "arguments": {"region": "south"}, "_meta": ENVELOPE}
    assert (await client.ask("tools/call", 9, **other))["error"]["code"] == -32020


async def test_a_withdrawn_request_closes_its_post_and_is_not_answered(
    gateway: Gateway, client: Client
) -> None:
    closed = asyncio.Event()

    async def answer(request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        response = await stream(request)
        with contextlib.suppress(ConnectionError, asyncio.CancelledError):
            while request.transport is not None and not request.transport.is_closing():
                await response.write(b": still\n\n")
                await asyncio.sleep(0.02)
        closed.set()
        return response

    gateway.answer = answer
    await client.send("tools/call", "1", name="x", _meta=ENVELOPE)
    await client.send("tools/call", 1, name="x", _meta=ENVELOPE)
    await until(lambda: len(gateway.seen) == 2)
    await client.tell("notifications/cancelled", requestId=1)
    await asyncio.wait_for(closed.wait(), 5)
    await client.tell("notifications/cancelled", requestId=77)
    await asyncio.sleep(0.1)
    assert client.said == []
    assert len(gateway.seen) == 2


async def test_a_broken_stream_is_an_error_and_for_a_listener_the_end(
    gateway: Gateway, client: Client
) -> None:
    async def answer(request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        response = await stream(request)
        await response.write(b'data: {"jsonrpc":"2.0","method":"notifications/progress"}\n\n')
        if message["id"] == "torn" and request.transport is not None:
            request.transport.close()
        return response

    gateway.answer = answer
    for identity in ("ended", "torn"):
        broken = await client.ask("tools/call", identity, name="x", _meta=ENVELOPE)
        assert broken["error"]["message"].endswith("Whether it had an effect is not known")
        ended = await client.ask("subscriptions/listen", identity, notifications={}, _meta=ENVELOPE)
        assert ended["result"]["resultType"] == "complete"
        assert ended["result"]["_meta"] == {NAMESPACE + "subscriptionId": identity}
    assert [each["method"] for each in client.said] == ["notifications/progress"] * 4


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (web.json_response({"detail": "Too large", "error_code": "X"}, status=413), "Too large"),
        (web.Response(text="<html>", status=502), "The gateway answered with status 502 and no message"),
        (web.Response(status=202), "The gateway answered with status 202 and no message"),
        (web.json_response(error({}, -32600, "Who?"), status=400), "Who?"),
    ],
)
async def test_whatever_comes_back_a_request_has_one_answer(
    gateway: Gateway, client: Client, answer: web.Response, said: str
) -> None:
    async def give(request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        return answer

    gateway.answer = give
    found = await client.ask("tools/list", _meta=ENVELOPE)
    assert found["error"]["message"] == said


async def test_there_is_a_most_of_requests_at_once(
    gateway: Gateway, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    going_on = asyncio.Event()

    async def answer(request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        await going_on.wait()
        return told(message, {})

    gateway.answer = answer
    monkeypatch.setattr(relay_module, "MOST_AT_ONCE", 2)
    for identity in (1, 2, 3):
        await client.send("tools/list", identity, _meta=ENVELOPE)
    assert "the most there may be at once" in (await client.answer(3))["error"]["message"]
    going_on.set()
    assert "result" in await client.answer(1)
    assert "result" in await client.answer(2)


async def test_a_line_too_long_is_answered_under_its_id(client: Client) -> None:
    await client.relay.take(Oversized(2000, None, 7))
    assert "larger than 1000 bytes" in (await client.answer(7))["error"]["message"]


async def test_what_is_cancelled_before_it_began_takes_no_place(gateway: Gateway, client: Client) -> None:
    """A request and the word against it come in one piece: neither is left behind."""
    for half in ("first", "second"):
        for number in range(relay_module.MOST_AT_ONCE - 1):
            await client.send("tools/call", number, name="x", _meta=ENVELOPE)
            await client.tell("notifications/cancelled", requestId=number)
        assert "result" in await client.ask("tools/list", half, _meta=ENVELOPE)
    assert client.said == []


async def test_one_word_cancels_all_that_have_its_id(gateway: Gateway, client: Client) -> None:
    closed = 0

    async def answer(request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        nonlocal closed
        response = await stream(request)
        with contextlib.suppress(ConnectionError, asyncio.CancelledError):
            while request.transport is not None and not request.transport.is_closing():
                await response.write(b": still\n\n")
                await asyncio.sleep(0.02)
        closed += 1
        return response

    gateway.answer = answer
    for _ in range(3):
        await client.send("tools/call", 7, name="x", _meta=ENVELOPE)
    await until(lambda: gateway.methods.count("tools/call") == 3)
    await client.tell("notifications/cancelled", requestId=7)
    await until(lambda: closed == 3)
    assert client.said == []
