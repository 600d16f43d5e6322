"""Sample servers over HTTP: streamable HTTP at `/mcp`, HTTP+SSE at `/sse`.

Each runs in a thread of the process that started it, on a free port of loopback, and so ends with it. HTTP is
the front's; both refuse a foreign `Origin`, as the protocol asks of local servers.
"""

import asyncio
import json
import secrets
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import parse_qs, urlsplit

from trunkline.cli.samples.sample_server import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    SampleServer,
)
from trunkline.front.answers import Answer
from trunkline.front.client_connection import ClientConnection, Entrance
from trunkline.front.connections import Connections, Patience
from trunkline.front.exchange import ClientGone, Exchange
from trunkline.front.server import new_event_loop
from trunkline.wire.eras import (
    HEADER_MISMATCH,
    LEGACY_VERSIONS,
    MODERN,
    NAMED_METHODS,
    UNSUPPORTED_VERSION,
    VERSION_KEY,
    header_value,
)

_PATIENCE = Patience(body_bytes=1024 * 1024)
_MOST_STREAMS = 32
_KEEP_ALIVE_SECONDS = 15.0
_START_SECONDS = 10.0
_LAST_SECONDS = 1.0
_TEXT = b"text/plain; charset=utf-8"
_MODERN_STATUS = {INVALID_PARAMS: 400, UNSUPPORTED_VERSION: 400, METHOD_NOT_FOUND: 404}


class StreamableHttp:
    """`POST /mcp` answered with JSON, in both eras, without sessions."""

    def __init__(self, server: SampleServer) -> None:
        self._server = server

    def admit(self, exchange: Exchange) -> Answer | None:
        if exchange.path != "/mcp":
            return _plain(404, "MCP is at /mcp")
        if not _is_ours(exchange):
            return _plain(403, "foreign Origin")
        if exchange.method != "POST":
            return _plain(405, "POST only")
        return None

    async def serve(self, exchange: Exchange) -> None:
        if mismatch := _header_mismatch(exchange.body, exchange):
            exchange.reply(Answer(400, mismatch))
            return
        answer = self._server.answer_bytes(exchange.body)
        if answer is None:
            exchange.reply(Answer(202, b""))
        else:
            exchange.reply(Answer(_status(answer, _header(exchange, "mcp-protocol-version")), answer))


class HttpWithSse:
    """`GET /sse` opens a stream and names the address to post to; answers come over the stream."""

    def __init__(self, server: SampleServer) -> None:
        self._server = server
        self._streams: dict[str, asyncio.Queue[bytes]] = {}

    def admit(self, exchange: Exchange) -> Answer | None:
        if not _is_ours(exchange):
            return _plain(403, "foreign Origin")
        if (exchange.method, exchange.path) not in (("GET", "/sse"), ("POST", "/messages")):
            return _plain(404, "MCP is at /sse")
        return None

    async def serve(self, exchange: Exchange) -> None:
        if exchange.method == "POST":
            self._take(exchange)
        elif len(self._streams) >= _MOST_STREAMS:
            exchange.reply(_plain(503, "too many streams"))
        else:
            await self._stream(exchange)

    async def _stream(self, exchange: Exchange) -> None:
        session = secrets.token_urlsafe(16)
        queue = self._streams[session] = asyncio.Queue()
        exchange.begin(200, [(b"content-type", b"text/event-stream")])
        try:
            with exchange.watched():
                await exchange.write(_event(b"endpoint", b"/messages?session=" + session.encode()))
                while True:
                    await exchange.write(await _next(queue))
        except ClientGone:
            exchange.give_up()
        finally:
            del self._streams[session]

    def _take(self, exchange: Exchange) -> None:
        session = parse_qs(exchange.query.decode("ascii", "replace")).get("session", [""])[0]
        queue = self._streams.get(session)
        if queue is None:
            exchange.reply(_plain(404, "no such session"))
            return
        answer = self._server.answer_bytes(exchange.body)
        exchange.reply(_plain(202, "Accepted"))
        if answer is not None:
            queue.put_nowait(_event(b"message", answer))


@contextmanager
def running(entrance: Entrance) -> Iterator[str]:
    """Serves on a free port of loopback while the block runs; gives its address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        started = threading.Event()
        ending = threading.Event()
        thread = threading.Thread(
            target=_run, args=(entrance, listener, started, ending), name="sample server", daemon=True
        )
        thread.start()
        if not started.wait(_START_SECONDS):
            raise RuntimeError("a sample server did not start")
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            ending.set()
            thread.join(_START_SECONDS)


def _run(
    entrance: Entrance, listener: socket.socket, started: threading.Event, ending: threading.Event
) -> None:
    async def serve() -> None:
        loop, connections = asyncio.get_running_loop(), Connections(_PATIENCE)
        server = await loop.create_server(lambda: ClientConnection(entrance, connections), sock=listener)
        started.set()
        await asyncio.to_thread(ending.wait)
        server.close()
        await connections.finish(_LAST_SECONDS)

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(serve())


async def _next(queue: asyncio.Queue[bytes]) -> bytes:
    try:
        async with asyncio.timeout(_KEEP_ALIVE_SECONDS):
            return await queue.get()
    except TimeoutError:
        return b": alive\n\n"


def _header(exchange: Exchange, name: str) -> str | None:
    value = exchange.headers.get(name.encode())
    return value.decode("latin-1").strip() if value is not None else None


def _is_ours(exchange: Exchange) -> bool:
    origin = _header(exchange, "origin")
    return origin is None or urlsplit(origin).hostname in ("127.0.0.1", "localhost")


def _header_mismatch(body: bytes, exchange: Exchange) -> bytes | None:
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
    wrong = [name for name, value in expected.items() if _header(exchange, name) != value]
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


def _event(event: bytes, data: bytes) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (event, data)


def _plain(status: int, text: str) -> Answer:
    allowed = ((b"allow", b"POST"),) if status == 405 else ()
    return Answer(status, text.encode(), allowed, _TEXT)
