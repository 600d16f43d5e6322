"""Sample servers over HTTP, as raw ASGI on uvicorn: streamable HTTP at `/mcp`, HTTP+SSE at `/sse`.

Each runs in a thread of the process that started it, on a free port of loopback, and so ends with it.
Both refuse a foreign `Origin`, as the protocol asks of local servers.
"""

import asyncio
import contextlib
import json
import secrets
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

import uvicorn

from trunkline.cli.samples.sample_server import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    SampleServer,
)
from trunkline.wire.eras import (
    HEADER_MISMATCH,
    LEGACY_VERSIONS,
    MODERN,
    NAMED_METHODS,
    UNSUPPORTED_VERSION,
    VERSION_KEY,
    header_value,
)

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Response = tuple[int, bytes, bytes]
"""Status, body, content type."""
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_LARGEST_BODY = 1024 * 1024
_MOST_STREAMS = 32
_KEEP_ALIVE_SECONDS = 15.0
_START_SECONDS = 10.0
_JSON = b"application/json"
_MODERN_STATUS = {INVALID_PARAMS: 400, UNSUPPORTED_VERSION: 400, METHOD_NOT_FOUND: 404}


class StreamableHttp:
    """`POST /mcp` answered with JSON, in both eras, without sessions."""

    def __init__(self, server: SampleServer) -> None:
        self._server = server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await _respond(send, *await self._answer(scope, receive))

    async def _answer(self, scope: Scope, receive: Receive) -> Response:
        if scope["path"] != "/mcp":
            return _plain(404, "MCP is at /mcp")
        if not _is_ours(scope):
            return _plain(403, "foreign Origin")
        if scope["method"] != "POST":
            return _plain(405, "POST only")
        body = await _read_body(receive)
        if body is None:
            return _plain(413, "the body is too large")
        if mismatch := _header_mismatch(body, _headers(scope)):
            return 400, mismatch, _JSON
        answer = self._server.answer_bytes(body)
        if answer is None:
            return _plain(202, "")
        return _status(answer, _headers(scope).get("mcp-protocol-version")), answer, _JSON


class HttpWithSse:
    """`GET /sse` opens a stream and names the address to post to; answers come over the stream."""

    def __init__(self, server: SampleServer) -> None:
        self._server = server
        self._streams: dict[str, asyncio.Queue[bytes]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        route = (scope["method"], scope["path"])
        if not _is_ours(scope):
            await _respond(send, *_plain(403, "foreign Origin"))
        elif route == ("GET", "/sse"):
            await self._stream(receive, send)
        elif route == ("POST", "/messages"):
            await self._take(scope, receive, send)
        else:
            await _respond(send, *_plain(404, "MCP is at /sse"))

    async def _stream(self, receive: Receive, send: Send) -> None:
        if len(self._streams) >= _MOST_STREAMS:
            await _respond(send, *_plain(503, "too many streams"))
            return
        session = secrets.token_urlsafe(16)
        queue = self._streams[session] = asyncio.Queue()
        gone = asyncio.create_task(_until_gone(receive))
        try:
            headers = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-store")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await _event(send, b"endpoint", b"/messages?session=" + session.encode())
            while not gone.done():
                await self._pass_on(queue, gone, send)
        finally:
            gone.cancel()
            del self._streams[session]

    async def _pass_on(self, queue: asyncio.Queue[bytes], gone: asyncio.Task[None], send: Send) -> None:
        taken = asyncio.create_task(queue.get())
        await asyncio.wait({taken, gone}, timeout=_KEEP_ALIVE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        if taken.done():
            await _event(send, b"message", taken.result())
        elif not gone.done():
            await send({"type": "http.response.body", "body": b": alive\n\n", "more_body": True})
        taken.cancel()

    async def _take(self, scope: Scope, receive: Receive, send: Send) -> None:
        session = parse_qs(scope["query_string"].decode("ascii", "replace")).get("session", [""])[0]
        queue = self._streams.get(session)
        if queue is None:
            await _respond(send, *_plain(404, "no such session"))
            return
        body = await _read_body(receive)
        if body is None:
            await _respond(send, *_plain(413, "the body is too large"))
            return
        answer = self._server.answer_bytes(body)
        await _respond(send, *_plain(202, "Accepted"))
        if answer is not None:
            queue.put_nowait(answer)


@contextmanager
def running(app: App) -> Iterator[str]:
    """Serves the app on a free port of loopback while the block runs; gives its address."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    config = uvicorn.Config(
        app, log_level="critical", access_log=False, lifespan="off", timeout_graceful_shutdown=1, ws="none"
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(
        target=server.run, kwargs={"sockets": [listener]}, name="sample server", daemon=True
    )
    thread.start()
    try:
        deadline = time.monotonic() + _START_SECONDS
        while not server.started:
            if not thread.is_alive() or time.monotonic() > deadline:
                raise RuntimeError("a sample server did not start")
            time.sleep(0.01)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(_START_SECONDS)
        listener.close()


def _headers(scope: Scope) -> dict[str, str]:
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}


def _is_ours(scope: Scope) -> bool:
    origin = _headers(scope).get("origin")
    return origin is None or urlsplit(origin).hostname in ("127.0.0.1", "localhost")


def _header_mismatch(body: bytes, headers: dict[str, str]) -> bytes | None:
    """The refusal of a modern request whose headers do not mirror its body."""
    try:
        message = json.loads(body)
        params = message.get("params") or {}
        version = params["_meta"][VERSION_KEY]
    except (ValueError, RecursionError, AttributeError, KeyError, TypeError):
        return None
    if version != MODERN or "id" not in message:
        return None
    method = message.get("method")
    expected = {"mcp-protocol-version": version, "mcp-method": method}
    if (named := NAMED_METHODS.get(str(method))) is not None:
        expected["mcp-name"] = header_value(str(params.get(named)))
    wrong = [name for name, value in expected.items() if headers.get(name, "").strip() != value]
    if not wrong:
        return None
    error = {"code": HEADER_MISMATCH, "message": f"{', '.join(wrong)} does not mirror the body"}
    return json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}).encode()


def _status(answer: bytes, version: str | None) -> int:
    """In the modern era an error about the request is also one of HTTP; before, a 404 meant another thing."""
    error = json.loads(answer).get("error")
    if error is None:
        return 200
    if error["code"] in (PARSE_ERROR, INVALID_REQUEST):
        return 400
    is_modern = version is not None and version not in LEGACY_VERSIONS
    return _MODERN_STATUS.get(error["code"], 200) if is_modern else 200


async def _read_body(receive: Receive) -> bytes | None:
    body = b""
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        body += bytes(message.get("body", b""))
        if len(body) > _LARGEST_BODY:
            return None
        if not message.get("more_body"):
            return body


async def _until_gone(receive: Receive) -> None:
    with contextlib.suppress(asyncio.CancelledError):
        while (await receive())["type"] != "http.disconnect":
            pass


async def _event(send: Send, event: bytes, data: bytes) -> None:
    frame = b"event: " + event + b"\ndata: " + data + b"\n\n"
    await send({"type": "http.response.body", "body": frame, "more_body": True})


def _plain(status: int, text: str) -> Response:
    return status, text.encode(), b"text/plain; charset=utf-8"


async def _respond(send: Send, status: int, body: bytes, content_type: bytes) -> None:
    headers = [(b"content-type", content_type), (b"content-length", b"%d" % len(body))]
    if status == 405:
        headers.append((b"allow", b"POST"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
