"""The headers that a request of the newer era has over HTTP and has not on stdio.

Most are in the message. Arguments that a tool wants mirrored are known by its definition alone; it is looked
up when the gateway has refused a call for lack of them, which it does before anything was done.
"""

import msgspec

from trunkline.cli.stdio.link import Link
from trunkline.front.mcp.envelope import Posted
from trunkline.upstream.passage import Passed
from trunkline.wire import definitions, eras, jsonrpc, translate

MOST_PAGES = 100
_NAME_KEY = "trunkline/name"

Mirrored = tuple[tuple[str, tuple[str, ...]], ...]


def headers_of(posted: Posted) -> dict[str, str]:
    """Raises `RpcFailure` for an envelope that cannot be meant."""
    method = posted.method or ""
    headers = {
        "MCP-Protocol-Version": eras.header_value(posted.version or ""),
        "Mcp-Method": eras.header_value(method),
    }
    member = eras.NAMED_METHODS.get(method)
    if member is not None and member in posted.params:
        headers["Mcp-Name"] = eras.header_value(posted.text(member))
    return headers


class Mirroring:
    def __init__(self, link: Link) -> None:
        self._link = link
        self._known: dict[str, Mirrored] = {}
        """Of the tools that were called and want something mirrored."""

    def parameters(self, posted: Posted) -> dict[str, str]:
        """The headers of a call, as far as its tool is known."""
        mirrored = self._known.get(posted.text("name")) if posted.method == "tools/call" else None
        if mirrored is None:
            return {}
        try:
            return eras.parameter_headers(
                mirrored, msgspec.json.decode(posted.params.get("arguments", b"{}"))
            )
        except (msgspec.DecodeError, RecursionError):
            return {}

    async def learn(self, posted: Posted) -> None:
        """Look up what the called tool wants. Raises `UpstreamError`."""
        name = posted.text("name")
        self._known.pop(name, None)
        meta = {key: bytes(raw) for key, raw in posted.meta.items() if key != "progressToken"}
        cursor = b""
        for _ in range(MOST_PAGES):
            params = {"_meta": translate.joined(meta), **({"cursor": cursor} if cursor else {})}
            page = await self._page(translate.joined(params), posted.version or "")
            for definition in jsonrpc.elements(page.get("tools", b"[]")):
                if (mirrored := _wanted_by(definition, name)) is not None:
                    self._known[name] = mirrored
                    return
            cursor = page.get("nextCursor", b"")
            if not cursor:
                return

    async def _page(self, params: bytes, version: str) -> dict[str, bytes]:
        request = jsonrpc.encode_request("trunkline-tools", "tools/list", params)
        headers = {"MCP-Protocol-Version": version, "Mcp-Method": "tools/list"}
        found = b""

        async def hear(data: bytes, _: str | None) -> None:
            nonlocal found
            found = data

        passed = await self._link.post(request, headers, hear)
        try:
            answer = jsonrpc.decode(passed.body or found)
            return jsonrpc.fields(answer.result) if isinstance(answer, jsonrpc.Response) else {}
        except jsonrpc.Malformed:
            return {}


def refused(passed: Passed) -> bool:
    """Whether a call was refused because headers and message do not agree."""
    if passed.status != 400:
        return False
    try:
        answer = jsonrpc.decode(passed.body)
    except jsonrpc.Malformed:
        return False
    return isinstance(answer, jsonrpc.ErrorResponse) and answer.code == eras.HEADER_MISMATCH


def _wanted_by(definition: bytes, name: str) -> Mirrored | None:
    """What the tool wants mirrored, if it answers to this name: its advertised, its full, or its own one."""
    try:
        facts = definitions.read_tool(definition)
        meta = jsonrpc.fields(jsonrpc.fields(definition).get("_meta", b"{}"))
        full = msgspec.json.decode(meta.get(_NAME_KEY, b'""'), type=str)
    except (definitions.Unusable, jsonrpc.Malformed, msgspec.DecodeError):
        return None
    if name in (facts.name, full, full.partition(".")[2]) and facts.mirrored:
        return facts.mirrored
    return None
