"""The neutral upstream is a correct server: what it says is checked by hand, not by our own wire code."""

from typing import Any

import msgspec
import pytest

from bench import protocol
from bench.upstream import Upstream

ENVELOPE = msgspec.json.decode(protocol.ENVELOPE)


def ask(
    upstream: Upstream, method: str, params: dict[str, Any], *, path: bytes = b"/mcp"
) -> tuple[int, dict[str, Any]]:
    message = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}
    status, body = upstream.answer(b"POST", path, msgspec.json.encode(message))
    return status, msgspec.json.decode(body)


def test_a_modern_client_discovers_lists_and_calls() -> None:
    upstream = Upstream()
    status, discovered = ask(upstream, "server/discover", {"_meta": ENVELOPE})
    assert (status, discovered["result"]["supportedVersions"]) == (200, ["2026-07-28"])
    _, listed = ask(upstream, "tools/list", {"_meta": ENVELOPE})
    assert listed["result"].keys() == {"tools", "ttlMs", "cacheScope", "resultType"}
    _, called = ask(
        upstream, "tools/call", {"name": "echo", "arguments": {"text": 'say "ä"'}, "_meta": ENVELOPE}
    )
    assert called == {
        "jsonrpc": "2.0",
        "id": 7,
        "result": {
            "content": [{"type": "text", "text": 'say "ä"'}],
            "isError": False,
            "resultType": "complete",
        },
    }


def test_a_legacy_client_shakes_hands_and_sees_nothing_modern() -> None:
    upstream = Upstream()
    asked = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    _, opened = ask(upstream, "initialize", asked)
    assert opened["result"]["protocolVersion"] == "2025-06-18"
    assert upstream.answer(b"POST", b"/mcp", b'{"jsonrpc":"2.0","method":"notifications/initialized"}') == (
        202,
        b"",
    )
    _, listed = ask(upstream, "tools/list", {})
    assert listed["result"].keys() == {"tools"}
    _, called = ask(upstream, "tools/call", {"name": "echo", "arguments": {"text": "hi"}})
    assert called["result"] == {"content": [{"type": "text", "text": "hi"}], "isError": False}


@pytest.mark.parametrize(("path", "size"), [(b"/mcp", 20), (b"/t1/mcp", 1), (b"/t1000/mcp", 1000)])
def test_the_path_chooses_the_catalogue(path: bytes, size: int) -> None:
    _, listed = ask(Upstream(), "tools/list", {}, path=path)
    assert len({tool["name"] for tool in listed["result"]["tools"]}) == size


def test_what_it_does_not_know_it_refuses() -> None:
    upstream = Upstream()
    assert upstream.answer(b"POST", b"/t0/mcp", b"{}")[0] == 404
    assert upstream.answer(b"GET", b"/mcp", b"")[0] == 405
    assert upstream.answer(b"POST", b"/mcp", b"{")[0] == 400
    assert ask(upstream, "tools/call", {"name": "gone"})[1]["error"]["code"] == -32602
    assert ask(upstream, "prompts/list", {})[1]["error"]["code"] == -32601
    assert ask(upstream, "prompts/list", {"_meta": ENVELOPE})[0] == 404
    older = ENVELOPE | {protocol.VERSION_KEY: "2025-11-25"}
    assert ask(upstream, "server/discover", {"_meta": older})[1]["error"]["code"] == -32022


def test_every_message_is_counted_by_its_method() -> None:
    upstream = Upstream()
    for _ in range(3):
        ask(upstream, "tools/call", {"name": "echo"})
    ask(upstream, "tools/list", {})
    stats = msgspec.json.decode(upstream.answer(b"GET", b"/stats", b"")[1])
    assert stats["messages"] == {"tools/call": 3, "tools/list": 1}
