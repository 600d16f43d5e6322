"""The floor: the least a Python gateway on ASGI and aiohttp can do for one tool call.

Takes the body of `POST /api/v1/tools/call`, drops the server's name from the tool's, sends one
`tools/call` upstream over kept connections, and passes the result on. At `/mcp` it does the same for MCP
messages of either era and passes the answer on as it came. No keys, no audit, no catalogue, no sessions, no
deadline, no errors: whatever a real gateway costs above this, it costs for what it does.
Run it with `python -m bench.floor --upstream URL`; its first line of output is its address.
"""

import argparse
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import msgspec
import uvicorn

from bench import protocol

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


class _Call(msgspec.Struct):
    name: str
    arguments: msgspec.Raw


class _Reply(msgspec.Struct):
    result: msgspec.Raw


class _Params(msgspec.Struct, omit_defaults=True):
    name: str = ""
    arguments: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    meta: msgspec.Raw | msgspec.UnsetType = msgspec.field(name="_meta", default=msgspec.UNSET)


class _Message(msgspec.Struct, kw_only=True):
    jsonrpc: str
    id: int | str | msgspec.UnsetType = msgspec.UNSET
    method: str
    params: _Params | msgspec.UnsetType = msgspec.UNSET


_RELAYED = frozenset({b"accept", b"mcp-protocol-version", b"mcp-method", b"mcp-session-id"})


class Floor:
    """The ASGI application."""

    def __init__(self, upstream: str) -> None:
        self._upstream = upstream
        self._session: aiohttp.ClientSession
        self._calls = msgspec.json.Decoder(_Call)
        self._replies = msgspec.json.Decoder(_Reply)
        self._messages = msgspec.json.Decoder(_Message)
        self._last = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            body, status = await _body(receive), 200
            if scope["path"] == "/mcp":
                status, result = await self._relay(body, scope["headers"])
            else:
                result = await self._forward(body)
            headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(result))]
            await send({"type": "http.response.start", "status": status, "headers": headers})
            await send({"type": "http.response.body", "body": result})

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
        ) as self._session:
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})

    async def _forward(self, body: bytes) -> bytes:
        call = self._calls.decode(body)
        name = call.name.partition(".")[2]
        self._last += 1
        message = protocol.modern_call(self._last, msgspec.json.encode(name), bytes(call.arguments))
        headers = protocol.modern_headers("tools/call", name)
        headers["Content-Type"] = "application/json"
        headers["Accept"] = "application/json, text/event-stream"
        async with self._session.post(self._upstream, data=message, headers=headers) as response:
            reply: _Reply = self._replies.decode(await response.read())
        return bytes(reply.result)

    async def _relay(self, body: bytes, given: list[tuple[bytes, bytes]]) -> tuple[int, bytes]:
        """Any message; only that of a call is changed, in its tool's name."""
        headers = {"Content-Type": "application/json"}
        headers |= {name.decode(): value.decode() for name, value in given if name in _RELAYED}
        message: _Message = self._messages.decode(body)
        if message.method == "tools/call" and message.params is not msgspec.UNSET:
            message.params.name = message.params.name.partition("__")[2]
            body = msgspec.json.encode(message)
            headers["Mcp-Name"] = message.params.name
        async with self._session.post(self._upstream, data=body, headers=headers) as response:
            return response.status, await response.read()


async def _body(receive: Receive) -> bytes:
    parts: list[bytes] = []
    while True:
        message = await receive()
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.floor", description="The ASGI floor of a call.")
    parser.add_argument("--upstream", required=True, help="address of the upstream's MCP endpoint")
    parser.add_argument("--port", type=int, default=0, help="port on loopback; 0 takes a free one")
    options = parser.parse_args()
    listening = socket.create_server(("127.0.0.1", options.port), backlog=1024)
    print(f"http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
    config = uvicorn.Config(
        Floor(options.upstream),
        loop="uvloop",
        http="httptools",
        lifespan="on",
        access_log=False,
        log_level="error",
    )
    uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    main()
