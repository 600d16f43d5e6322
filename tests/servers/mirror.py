"""An MCP server without an SDK that gives back what it was given, byte for byte, in the era it is told.

Run as `python mirror.py legacy|modern PORT`. Its tools: `mirror` answers with its arguments where every
client looks and where none does; `wait` reports progress under the token it was given until it is cancelled;
`seen` tells how many calls came, how many of them wait and how many were cancelled.
"""

import asyncio
import contextlib
import json
import sys

import msgspec
from aiohttp import web

VERSION = {"legacy": "2025-11-25", "modern": "2026-07-28"}
SCHEMA = {"type": "object"}
TOOLS = [
    {"name": name, "description": f"The tool {name}", "inputSchema": SCHEMA, "unheard": {"of": [1.50, None]}}
    for name in ("mirror", "wait", "seen")
]


class _Params(msgspec.Struct):
    name: str = ""
    arguments: msgspec.Raw = msgspec.Raw(b"{}")
    _meta: dict[str, msgspec.Raw] = {}


class _Request(msgspec.Struct):
    method: str
    id: msgspec.Raw = msgspec.Raw(b"")
    params: _Params = msgspec.field(default_factory=_Params)


class Mirror:
    def __init__(self, era: str) -> None:
        self.modern = era == "modern"
        self.calls = 0
        self.cancelled = 0
        self.waiting: dict[bytes, asyncio.Event] = {}

    async def post(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        message = msgspec.json.decode(body, type=_Request)
        if not bytes(message.id):
            if message.method == "notifications/cancelled":
                params = msgspec.json.decode(body)["params"]
                event = self.waiting.get(json.dumps(params["requestId"]).encode())
                if event is not None:
                    event.set()
            return web.Response(status=202)
        if message.method == "tools/call" and message.params.name == "wait":
            return await self.wait(request, message)
        result = self.result(message)
        if result is None:
            text = b'{"jsonrpc":"2.0","id":%b,"error":{"code":-32601,"message":"unknown"}}' % bytes(
                message.id
            )
            return web.Response(
                body=text, status=404 if self.modern else 200, content_type="application/json"
            )
        if self.modern:
            result = b'{"resultType":"complete",%b' % result[1:]
        text = b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (bytes(message.id), result)
        headers = {"Mcp-Session-Id": "one"} if message.method == "initialize" else {}
        return web.Response(body=text, content_type="application/json", headers=headers)

    def result(self, message: _Request) -> bytes | None:
        capabilities: dict[str, object] = {"tools": {}}
        match message.method:
            case "initialize" if not self.modern:
                return msgspec.json.encode(
                    {
                        "protocolVersion": VERSION["legacy"],
                        "capabilities": capabilities,
                        "serverInfo": {"name": "mirror", "version": "1"},
                    }
                )
            case "server/discover" if self.modern:
                return msgspec.json.encode(
                    {"supportedVersions": [VERSION["modern"]], "capabilities": capabilities, "ttlMs": 0}
                )
            case "ping":
                return b"{}"
            case "tools/list":
                return msgspec.json.encode({"tools": TOOLS})
            case "tools/call":
                self.calls += 1
                if message.params.name == "seen":
                    return b'{"content":[],"structuredContent":{"calls":%d,"waiting":%d,"cancelled":%d}}' % (
                        self.calls - 1,
                        len(self.waiting),
                        self.cancelled,
                    )
                given = bytes(message.params.arguments)
                return (
                    b'{"content":[{"type":"hologram","beam":%b}],"structuredContent":{"it":%b},'
                    b'"unheardOf":%b,"_meta":{"example.org/key":null}}' % (given, given, given)
                )
        return None

    async def wait(self, request: web.Request, message: _Request) -> web.StreamResponse:
        """Progress on the stream of the call, until the client cancels as its era does."""
        self.calls += 1
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        token = bytes(message.params._meta.get("progressToken", msgspec.Raw(b"null")))
        event = self.waiting[bytes(message.id)] = asyncio.Event()
        try:
            for number in range(1, 10_000):
                note = b'{"progressToken":%b,"progress":%d,"message":%b}' % (
                    token,
                    number,
                    bytes(message.params.arguments),
                )
                await response.write(
                    b'data: {"jsonrpc":"2.0","method":"notifications/progress","params":%b}\n\n' % note
                )
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(event.wait(), 0.05)
                    break
        except (ConnectionError, asyncio.CancelledError):
            self.cancelled += 1
            raise
        finally:
            del self.waiting[bytes(message.id)]
        self.cancelled += 1
        return response


def main() -> None:
    mirror = Mirror(sys.argv[1])
    app = web.Application(client_max_size=64 * 1024 * 1024)
    app.router.add_post("/mcp", mirror.post)
    web.run_app(app, host="127.0.0.1", port=int(sys.argv[2]), print=None, handler_cancellation=True)


if __name__ == "__main__":
    main()
