"""The streamable-HTTP wire against servers on loopback: one that misbehaves by script, and the SDK's."""

import asyncio
import json
import random
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from tests.servers.bad_http import BadHttp, Talk, error, notification, redirect_to, result
from tests.upstream.network import MIB, Heard, outbound_client, redact, sdk_server, until
from trunkline.errors import (
    ConfigurationFault,
    CredentialsRejected,
    Lost,
    NotSent,
    ProtocolViolation,
    RpcError,
    SessionGone,
    UpstreamBusy,
    UpstreamError,
)
from trunkline.model import HttpSpec
from trunkline.upstream.http import HttpWire
from trunkline.upstream.wires import Exchange
from trunkline.wire import eras
from trunkline.wire.eras import Introduction

LEGACY = Introduction("2025-11-25", {"tools": {"listChanged": True}}, None)
MODERN = Introduction(eras.MODERN, {"tools": {"listChanged": True}}, None)


class Line:
    """A wire, what it told its owner, and the keys of its exchanges."""

    def __init__(self, url: str, *, limit: int = 16 * MIB, headers: dict[str, str] | None = None) -> None:
        spec = HttpSpec(url, headers or {})
        self.heard = Heard()
        self.wire = HttpWire(spec, name="bad", client=outbound_client(), message_limit=limit, redact=redact)
        self.modern = False
        self._key = 0

    def exchange(self, method: str, params: bytes = b"") -> Exchange:
        self._key += 1
        params = eras.with_meta(params, eras.request_meta(modern=self.modern))
        name = json.loads(params).get("name")
        headers = eras.modern_headers(method, name) if self.modern else {}
        return Exchange(self._key, method, params, headers)

    async def ask(self, method: str, params: bytes = b"") -> bytes:
        return await self.wire.exchange(self.exchange(method, params))

    async def call(self, **arguments: object) -> dict[str, object]:
        answer = await self.ask("tools/call", call_params(arguments))
        content: dict[str, object] = json.loads(answer)["structuredContent"]
        return content

    async def greet(self) -> None:
        """The handshake of either era."""
        if self.modern:
            introduction = eras.read_discovery(await self.ask("server/discover"))
        else:
            introduction = eras.read_initialization(await self.ask("initialize", eras.initialize_params()))
        assert introduction is not None
        await self.wire.introduced(introduction)
        if not self.modern:
            await self.wire.notify("notifications/initialized")


def call_params(arguments: dict[str, object], tool: str = "echo") -> bytes:
    return json.dumps({"name": tool, "arguments": arguments}).encode()


@asynccontextmanager
async def line_to(url: str, *, modern: bool = False, limit: int = 16 * MIB) -> AsyncIterator[Line]:
    line = Line(url, limit=limit)
    line.modern = modern
    await line.wire.open(line.heard)
    try:
        yield line
    finally:
        await line.wire.close()


@asynccontextmanager
async def greeted(server: BadHttp, *, limit: int = 16 * MIB) -> AsyncIterator[Line]:
    async with line_to(server.url, modern=server.modern, limit=limit) as line:
        await line.greet()
        yield line


@pytest.fixture(params=["legacy", "modern"])
def era(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["json", "events"])
async def server(request: pytest.FixtureRequest, era: str) -> AsyncIterator[BadHttp]:
    async with BadHttp(modern=era == "modern", events=request.param == "events") as server:
        yield server


@pytest.fixture
async def legacy() -> AsyncIterator[BadHttp]:
    async with BadHttp() as server:
        yield server


@pytest.fixture
async def modern() -> AsyncIterator[BadHttp]:
    async with BadHttp(modern=True) as server:
        yield server


@pytest.fixture(scope="module")
def sdk() -> Iterator[str]:
    with sdk_server("http") as url:
        yield url


# Calls


async def test_a_call_is_answered_in_either_era_and_either_form(server: BadHttp) -> None:
    """R-11: a streamable-HTTP upstream is shaken hands with and called."""
    async with greeted(server) as line:
        assert await line.call(text="hello") == {"text": "hello"}
        assert line.heard.noise == []
        assert asyncio.get_running_loop().time() - line.wire.last_heard < 1


async def test_one_connection_serves_one_call_after_another(server: BadHttp) -> None:
    async with greeted(server) as line:
        for number in range(20):
            await line.call(number=number)
            await asyncio.sleep(0)
        ports = {seen.peer for seen in server.requests("tools/call")}
        assert len(ports) <= 2


async def test_the_session_of_the_older_era_is_kept_named_and_ended(legacy: BadHttp) -> None:
    async with greeted(legacy) as line:
        await line.call()
    first, call = legacy.requests("initialize")[0], legacy.requests("tools/call")[0]
    assert "mcp-session-id" not in first.headers
    assert "mcp-protocol-version" not in first.headers
    assert call.headers["mcp-session-id"] == "session-1"
    assert call.headers["mcp-protocol-version"] == "2025-11-25"
    assert call.headers["accept"] == "application/json, text/event-stream"
    assert call.headers["content-type"] == "application/json"
    assert legacy.requests("notifications/initialized")[0].headers["mcp-session-id"] == "session-1"
    assert legacy.deleted == ["session-1"]


async def test_the_newer_era_carries_the_mirrored_headers_and_no_session(modern: BadHttp) -> None:
    async with greeted(modern) as line:
        await line.call()
    call = modern.requests("tools/call")[0]
    assert call.headers["mcp-protocol-version"] == "2026-07-28"
    assert call.headers["mcp-method"] == "tools/call"
    assert call.headers["mcp-name"] == "echo"
    assert "mcp-session-id" not in call.headers
    assert modern.deleted == []


async def test_registered_headers_travel_and_the_transports_own_cannot_be_set(legacy: BadHttp) -> None:
    line = Line(legacy.url, headers={"Authorization": "Bearer t", "Content-Length": "3", "ACCEPT": "x/y"})
    await line.wire.open(line.heard)
    await line.greet()
    assert await line.call(a=1) == {"a": 1}
    await line.wire.close()
    call = legacy.requests("tools/call")[0]
    assert call.headers["authorization"] == "Bearer t"
    assert call.headers["accept"] == "application/json, text/event-stream"
    assert call.headers["accept-encoding"] == "identity"


async def test_a_header_with_a_line_end_is_a_fault_of_the_registration(legacy: BadHttp) -> None:
    line = Line(legacy.url, headers={"X": "a\r\nEvil: b"})
    with pytest.raises(ConfigurationFault):
        await line.wire.open(line.heard)
    assert legacy.connections == 0


@pytest.mark.parametrize("form", ["json", "events"])
@pytest.mark.parametrize("size", [65536 - 1, 65536, 65536 + 1, MIB - 1, MIB, MIB + 1, 10 * MIB])
async def test_results_and_arguments_of_every_size_pass_byte_for_byte(
    legacy: BadHttp, size: int, form: str
) -> None:
    """R-30: nothing is added, dropped or written anew, unknown fields included."""
    value = (
        b'{"content":[{"type":"hologram","\\u0041":1.50}],"unknown" : {"x":null},"pad":"'
        + b"x" * size
        + b'"}'
    )

    async def call(talk: Talk) -> None:
        answer = result(talk.seen.message["id"], value)
        if form == "json":
            await talk.json(answer)
        else:
            await talk.start_events()
            await talk.event(answer)
            await talk.end_events()

    legacy.call = call
    params = b'{"name":"echo","arguments":{"n" : 1.50,"pad":"' + b"y" * size + b'"}}'
    async with greeted(legacy) as line:
        assert await line.wire.exchange(Exchange(77, "tools/call", params)) == value
    assert legacy.requests("tools/call")[0].body.endswith(b'"params":' + params + b"}")


async def test_concurrent_calls_never_mix_their_answers(server: BadHttp) -> None:
    """R-16: twenty-four calls at once, answered in random order."""
    waiting: list[asyncio.Future[None]] = []

    async def call(talk: Talk) -> None:
        turn = asyncio.get_running_loop().create_future()
        waiting.append(turn)
        if len(waiting) == 24:
            random.shuffle(waiting)
            for number, future in enumerate(waiting):
                asyncio.get_running_loop().call_later(number / 1000, future.set_result, None)
            waiting.clear()
        await turn
        message = talk.seen.message
        answer = result(
            message["id"], json.dumps({"structuredContent": message["params"]["arguments"]}).encode()
        )
        if server.events:
            await talk.start_events()
            await talk.event(answer)
            await talk.end_events()
        else:
            await talk.json(answer)

    server.call = call
    async with greeted(server) as line:
        for _ in range(10):
            answers = await asyncio.gather(*(line.call(number=number) for number in range(24)))
            assert answers == [{"number": number} for number in range(24)]


async def test_what_comes_before_the_answer_in_its_stream_is_told_with_the_key(legacy: BadHttp) -> None:
    async def call(talk: Talk) -> None:
        identity = talk.seen.message["id"]
        await talk.start_events()
        await talk.chunk(b"id: 1\ndata:\n\n: keep-alive\n\n")
        await talk.event(notification("notifications/progress", b'{"progress":1}'))
        await talk.event(b'{"jsonrpc":"2.0","id":"q1","method":"elicitation/create","params":{}}')
        await talk.event(b"noise")
        await talk.event(result(4711, b"{}"))
        await talk.event(result(identity, b'{"ok":true}'), "message")
        await talk.end_events()

    legacy.call = call
    async with greeted(legacy) as line:
        exchange = line.exchange("tools/call", call_params({}))
        assert await line.wire.exchange(exchange) == b'{"ok":true}'
        assert line.heard.notifications == [("notifications/progress", b'{"progress":1}', exchange.key)]
        assert line.heard.requests == [("q1", "elicitation/create", exchange.key)]
        assert len(line.heard.noise) == 2
        await line.wire.answer(b'{"jsonrpc":"2.0","id":"q1","result":{}}')
    assert legacy.seen[-2].message == {"jsonrpc": "2.0", "id": "q1", "result": {}}


async def test_a_stream_that_stays_open_after_its_answer_holds_nobody_up(legacy: BadHttp) -> None:
    ended = asyncio.Event()

    async def call(talk: Talk) -> None:
        await talk.start_events()
        await talk.event(result(talk.seen.message["id"], b"{}"))
        await talk.wait_hung_up()
        ended.set()

    legacy.call = call
    async with greeted(legacy) as line:
        async with asyncio.timeout(0.4):
            assert await line.ask("tools/call", call_params({})) == b"{}"
        async with asyncio.timeout(5):
            await ended.wait()


# Refusals and faults


async def test_the_servers_own_error_comes_with_code_message_and_redacted_data(server: BadHttp) -> None:
    async def call(talk: Talk) -> None:
        body = error(talk.seen.message["id"], -32000, "no s3cret", b'{"why" : "s3cret"}')
        if server.events:
            await talk.start_events()
            await talk.event(body)
            await talk.end_events()
        else:
            await talk.json(body, status="400 Bad Request")

    server.call = call
    async with greeted(server) as line:
        with pytest.raises(RpcError) as caught:
            await line.call()
    assert (caught.value.rpc_code, caught.value.message) == (-32000, "no ********")
    assert caught.value.data == b'{"why" : "********"}'


async def test_the_probe_of_a_server_of_the_older_era_is_answered_with_its_error(legacy: BadHttp) -> None:
    async with line_to(legacy.url) as line:
        line.modern = True
        with pytest.raises(UpstreamError) as caught:
            await line.ask("server/discover")
        assert isinstance(caught.value, RpcError | ProtocolViolation)
        line.modern = False
        await line.greet()
        assert await line.call(a=1) == {"a": 1}


@pytest.mark.parametrize(
    ("fault", "kind", "words"),
    [
        ("hang up before", Lost, "closed before the answer"),
        ("reset before", Lost, "closed before the answer"),
        ("reset midway", Lost, "closed before the answer"),
        ("half close", Lost, "closed before the answer"),
        ("garbage chunk", ProtocolViolation, "not valid HTTP"),
        ("500", Lost, "answered 500"),
        ("502", Lost, "answered 502"),
        ("401", CredentialsRejected, "(401)"),
        ("403", CredentialsRejected, "(403)"),
        ("202", ProtocolViolation, "no answer"),
        ("307", ProtocolViolation, "register the address it leads to"),
        ("400", ProtocolViolation, "answered 400"),
        ("html", ProtocolViolation, "answered with text/html: is this the address of an MCP endpoint?"),
        ("no type", ProtocolViolation, "without a content type"),
        ("not json", ProtocolViolation, "not JSON"),
        ("not http", ProtocolViolation, "not valid HTTP"),
        ("long header", ProtocolViolation, "not valid HTTP"),
        ("gzip", ProtocolViolation, "encoding gzip"),
        ("wrong id", ProtocolViolation, "something else"),
        ("no answer in stream", Lost, "before the answer"),
        ("declares a huge body", ProtocolViolation, "more than 1 MiB"),
        ("endless body", ProtocolViolation, "more than 1 MiB"),
        ("endless event", ProtocolViolation, "more than 1 MiB"),
    ],
)
async def test_each_fault_costs_one_call_and_says_what_is_wrong(
    legacy: BadHttp, fault: str, kind: type[UpstreamError], words: str
) -> None:
    async with greeted(legacy, limit=MIB) as line:
        legacy.fault = fault
        async with asyncio.timeout(5):
            with pytest.raises(kind) as caught:
                await line.call()
        assert words in caught.value.reason
        assert "127.0.0.1" not in caught.value.reason
        assert str(legacy.port) not in caught.value.reason
        legacy.fault = ""
        assert await line.call(a=1) == {"a": 1}
        assert line.heard.lost == []


async def test_garbage_in_the_middle_of_an_answer_loses_the_call_and_nothing_else(legacy: BadHttp) -> None:
    async with greeted(legacy) as line:

        async def call(talk: Talk) -> None:
            await talk.start_events()
            await talk.event(notification("notifications/message"))
            await until(lambda: line.heard.notifications)
            await talk.send(b"ZZZ\r\nnonsense\r\n")
            await talk.wait_hung_up()

        legacy.call = call
        with pytest.raises(ProtocolViolation, match="not valid HTTP"):
            await line.call()
        legacy.call = None
        assert await line.call(a=1) == {"a": 1}
        assert line.heard.lost == []


@pytest.mark.parametrize(("fault", "patience"), [("429", 7), ("503", 0)])
async def test_a_busy_server_says_when_to_come_back(legacy: BadHttp, fault: str, patience: int) -> None:
    async with greeted(legacy) as line:
        legacy.fault = fault
        with pytest.raises(UpstreamBusy) as caught:
            await line.call()
    assert caught.value.retry_after == patience


async def test_a_redirect_is_not_followed(legacy: BadHttp) -> None:
    async with BadHttp() as other, greeted(legacy) as line:
        legacy.call = redirect_to(other.url)
        with pytest.raises(ProtocolViolation) as caught:
            await line.call()
        assert "redirects (307)" in caught.value.reason
        assert other.connections == 0


async def test_a_closed_port_is_told_as_not_sent() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    async with line_to(f"http://127.0.0.1:{port}/mcp") as line:
        exchange = line.exchange("initialize")
        with pytest.raises(NotSent) as caught:
            await line.wire.exchange(exchange)
    assert (caught.value.reason, caught.value.phase) == ("connection refused", "connect")
    assert not exchange.sent


async def test_tls_to_a_server_without_it_is_told_as_not_sent(legacy: BadHttp) -> None:
    async with line_to(f"https://127.0.0.1:{legacy.port}/mcp") as line:
        with pytest.raises(NotSent) as caught:
            await line.ask("initialize")
    assert caught.value.phase == "connect"
    assert caught.value.reason.startswith(("TLS: ", "connection reset"))


async def test_the_server_that_hangs_up_after_each_answer_costs_no_call(server: BadHttp) -> None:
    """Twenty calls in a row, each finding a connection in the pool that the server has closed."""
    server.fault = "closes keep-alive"
    async with greeted(server) as line:
        for _ in range(20):
            assert await line.ask("tools/call", call_params({})) == b"{}"
    assert len(server.requests("tools/call")) == 20


async def test_a_request_is_sent_once_however_it_ends(legacy: BadHttp) -> None:
    """R-29: a call that may have run is never sent again by the wire."""
    async with greeted(legacy) as line:
        legacy.fault = "hang up before"
        exchanges = [line.exchange("tools/call", call_params({})) for _ in range(20)]
        ends = await asyncio.gather(*(line.wire.exchange(e) for e in exchanges), return_exceptions=True)
    assert all(isinstance(end, Lost) for end in ends)
    assert all(exchange.sent for exchange in exchanges)
    assert len(legacy.requests("tools/call")) == 20


async def test_a_restarted_server_is_called_on_without_a_loss(modern: BadHttp) -> None:
    async with greeted(modern) as line:
        await asyncio.gather(*(line.call(n=n) for n in range(16)))
        await modern.stop()
        await modern.start()
        assert await line.call(a=1) == {"a": 1}


async def test_a_call_given_up_closes_its_request_and_nothing_else(server: BadHttp) -> None:
    async with greeted(server) as line:
        hung_up = asyncio.Event()

        async def call(talk: Talk) -> None:
            await talk.wait_hung_up()
            hung_up.set()

        server.call = call
        exchange = line.exchange("tools/call", call_params({}))
        task = asyncio.create_task(line.wire.exchange(exchange))
        await until(lambda: server.requests("tools/call"))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with asyncio.timeout(5):
            await hung_up.wait()
        await line.wire.cancel(exchange, "nobody waits")
        server.call = None
        assert await line.call(a=1) == {"a": 1}
        if server.modern:
            assert server.requests("notifications/cancelled") == []
        else:
            await until(lambda: server.requests("notifications/cancelled"))
            cancelled = server.requests("notifications/cancelled")[0].message["params"]
            assert cancelled == {"requestId": exchange.key, "reason": "nobody waits"}


async def test_cancelling_never_waits_for_the_server(legacy: BadHttp) -> None:
    async with greeted(legacy) as line:
        await legacy.stop()
        async with asyncio.timeout(0.25):
            await line.wire.cancel(line.exchange("tools/call"), "late")


async def test_closing_ends_what_waits_and_returns(legacy: BadHttp) -> None:
    async with greeted(legacy) as line:
        legacy.fault = "black hole"
        tasks = [asyncio.create_task(line.call(n=n)) for n in range(3)]
        await until(lambda: len(legacy.requests("tools/call")) == 3)
        async with asyncio.timeout(3):
            await line.wire.close()
            await line.wire.close()
            ends = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(end, Lost) for end in ends)
        with pytest.raises(NotSent):
            await line.call()
        assert line.heard.lost == []


async def test_a_server_that_ignores_the_farewell_delays_the_close_by_two_seconds(legacy: BadHttp) -> None:
    async with greeted(legacy) as line:
        await legacy.stop()
        with socket.create_server(("127.0.0.1", legacy.port)):
            began = asyncio.get_running_loop().time()
            await line.wire.close()
    assert 1.5 < asyncio.get_running_loop().time() - began < 4


# A forgotten session


@pytest.mark.parametrize("how", ["404 session", "400 session", "401 session"])
async def test_a_forgotten_session_is_told_once_and_ends_the_wire(legacy: BadHttp, how: str) -> None:
    """R-15: the wire of a dead session is never served again."""
    async with greeted(legacy) as line:
        legacy.fault = how
        exchange = line.exchange("tools/call", call_params({}))
        with pytest.raises(SessionGone):
            await line.wire.exchange(exchange)
        await until(lambda: line.heard.lost)
        with pytest.raises(SessionGone):
            await line.call()
        assert [type(error) for error in line.heard.lost] == [SessionGone]
    assert len(legacy.requests("tools/call")) == 1
    assert legacy.deleted == []


async def test_calls_under_way_when_the_session_is_forgotten_keep_their_answers(legacy: BadHttp) -> None:
    held: list[Talk] = []

    async def call(talk: Talk) -> None:
        if talk.seen.message["params"]["arguments"].get("slow"):
            held.append(talk)
            await asyncio.sleep(0.2)
            await talk.json(result(talk.seen.message["id"], b'{"structuredContent":{"slow":1}}'))
        else:
            await talk.json(error(None, -32001, "Session not found"), status="404 Not Found")

    legacy.call = call
    async with greeted(legacy) as line:
        slow = asyncio.create_task(line.call(slow=1))
        await until(lambda: held)
        with pytest.raises(SessionGone):
            await line.call()
        assert line.heard.lost == []
        assert await slow == {"slow": 1}
        assert len(line.heard.lost) == 1


async def test_a_404_without_a_session_is_no_forgotten_session() -> None:
    async with BadHttp(sessions=False) as server, greeted(server) as line:
        server.fault = "404 session"
        with pytest.raises(RpcError):
            await line.call()
        assert line.heard.lost == []


async def test_an_unknown_method_is_no_forgotten_session(legacy: BadHttp) -> None:
    async with greeted(legacy) as line:
        with pytest.raises(RpcError) as caught:
            await line.ask("resources/list")
        assert caught.value.rpc_code == -32601
        assert line.heard.lost == []


async def test_a_session_forgotten_every_few_calls_fails_exactly_the_calls_it_refused(
    legacy: BadHttp,
) -> None:
    legacy.forget_every = 20
    served = 0
    for _ in range(5):
        async with greeted(legacy) as line:
            for _ in range(20):
                await line.call()
                served += 1
            with pytest.raises(SessionGone):
                await line.call()
    assert served == 100 == legacy.executed


# Listening


async def test_the_stream_of_the_server_is_listened_to(legacy: BadHttp) -> None:
    """R-18: a server's list_changed is heard."""
    legacy.stream = "open"
    async with greeted(legacy) as line:
        legacy.changed.set()
        await until(lambda: ("notifications/tools/list_changed", b"{}", None) in line.heard.notifications)
        assert await line.call(a=1) == {"a": 1}
        assert line.heard.lost == []
    (get,) = [seen for seen in legacy.seen if seen.method == "GET"]
    assert get.headers["accept"] == "text/event-stream"
    assert get.headers["mcp-session-id"] == "session-1"


async def test_a_server_without_a_stream_is_asked_once(legacy: BadHttp) -> None:
    async with greeted(legacy) as line:
        await until(lambda: any(seen.method == "GET" for seen in legacy.seen))
        await asyncio.sleep(1.5)
        assert len([seen for seen in legacy.seen if seen.method == "GET"]) == 1
        assert await line.call(a=1) == {"a": 1}


async def test_a_stream_that_is_closed_at_once_is_opened_again_without_a_storm(legacy: BadHttp) -> None:
    legacy.stream = "closing"
    async with greeted(legacy) as line:
        await asyncio.sleep(5)
        assert 2 <= len([seen for seen in legacy.seen if seen.method == "GET"]) <= 10
        assert line.heard.lost == []


async def test_a_stream_that_comes_back_to_a_forgotten_session_ends_the_wire(legacy: BadHttp) -> None:
    legacy.stream = "closing"
    async with greeted(legacy) as line:
        await until(lambda: any(seen.method == "GET" for seen in legacy.seen))
        legacy.stream = "gone"
        await until(lambda: line.heard.lost, 5)
        assert isinstance(line.heard.lost[0], SessionGone)


# The SDK's server


async def test_the_sdks_server_is_called_in_the_older_era(sdk: str) -> None:
    async with line_to(sdk) as line:
        await line.greet()
        tools = json.loads(await line.ask("tools/list"))["tools"]
        assert {tool["name"] for tool in tools} >= {"echo", "talk"}
        answer = json.loads(await line.ask("tools/call", call_params({"text": "hello"})))
        assert answer["content"] == [{"type": "text", "text": "hello"}]
        exchange = line.exchange("tools/call", call_params({"times": 3}, "talk"))
        exchange.params = exchange.params[:-1] + b',"_meta":{"progressToken":%d}}' % exchange.key
        await line.wire.exchange(exchange)
        progress = [params for method, params, key in line.heard.notifications if key == exchange.key]
        assert [json.loads(params)["progress"] for params in progress] == [1, 2, 3]
        await line.ask("ping")


async def test_the_sdks_server_is_called_in_the_newer_era(sdk: str) -> None:
    async with line_to(sdk, modern=True) as line:
        await line.greet()
        answer = json.loads(await line.ask("tools/call", call_params({"text": "hello"})))
        assert answer["content"] == [{"type": "text", "text": "hello"}]
        with pytest.raises(RpcError) as caught:
            await line.ask("no/such/method")
        assert caught.value.rpc_code == -32601


async def test_the_sdks_server_tells_that_its_tools_changed(sdk: str) -> None:
    async with line_to(sdk) as line:
        await line.greet()
        await asyncio.sleep(0.3)
        await line.ask("tools/call", call_params({}, "grow"))
        await until(
            lambda: any(
                method == "notifications/tools/list_changed" for method, _, _ in line.heard.notifications
            )
        )


async def test_the_sdks_server_forgets_a_session_that_was_ended(sdk: str) -> None:
    async with line_to(sdk) as line, line_to(sdk) as other:
        await line.greet()
        other.wire._keep_session(line.wire._session_id)
        await other.wire.introduced(LEGACY)
        await other.ask("ping")
        await line.wire.close()
        with pytest.raises(SessionGone):
            await other.ask("ping")
