"""What clients get wrong at `/mcp`: each fault has the code the specification names, and hurts nobody."""

import asyncio
import json
import logging
import random
import re
from pathlib import Path
from typing import Any

import pytest

from tests.front.conftest import Running, registered
from trunkline.model import Scope

LEGACY, MODERN = "2025-11-25", "2026-07-28"
META = "io.modelcontextprotocol/"
POSTED = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
ENVELOPE = {META + "protocolVersion": MODERN, META + "clientCapabilities": {}}
TAKES_TASKS = {**ENVELOPE, META + "clientCapabilities": {"extensions": {META + "tasks": {}}}}
Headers = dict[str, str | None]
MIRRORED: Headers = {"MCP-Protocol-Version": MODERN, "Mcp-Method": "tools/list"}


def listing(**changes: Any) -> dict[str, Any]:
    message = {"jsonrpc": "2.0", "id": 7, "method": "tools/list", "params": {"_meta": ENVELOPE}, **changes}
    return {key: value for key, value in message.items() if value is not ...}


def calling(name: str, **params: Any) -> dict[str, Any]:
    return listing(method="tools/call", params={"name": name, "_meta": ENVELOPE, **params})


async def post(
    front: Running,
    body: object,
    headers: Headers | None = None,
    *,
    path: str = "/mcp",
    scope: Scope = Scope.ADMIN,
) -> tuple[int, Any]:
    given = {**POSTED, **front.bearer(scope)}
    for name, value in (headers or {}).items():
        given[name] = value or ""
        if value is None:
            del given[name]
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    async with front.client.post(front.url + path, data=data, headers=given) as answer:
        text = await answer.read()
        return answer.status, json.loads(text) if text else None


async def open_session(front: Running) -> Headers:
    params = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    headers = {**POSTED, **front.bearer()}
    async with front.client.post(front.url + "/mcp", json=body, headers=headers) as answer:
        assert answer.status == 200
        return {"Mcp-Session-Id": answer.headers["Mcp-Session-Id"]}


MODERN_FAULTS: list[tuple[str, object, Headers, int, int]] = [
    ("no JSON", b"{", {}, 400, -32700),
    ("no UTF-8", b'{"jsonrpc":"2.0","id":1,"method":"\xff"}', {}, 400, -32700),
    ("not JSON-RPC", {"id": 7, "method": "tools/list"}, {}, 400, -32600),
    ("an old JSON-RPC", listing(jsonrpc="1.0"), {}, 400, -32600),
    ("a batch", [listing()], {}, 400, -32600),
    ("a null id", listing(id=None), {}, 400, -32600),
    ("a list as id", listing(id=[1]), {}, 400, -32600),
    ("a broken id", listing(id=1.5), {}, 400, -32600),
    ("params that are a list", listing(params=[1]), {}, 400, -32600),
    ("a response", {"jsonrpc": "2.0", "id": 1, "result": {}}, {}, 400, -32600),
    ("10,000 levels", b'{"jsonrpc":"2.0","id":1,"method":"x","params":' + b"[" * 10_000, {}, 400, -32600),
    ("no header", listing(), {"MCP-Protocol-Version": None}, 400, -32020),
    ("another version in the header", listing(), {"MCP-Protocol-Version": LEGACY}, 400, -32020),
    ("no method header", listing(), {"Mcp-Method": None}, 400, -32020),
    ("another method in the header", listing(), {"Mcp-Method": "tools/call"}, 400, -32020),
    (
        "an unknown version",
        listing(params={"_meta": {**ENVELOPE, META + "protocolVersion": "2099-01-01"}}),
        {"MCP-Protocol-Version": "2099-01-01"},
        400,
        -32022,
    ),
    (
        "no capabilities",
        listing(params={"_meta": {META + "protocolVersion": MODERN}}),
        {},
        400,
        -32602,
    ),
    ("a header without an envelope", listing(params={}), {}, 400, -32602),
    ("an unknown method", listing(method="tools/paint"), {"Mcp-Method": "tools/paint"}, 404, -32601),
    ("a method of the other era", listing(method="ping"), {"Mcp-Method": "ping"}, 404, -32601),
    ("an unknown cursor", listing(params={"_meta": ENVELOPE, "cursor": "x"}), {}, 400, -32602),
    ("a cursor that is a number", listing(params={"_meta": ENVELOPE, "cursor": 3}), {}, 400, -32602),
    ("a name that is missing", listing(method="tools/call"), {"Mcp-Method": "tools/call"}, 400, -32602),
    ("no name header", calling("echo.echo"), {"Mcp-Method": "tools/call"}, 400, -32020),
    (
        "another name in the header",
        calling("echo.echo"),
        {"Mcp-Method": "tools/call", "Mcp-Name": "echo.fail"},
        400,
        -32020,
    ),
    ("an unknown tool", calling("nobody"), {"Mcp-Method": "tools/call", "Mcp-Name": "nobody"}, 400, -32602),
    (
        "arguments that are a list",
        calling("echo.echo", arguments=[1]),
        {"Mcp-Method": "tools/call", "Mcp-Name": "echo.echo"},
        400,
        -32602,
    ),
    (
        "a state nobody gave",
        calling("echo.echo", requestState="trunkline-parked:made-up", inputResponses={}),
        {"Mcp-Method": "tools/call", "Mcp-Name": "echo.echo"},
        400,
        -32602,
    ),
]


@pytest.mark.parametrize(
    ("body", "headers", "status", "code"),
    [pytest.param(*rest, id=name) for name, *rest in MODERN_FAULTS],
)
async def test_a_fault_of_the_newer_era_has_its_code(
    front: Running, echo: str, body: Any, headers: Headers, status: int, code: int
) -> None:
    found, answer = await post(front, body, {**MIRRORED, **headers})
    assert (found, answer["error"]["code"]) == (status, code)
    assert answer["jsonrpc"] == "2.0"
    assert answer["id"] == (7 if isinstance(body, dict) and body.get("id") == 7 else answer["id"])
    assert (await post(front, listing(), MIRRORED))[0] == 200


async def test_a_header_that_is_given_twice_is_refused(front: Running) -> None:
    body = json.dumps(listing()).encode()
    head = [
        b"POST /mcp HTTP/1.1", b"Host: localhost", b"Accept: */*", b"Content-Type: application/json",
        b"Authorization: " + front.bearer()["Authorization"].encode(), b"Connection: close",
        b"MCP-Protocol-Version: 2026-07-28", b"Mcp-Method: tools/list", b"Mcp-Method: tools/list",
        b"Content-Length: %d" % len(body),
    ]  # fmt: skip
    answer = await front.raw(b"\r\n".join(head) + b"\r\n\r\n" + body)
    assert answer.startswith(b"HTTP/1.1 400")
    assert b"-32020" in answer


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (listing(params={}), {"Mcp-Session-Id": "nobody"}, 404),
        (listing(params={}), {}, 400),
        (b"{", {}, 400),
        (listing(params={}, id=None), {}, 400),
        ([listing(params={})], {}, 400),
    ],
)
async def test_a_fault_of_the_older_era(front: Running, body: object, headers: Headers, status: int) -> None:
    session = await open_session(front)
    given = headers if headers or body == listing(params={}) else session
    found, answer = await post(front, body, given)
    assert found == status
    assert "error" in answer


async def test_a_fault_within_a_session_is_answered_in_it(front: Running, echo: str) -> None:
    session = await open_session(front)
    unknown: dict[str, Any] = {"jsonrpc": "2.0", "id": "7", "method": "tools/paint", "params": {}}
    status, answer = await post(front, unknown, session)
    assert (status, answer["error"]["code"], answer["id"]) == (200, -32601, "7")
    again = {"jsonrpc": "2.0", "id": 8, "method": "initialize", "params": {}}
    status, answer = await post(front, again, session)
    assert answer["error"]["code"] == -32600
    status, answer = await post(front, listing(params={}), {"MCP-Protocol-Version": "1999-01-01", **session})
    assert status == 400
    read = {**unknown, "method": "resources/read", "params": {"uri": "no://where"}}
    assert (await post(front, read, session))[1]["error"]["code"] == -32002


async def test_what_never_reaches_the_protocol(front: Running) -> None:
    """R-47: keys, hosts and sizes are judged first, on every address."""
    for path in ("/mcp", "/mcp/servers/nobody"):
        async with front.client.post(front.url + path, json=listing()) as answer:
            assert answer.status == 401
        status, _ = await post(front, listing(), {"Origin": "https://evil.example"}, path=path)
        assert status == 403
        status, _ = await post(front, b" " * 5 * 1024 * 1024, path=path)
        assert status == 413
    assert (await post(front, listing(), path="/mcp/servers/nobody"))[0] == 404
    assert (await post(front, listing(), {"Content-Type": "text/plain"}))[0] == 415
    assert (await post(front, listing(), {"Accept": "text/html"}))[0] == 406
    for method in ("GET", "DELETE", "PUT"):
        headers = {**front.bearer(), "MCP-Protocol-Version": MODERN}
        async with front.client.request(method, front.url + "/mcp", headers=headers) as answer:
            assert answer.status == 405


async def test_a_key_that_may_only_read_lists_and_does_not_call(front: Running, echo: str) -> None:
    """R-47"""
    assert (await post(front, listing(), MIRRORED, scope=Scope.READ))[0] == 200
    given = {**MIRRORED, "Mcp-Method": "tools/call", "Mcp-Name": "echo.echo"}
    status, answer = await post(front, calling("echo.echo"), given, scope=Scope.READ)
    assert (status, answer["error"]["code"]) == (403, -32600)


async def test_ten_thousand_broken_bodies_are_the_clients_fault(
    front: Running, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Sound messages of both eras, broken at random: never a 5xx, never a traceback."""
    await registered(front, tmp_path)
    rng = random.Random(20261119)
    session = str((await open_session(front))["Mcp-Session-Id"]).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", front.port)
    shapes = [
        listing(), calling("echo.echo", arguments={"text": "x"}), listing(params={}),
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}},
        {"jsonrpc": "2.0", "id": "trunkline-1", "result": {"action": "accept"}},
        listing(method="completion/complete", params={"ref": {"type": "ref/prompt", "name": "x"}}),
        listing(method="subscriptions/unlisten"),
        listing(method="tasks/get", params={"taskId": "t1.AAAAAAAA.AAAA", "_meta": TAKES_TASKS}),
        listing(method="tasks/update", params={"taskId": "", "inputResponses": [], "_meta": TAKES_TASKS}),
    ]  # fmt: skip
    inserts = [b"", b"{", b"\xff", b"\x00", b",", b'"', b"\\ud800", b"[" * 200, b"1e999", b"null", b":", b"}"]
    key = front.bearer()["Authorization"].encode()
    for _ in range(10_000):
        body = json.dumps(rng.choice(shapes)).encode()
        for _ in range(rng.randint(0, 3)):
            at = rng.randint(0, len(body))
            body = body[:at] + rng.choice(inserts) + body[at + rng.randint(0, 4) :]
        headers = [
            (b"host", b"localhost"), (b"authorization", key), (b"content-type", b"application/json"),
        ]  # fmt: skip
        if rng.random() < 0.5:
            headers.append((b"mcp-session-id", session))
        if rng.random() < 0.7:
            headers.append((b"mcp-protocol-version", rng.choice([MODERN, LEGACY, "x"]).encode()))
        if rng.random() < 0.7:
            headers.append((b"mcp-method", rng.choice([b"tools/list", b"tools/call", b"tasks/get", b"\xff"])))
        if rng.random() < 0.5:
            headers.append((b"mcp-name", rng.choice([b"echo.echo", b"=?base64?!!?=", b"\xff"])))
        status = await asked(reader, writer, body, headers)
        assert status < 500, body
    writer.close()
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


async def asked(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    body: bytes,
    headers: list[tuple[bytes, bytes]],
) -> int:
    """The status of the answer to a POST; the connection is kept."""
    lines = b"".join(b"%b: %b\r\n" % header for header in headers)
    writer.write(b"POST /mcp HTTP/1.1\r\n%bContent-Length: %d\r\n\r\n%b" % (lines, len(body), body))
    async with asyncio.timeout(10):
        head = await reader.readuntil(b"\r\n\r\n")
        (length,) = re.findall(rb"content-length: ([0-9]+)", head) or [b"0"]
        await reader.readexactly(int(length))
    return int(head.split(b" ", 2)[1])
