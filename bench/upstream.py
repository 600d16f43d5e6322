"""A neutral MCP upstream: it does as little as a correct server can, so that it is not what is measured.

Streamable HTTP on loopback, stateless, in both eras. The path chooses the catalogue: `/mcp` has 20 tools,
`/t1000/mcp` has 1,000. Tool 0 is `echo`; the others answer with their own name. `GET /stats` counts the
messages by method and the connections that carried one since the start. It does not check headers.
Run it with `python -m bench.upstream --port 0`; its first line of output is its address.
"""

import argparse
import asyncio
import re
from typing import Any, cast

import httptools
import msgspec
import uvloop

from bench import protocol

_PATH = re.compile(rb"(?:/t([1-9]\d{0,4}))?/mcp")
_DEFAULT_TOOLS = 20
_INFO = {"name": "neutral-upstream", "version": "1"}

Answer = tuple[int, bytes]
"""An HTTP status and a JSON body."""


class _Meta(msgspec.Struct, frozen=True):
    version: str = msgspec.field(name=protocol.VERSION_KEY, default="")


class _Arguments(msgspec.Struct, frozen=True):
    text: str | None = None


class _Params(msgspec.Struct, frozen=True):
    name: str = ""
    arguments: _Arguments = _Arguments()
    meta: _Meta = msgspec.field(name="_meta", default=_Meta())
    version: str = msgspec.field(name="protocolVersion", default="")


class _Message(msgspec.Struct, frozen=True):
    method: str = ""
    id: int | str | msgspec.UnsetType = msgspec.UNSET
    params: _Params = _Params()


class Stats(msgspec.Struct):
    """What came in since the start."""

    messages: dict[str, int]
    connections: int = 0


class Catalogue:
    """The tools behind one path: their names, and the list as it is sent."""

    def __init__(self, size: int) -> None:
        tools = [_echo(), *(_record_tool(number) for number in range(1, size))]
        self.names = frozenset(str(tool["name"]) for tool in tools)
        self.encoded = msgspec.json.encode(tools)


def _echo() -> dict[str, Any]:
    text = {"type": "string", "description": "What to say."}
    return {
        "name": "echo",
        "description": "Returns the text unchanged.",
        "inputSchema": {"type": "object", "properties": {"text": text}, "required": ["text"]},
    }


def _record_tool(number: int) -> dict[str, Any]:
    properties = {
        "key": {"type": "string", "description": "Key of the record."},
        "state": {"type": "string", "enum": ["open", "closed", "all"], "default": "open"},
        "limit": {"type": "integer", "minimum": 1, "maximum": 100, "description": "How many rows."},
    }
    return {
        "name": f"record_{number:04d}",
        "title": f"Record tool {number}",
        "description": f"Looks a record of kind {number} up by its key, keeps those in the wanted state and "
        "returns at most the wanted number of rows. As long as the description of a tool usually is.",
        "inputSchema": {"type": "object", "properties": properties, "required": ["key"]},
        "annotations": {"readOnlyHint": True},
    }


class Upstream:
    """Decides every answer; owns no socket."""

    def __init__(self) -> None:
        self.stats = Stats({})
        self._catalogues: dict[bytes, Catalogue] = {}
        self._messages = msgspec.json.Decoder(_Message)

    def answer(self, verb: bytes, path: bytes, body: bytes) -> Answer:
        if path == b"/stats":
            return 200, msgspec.json.encode(self.stats)
        catalogue = self._catalogues.get(path) or self._open(path)
        if catalogue is None:
            return 404, b""
        if verb != b"POST":
            return 405, b""
        try:
            message = self._messages.decode(body)
        except msgspec.DecodeError:
            return 400, b""
        self.stats.messages[message.method] = self.stats.messages.get(message.method, 0) + 1
        if message.id is msgspec.UNSET:
            return 202, b""
        return _reply(message, catalogue)

    def _open(self, path: bytes) -> Catalogue | None:
        found = _PATH.fullmatch(path)
        if found is None:
            return None
        catalogue = Catalogue(int(found.group(1) or _DEFAULT_TOOLS))
        self._catalogues[path] = catalogue
        return catalogue


def _reply(message: _Message, catalogue: Catalogue) -> Answer:
    params = message.params
    modern = params.meta.version != ""
    if modern and params.meta.version != protocol.MODERN:
        data = {"supported": [protocol.MODERN], "requested": params.meta.version}
        return 400, _error(message, protocol.UNSUPPORTED_VERSION, "Unsupported protocol version", data)
    if message.method == "tools/call":
        if params.name not in catalogue.names:
            return 200, _error(message, protocol.INVALID_PARAMS, "No tool of this name")
        return 200, _result(message, _said(params), modern)
    if message.method == "tools/list":
        listed = b'{"tools":%b%b}' % (catalogue.encoded, b',"ttlMs":0,"cacheScope":"public"' * modern)
        return 200, _result(message, listed, modern)
    if message.method == "server/discover" and modern:
        return 200, _result(message, _DISCOVERY, modern)
    if message.method == "initialize" and not modern:
        return 200, _result(message, _initialization(params.version), modern)
    if message.method == "ping" and not modern:
        return 200, _result(message, b"{}", modern)
    return (404 if modern else 200), _error(message, protocol.METHOD_NOT_FOUND, "Method not found")


def _said(params: _Params) -> bytes:
    text = params.name if params.arguments.text is None else params.arguments.text
    return b'{"content":[{"type":"text","text":%b}],"isError":false}' % msgspec.json.encode(text)


def _initialization(asked: str) -> bytes:
    version = asked if asked in protocol.LEGACY_VERSIONS else protocol.LATEST_LEGACY
    return msgspec.json.encode(
        {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": _INFO}
    )


_DISCOVERY = msgspec.json.encode(
    {
        "supportedVersions": [protocol.MODERN],
        "capabilities": {"tools": {}},
        "ttlMs": 0,
        "cacheScope": "public",
        "_meta": {protocol.SERVER_INFO_KEY: _INFO},
    }
)


def _result(message: _Message, result: bytes, modern: bool) -> bytes:
    if modern:
        result = result[:-1] + b',"resultType":"complete"}'
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (msgspec.json.encode(message.id), result)


def _error(message: _Message, code: int, text: str, data: object = None) -> bytes:
    error = {"code": code, "message": text, **({"data": data} if data else {})}
    return msgspec.json.encode({"jsonrpc": "2.0", "id": message.id, "error": error})


_STATUS_LINES = {
    200: b"200 OK",
    202: b"202 Accepted",
    400: b"400 Bad Request",
    404: b"404 Not Found",
    405: b"405 Method Not Allowed",
}


class Connection(asyncio.Protocol):
    """One client connection: feeds the parser, writes each answer at once and in order."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self._transport: asyncio.Transport
        self._parser = httptools.HttpRequestParser(self)
        self._path = b""
        self._body = b""
        self._counted = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._transport.close()

    def on_message_begin(self) -> None:
        self._path = self._body = b""

    def on_url(self, url: bytes) -> None:
        self._path += url

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        verb = self._parser.get_method()
        if verb == b"POST" and not self._counted:
            self._counted = True
            self._upstream.stats.connections += 1
        status, body = self._upstream.answer(verb, self._path, self._body)
        if not self._transport.is_closing():
            self._transport.write(
                b"HTTP/1.1 %b\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
                % (_STATUS_LINES[status], len(body), body)
            )
        if not self._parser.should_keep_alive():
            self._transport.close()


async def serve(port: int) -> None:
    upstream = Upstream()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(upstream), "127.0.0.1", port, backlog=1024)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.upstream", description="A neutral MCP upstream.")
    parser.add_argument("--port", type=int, default=0, help="port on loopback; 0 takes a free one")
    uvloop.run(serve(parser.parse_args().port))


if __name__ == "__main__":
    main()
