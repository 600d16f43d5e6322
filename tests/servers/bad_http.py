"""MCP servers over HTTP that misbehave on request: streamable HTTP in both eras, and HTTP+SSE.

Written on bare sockets, so that every byte and every hang-up is the script's own. A fault is switched on by
assigning `fault`; `seen` holds every request that was read, `connections` how many were accepted.
"""

import asyncio
import contextlib
import gzip
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

MODERN = "2026-07-28"


@dataclass
class Seen:
    method: str
    path: str
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes
    peer: int
    """The port it came from: which connection it was."""

    @property
    def message(self) -> dict[str, Any]:
        return dict(json.loads(self.body)) if self.body else {}

    @property
    def rpc(self) -> str:
        return str(self.message.get("method", ""))


@dataclass
class Talk:
    """One request and the socket to answer it on."""

    seen: Seen
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    keep: bool = True

    async def wait_hung_up(self) -> None:
        """Returns when the client closes the connection."""
        with contextlib.suppress(OSError):
            await self.reader.read(1)

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self, status: str, headers: dict[str, str], body: bytes = b"") -> None:
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        await self.send(f"HTTP/1.1 {status}\r\n{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)

    async def json(
        self, body: bytes, *, status: str = "200 OK", headers: dict[str, str] | None = None
    ) -> None:
        await self.answer(status, {"Content-Type": "application/json"} | (headers or {}), body)

    async def start_events(self, headers: dict[str, str] | None = None) -> None:
        lines = {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked"} | (headers or {})
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        await self.send(f"HTTP/1.1 200 OK\r\n{head}\r\n".encode())

    async def chunk(self, data: bytes) -> None:
        await self.send(b"%x\r\n%b\r\n" % (len(data), data))

    async def event(self, data: bytes, name: str = "") -> None:
        head = f"event: {name}\n".encode() if name else b""
        await self.chunk(head + b"data: " + data + b"\n\n")

    async def end_events(self) -> None:
        await self.send(b"0\r\n\r\n")

    def hang_up(self, *, reset: bool = False) -> None:
        self.keep = False
        if reset:
            self.writer.transport.abort()
        else:
            self.writer.close()


class ScriptedServer:
    """Accepts, reads requests, hands them to `respond`; stops and starts again on the same port."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self.connections = 0
        self.port = 0
        self._server: asyncio.Server | None = None
        self._talking: set[asyncio.Task[None]] = set()

    async def respond(self, talk: Talk) -> None:
        raise NotImplementedError

    def requests(self, rpc: str) -> list[Seen]:
        return [seen for seen in self.seen if seen.method == "POST" and seen.rpc == rpc]

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port, limit=2**26)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in list(self._talking):
            task.cancel()
        await asyncio.gather(*self._talking, return_exceptions=True)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._talking.add(task)
        task.add_done_callback(self._talking.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            keep = True
            while keep:
                talk = Talk(await _read_request(reader, writer), reader, writer)
                self.seen.append(talk.seen)
                await self.respond(talk)
                keep = talk.keep
        except (OSError, ValueError, asyncio.IncompleteReadError):
            pass  # gone, or no HTTP: hang up
        finally:
            writer.close()


async def _read_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Seen:
    first = await reader.readexactly(1)
    if not first.isalpha():
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        raise ValueError("a TLS greeting, probably")
    head = (first + await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, path, _ = head[0].split(" ")
    headers = {
        name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:-2])
    }
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Seen(method, path, headers, body, writer.get_extra_info("peername")[1])


def result(identity: object, value: bytes) -> bytes:
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (json.dumps(identity).encode(), value)


def error(identity: object, code: int, message: str, data: bytes = b"") -> bytes:
    extra = b',"data":' + data if data else b""
    return b'{"jsonrpc":"2.0","id":%b,"error":{"code":%d,"message":%b%b}}' % (
        json.dumps(identity).encode(), code, json.dumps(message).encode(), extra,
    )  # fmt: skip


def notification(method: str, params: bytes = b"{}") -> bytes:
    return b'{"jsonrpc":"2.0","method":"%b","params":%b}' % (method.encode(), params)


def echoed(message: dict[str, Any]) -> bytes:
    """What `tools/call` gives back: its arguments."""
    arguments = message["params"].get("arguments", {})
    return json.dumps({"content": [], "structuredContent": arguments}).encode()


Script = Callable[[Talk], Awaitable[None]]


class BadHttp(ScriptedServer):
    """Streamable HTTP at `url`, of one era or the other."""

    def __init__(self, *, modern: bool = False, events: bool = False, sessions: bool = True) -> None:
        super().__init__()
        self.modern = modern
        self.events = events
        """Answer calls with a stream of events rather than JSON."""
        self.sessions = sessions
        self.fault = ""
        self.forget_every = 0
        """Forget the session after so many calls."""
        self.stream = "none"
        """The stream to listen on: none (405), gone (404), open, closing (at once, in good order)."""
        self.call: Script | None = None
        """Takes `tools/call` over."""
        self.changed = asyncio.Event()
        """Set it, and an open stream tells that the tools changed."""
        self.executed = 0
        self.session = 0
        self.calls_in_session = 0
        self.deleted: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    async def respond(self, talk: Talk) -> None:
        seen = talk.seen
        if seen.method == "GET":
            await self._stream(talk)
        elif seen.method == "DELETE":
            self.deleted.append(seen.headers.get("mcp-session-id", ""))
            await talk.answer("204 No Content", {})
        elif "id" not in seen.message or "method" not in seen.message:
            await talk.answer("202 Accepted", {})
        elif seen.rpc == "subscriptions/listen":
            await self._stream(talk)
        else:
            await self._request(talk)

    async def _request(self, talk: Talk) -> None:
        message = talk.seen.message
        identity = message["id"]
        if message["method"] == "initialize":
            await self._initialize(talk, identity)
        elif not self.modern and self.sessions and not self._known(talk.seen):
            await talk.json(error("server-error", -32600, "Session not found"), status="404 Not Found")
        elif message["method"] == "tools/call":
            await self._call(talk, message)
        elif message["method"] == "server/discover" and self.modern:
            found = {"supportedVersions": [MODERN], "capabilities": {"tools": {"listChanged": True}}}
            await talk.json(result(identity, json.dumps(found).encode()))
        elif message["method"] == "ping":
            await talk.json(result(identity, b"{}"))
        else:
            await talk.json(error(identity, -32601, "Method not found"), status="404 Not Found")

    async def _initialize(self, talk: Talk, identity: object) -> None:
        self.session += 1
        self.calls_in_session = 0
        greeting = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {"listChanged": True}}}
        headers = {"Mcp-Session-Id": f"session-{self.session}"} if self.sessions else {}
        await talk.json(result(identity, json.dumps(greeting).encode()), headers=headers)

    def _known(self, seen: Seen) -> bool:
        every = self.forget_every
        return seen.headers.get("mcp-session-id") == f"session-{self.session}" and not (
            every and self.calls_in_session >= every
        )

    async def _call(self, talk: Talk, message: dict[str, Any]) -> None:
        self.calls_in_session += 1
        if self.call is not None:
            await self.call(talk)
            return
        if self.fault:
            await self._misbehave(talk, message["id"])
            return
        self.executed += 1
        answer = result(message["id"], echoed(message))
        if self.events:
            await talk.start_events()
            await talk.event(answer, "message")
            await talk.end_events()
        else:
            await talk.json(answer)

    async def _stream(self, talk: Talk) -> None:
        kind = self.stream
        if kind in ("none", "gone"):
            await talk.answer("405 Method Not Allowed" if kind == "none" else "404 Not Found", {})
            return
        await talk.start_events()
        if talk.seen.rpc:
            await talk.event(notification("notifications/subscriptions/acknowledged"))
        if kind == "open":
            await self.changed.wait()
            await talk.event(notification("notifications/tools/list_changed"))
            self.changed.clear()
            await self.changed.wait()
        await talk.end_events()

    async def _misbehave(self, talk: Talk, identity: object) -> None:
        fault = self.fault
        if fault in _STATUSES:
            status, headers, body = _STATUSES[fault]
            await talk.answer(status, headers, body)
        elif fault == "hang up before":
            talk.hang_up()
        elif fault == "reset before":
            talk.hang_up(reset=True)
        elif fault == "reset midway":
            await talk.send(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
            )
            talk.hang_up(reset=True)
        elif fault == "half close":
            await talk.send(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
            )
            talk.writer.write_eof()
            await asyncio.sleep(3600)
        elif fault == "black hole":
            await asyncio.sleep(3600)
        elif fault == "garbage chunk":
            await talk.start_events()
            await talk.chunk(b": hello\n\n")
            await talk.send(b"ZZZ\r\nnonsense\r\n")
            await asyncio.sleep(3600)
        elif fault == "not http":
            await talk.send(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")
            talk.hang_up()
        elif fault == "long header":
            await talk.answer("200 OK", {"X-Long": "x" * 200_000})
        elif fault == "gzip":
            body = gzip.compress(result(identity, b"{}"))
            await talk.answer(
                "200 OK", {"Content-Type": "application/json", "Content-Encoding": "gzip"}, body
            )
        elif fault == "wrong id":
            await talk.json(result(4711, b"{}"))
        elif fault == "no answer in stream":
            await talk.start_events()
            await talk.event(notification("notifications/message"))
            await talk.end_events()
        elif fault == "closes keep-alive":
            await talk.json(result(identity, b"{}"))
            talk.hang_up()
        elif fault == "declares a huge body":
            await talk.send(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100000000\r\n\r\n{"
            )
            await asyncio.sleep(3600)
        elif fault == "endless body":
            await talk.send(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
            )
            while True:
                await talk.chunk(b" " * 65536)
        elif fault == "endless event":
            await talk.start_events()
            await talk.chunk(b"data: ")
            while True:
                await talk.chunk(b" " * 65536)
        else:
            raise AssertionError(fault)


_JSON = {"Content-Type": "application/json"}
_HTML = {"Content-Type": "text/html; charset=utf-8"}
_STATUSES: dict[str, tuple[str, dict[str, str], bytes]] = {
    "400": ("400 Bad Request", _JSON, b"{}"),
    "401": ("401 Unauthorized", {"WWW-Authenticate": "Bearer"}, b"session expired"),
    "403": ("403 Forbidden", {}, b""),
    "429": ("429 Too Many Requests", {"Retry-After": "7"}, b""),
    "503": ("503 Service Unavailable", {"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}, b""),
    "502": ("502 Bad Gateway", _HTML, b"<html>bad gateway</html>"),
    "500": ("500 Internal Server Error", {}, b""),
    "202": ("202 Accepted", {}, b""),
    "307": ("307 Temporary Redirect", {}, b""),
    "html": ("200 OK", _HTML, b"<html>hello</html>"),
    "no type": ("200 OK", {}, b"{}"),
    "not json": ("200 OK", _JSON, b"{nonsense"),
    "400 session": ("400 Bad Request", {"Content-Type": "text/plain"}, b"Bad Request: No valid session ID"),
    "401 session": ("401 Unauthorized", _JSON, error(None, -32000, "Unknown session")),
    "404 session": ("404 Not Found", _JSON, error("server-error", -32600, "Session not found")),
}


def redirect_to(url: str) -> Script:
    async def call(talk: Talk) -> None:
        await talk.answer("307 Temporary Redirect", {"Location": url})

    return call


class BadSse(ScriptedServer):
    """HTTP+SSE: listens at `url`, takes messages at the endpoint it names."""

    def __init__(self) -> None:
        super().__init__()
        self.fault = ""
        self.endpoint = "/messages?session_id=s1"
        self.call: Callable[[Talk, Seen], Awaitable[None]] | None = None
        """Takes `tools/call` over: the stream to answer on, and the message."""
        self._stream: Talk | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/sse"

    @property
    def stream(self) -> Talk:
        if self._stream is None:
            raise AssertionError("nobody listens")
        return self._stream

    async def respond(self, talk: Talk) -> None:
        if talk.seen.method == "GET":
            await self._listen(talk)
            return
        if self.fault == "refuses messages":
            await talk.answer("404 Not Found", {}, b"Could not find session")
            return
        if self.fault == "hang up before":
            talk.hang_up()
            return
        if self.fault == "never confirms":
            await self._handle(talk.seen)
            await asyncio.sleep(3600)
        await talk.answer("202 Accepted", {}, b"Accepted")
        await self._handle(talk.seen)

    async def _listen(self, talk: Talk) -> None:
        if self.fault == "html":
            await talk.answer("200 OK", _HTML, b"<html></html>")
            return
        if self.fault == "401":
            await talk.answer("401 Unauthorized", {})
            return
        await talk.start_events()
        if self.fault == "closes at once":
            await talk.end_events()
            return
        if self.fault != "no endpoint":
            await talk.event(self.endpoint.encode(), "endpoint")
        self._stream = talk
        await asyncio.sleep(3600)

    async def _handle(self, seen: Seen) -> None:
        message = seen.message
        if seen.rpc == "tools/call" and self.call is not None:
            await self.call(self.stream, seen)
        elif "id" in message and "method" in message:
            value = echoed(message) if seen.rpc == "tools/call" else b"{}"
            await self.stream.event(result(message["id"], value), "message")
