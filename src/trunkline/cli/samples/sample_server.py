"""A small MCP server without a transport: a JSON-RPC message in, its answer out.

Pure. Three of these, each on a transport of its own, are what `trunkline demo` registers. All speak the
session era; one whose transport is `/mcp` speaks 2026-07-28 as well. `stdio.py` and `web.py` carry them.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trunkline import __version__
from trunkline.wire.eras import (
    CAPABILITIES_KEY,
    LATEST_LEGACY,
    LEGACY_VERSIONS,
    MODERN,
    UNSUPPORTED_VERSION,
    VERSION_KEY,
)

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602

_CAPABILITIES: Mapping[str, Any] = {"tools": {}}
_FRESH = {"ttlMs": 60_000, "cacheScope": "public"}


class Mistaken(ValueError):
    """The arguments of a call cannot be used; the text goes back as the tool's own error."""


class _Answered(Exception):
    """Ends a request with a JSON-RPC error."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.error: dict[str, Any] = {"code": code, "message": message}
        if data is not None:
            self.error["data"] = data


@dataclass(frozen=True, slots=True)
class SampleTool:
    name: str
    description: str
    properties: Mapping[str, Any]
    required: Sequence[str]
    run: Callable[[Mapping[str, Any]], dict[str, Any]]
    changes_something: bool = False

    def definition(self) -> dict[str, Any]:
        schema = {"type": "object", "properties": dict(self.properties), "required": list(self.required)}
        hints = {"readOnlyHint": not self.changes_something, "openWorldHint": False}
        return {
            "name": self.name,
            "description": self.description,
            "inputSchema": {**schema, "additionalProperties": False},
            "annotations": hints,
        }


class SampleServer:
    def __init__(self, name: str, title: str, tools: Sequence[SampleTool], *, modern: bool = False) -> None:
        self.name = name
        self.speaks_modern = modern
        self._info = {"name": name, "title": title, "version": __version__}
        self._tools = {tool.name: tool for tool in tools}

    def answer_bytes(self, data: bytes) -> bytes | None:
        """The answer to one message as it came over the wire; None for what is not to be answered."""
        try:
            message = json.loads(data)
        except (ValueError, RecursionError):
            answer: dict[str, Any] | None = _failed(None, PARSE_ERROR, "not JSON")
        else:
            answer = self.answer(message)
        return None if answer is None else json.dumps(answer).encode()

    def answer(self, message: Any) -> dict[str, Any] | None:
        if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
            return _failed(None, INVALID_REQUEST, "not a JSON-RPC 2.0 message")
        method, identity, params = message.get("method"), message.get("id"), message.get("params") or {}
        if "id" not in message or not isinstance(method, str):
            return None
        if isinstance(identity, bool) or not isinstance(identity, str | int):
            return _failed(None, INVALID_REQUEST, "the id is neither a string nor a number")
        try:
            if not isinstance(params, dict):
                raise _Answered(INVALID_PARAMS, "params is not an object")
            result = self._result(method, params)
        except _Answered as answered:
            return {"jsonrpc": "2.0", "id": identity, "error": answered.error}
        return {"jsonrpc": "2.0", "id": identity, "result": result}

    def _result(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        meta = params.get("_meta")
        if isinstance(meta, dict) and VERSION_KEY in meta:
            return self._modern_result(method, params, meta)
        if method == "initialize":
            asked = params.get("protocolVersion")
            version = asked if asked in LEGACY_VERSIONS else LATEST_LEGACY
            return {"protocolVersion": version, "capabilities": _CAPABILITIES, "serverInfo": self._info}
        if method == "ping":
            return {}
        return self._tools_result(method, params)

    def _modern_result(
        self, method: str, params: Mapping[str, Any], meta: Mapping[str, Any]
    ) -> dict[str, Any]:
        if not self.speaks_modern:
            raise _Answered(METHOD_NOT_FOUND, f"unknown method {method}: this server starts with initialize")
        if meta[VERSION_KEY] != MODERN:
            details = {"supported": [MODERN, *LEGACY_VERSIONS], "requested": meta[VERSION_KEY]}
            raise _Answered(UNSUPPORTED_VERSION, "unsupported protocol version", details)
        if not isinstance(meta.get(CAPABILITIES_KEY), dict):
            raise _Answered(INVALID_PARAMS, f"_meta has no {CAPABILITIES_KEY}")
        stamp = {"resultType": "complete", "_meta": {"io.modelcontextprotocol/serverInfo": self._info}}
        if method == "server/discover":
            return {"supportedVersions": [MODERN], "capabilities": _CAPABILITIES, **_FRESH, **stamp}
        result = self._tools_result(method, params) | stamp
        return result | _FRESH if method == "tools/list" else result

    def _tools_result(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        if method == "tools/list":
            if params.get("cursor") is not None:
                raise _Answered(INVALID_PARAMS, "there is no further page")
            return {"tools": [tool.definition() for tool in self._tools.values()]}
        if method == "tools/call":
            return self._call(params)
        raise _Answered(METHOD_NOT_FOUND, f"unknown method {method}")

    def _call(self, params: Mapping[str, Any]) -> dict[str, Any]:
        tool = self._tools.get(str(params.get("name")))
        if tool is None:
            raise _Answered(INVALID_PARAMS, f"unknown tool {params.get('name')!r}")
        arguments = params.get("arguments") or {}
        try:
            _check(arguments, tool)
            result = tool.run(arguments)
        except Mistaken as mistake:
            return {"content": [{"type": "text", "text": str(mistake)}], "isError": True}
        text = json.dumps(result, ensure_ascii=False)
        return {
            "content": [{"type": "text", "text": text}],
            "structuredContent": result,
            "isError": False,
        }


_KINDS: Mapping[str, type | tuple[type, ...]] = {"string": str, "integer": int, "number": (int, float)}


def _check(arguments: Any, tool: SampleTool) -> None:
    if not isinstance(arguments, dict):
        raise Mistaken("arguments is not an object")
    for name in tool.required:
        if name not in arguments:
            raise Mistaken(f"{name} is missing")
    for name, value in arguments.items():
        if name not in tool.properties:
            raise Mistaken(f"there is no argument {name!r}")
        kind = tool.properties[name]["type"]
        if isinstance(value, bool) or not isinstance(value, _KINDS[kind]):
            raise Mistaken(f"{name} must be of type {kind}")


def _failed(identity: str | int | None, code: int, message: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": identity, "error": {"code": code, "message": message}}
