"""The sample servers, asked by the official SDK's client over each transport, and their tools."""

import http.client
import json
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Literal
from urllib.parse import urlsplit

import pytest
from mcp import Client, StdioServerParameters, stdio_client
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import TextContent

from trunkline.cli.samples.catalogue import clock, desk, measure
from trunkline.cli.samples.sample_server import SampleServer
from trunkline.cli.samples.web import HttpWithSse, StreamableHttp, running

Mode = Literal["legacy", "auto", "2026-07-28"]


@pytest.fixture(scope="module")
def desk_url() -> Iterator[str]:
    with running(HttpWithSse(desk())) as url:
        yield url


@pytest.fixture(scope="module")
def measure_url() -> Iterator[str]:
    with running(StreamableHttp(measure())) as url:
        yield url


@asynccontextmanager
async def client_of(transport: AbstractAsyncContextManager[Any], mode: Mode) -> AsyncIterator[Client]:
    async with Client(transport, mode=mode) as client:
        yield client


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_the_clock_answers_the_official_client_over_stdio(mode: Mode) -> None:
    server = StdioServerParameters(command=sys.executable, args=["-m", "trunkline.cli.samples.stdio"])
    async with client_of(stdio_client(server), mode) as client:
        listed = await client.list_tools()
        assert [tool.name for tool in listed.tools] == ["now", "convert_time", "days_between"]
        result = await client.call_tool("days_between", {"start": "2026-01-31", "end": "2026-12-24"})
        assert result.structured_content == {"days": 327, "start": "Saturday", "end": "Thursday"}
        assert not result.is_error


async def test_the_desk_answers_the_official_client_over_sse(desk_url: str) -> None:
    async with client_of(sse_client(f"{desk_url}/sse"), "legacy") as client:
        result = await client.call_tool("text_statistics", {"text": "One fish. Two fish! Red fish?"})
        assert result.structured_content == {
            "characters": 29, "words": 6, "sentences": 3, "most_used": ["fish", "one", "two"],
        }  # fmt: skip
        first = await client.call_tool("add_note", {"text": "milk"})
        assert first.structured_content is not None
        notes = await client.call_tool("list_notes", {})
        assert notes.structured_content is not None
        assert "milk" in notes.structured_content["notes"]


@pytest.mark.parametrize("mode", ["legacy", "auto", "2026-07-28"])
async def test_the_measure_answers_the_official_client_over_http_in_both_eras(
    measure_url: str, mode: Mode
) -> None:
    async with client_of(streamable_http_client(f"{measure_url}/mcp"), mode) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["convert_units", "roll_dice"]
        result = await client.call_tool("convert_units", {"value": 100, "from_unit": "C", "to_unit": "F"})
        assert result.structured_content == {"value": 212.0, "unit": "F"}
        refused = await client.call_tool("convert_units", {"value": 1, "from_unit": "kg", "to_unit": "F"})
        assert refused.is_error
        assert isinstance(refused.content[0], TextContent)
        assert refused.content[0].text == "kg measures mass, F temperature"


async def test_two_clients_of_the_desk_do_not_hear_each_other(desk_url: str) -> None:
    async with (
        client_of(sse_client(f"{desk_url}/sse"), "legacy") as one,
        client_of(sse_client(f"{desk_url}/sse"), "legacy") as other,
    ):
        mine = await one.call_tool("text_statistics", {"text": "a"})
        theirs = await other.call_tool("text_statistics", {"text": "a b"})
        assert mine.structured_content is not None
        assert theirs.structured_content is not None
        assert (mine.structured_content["words"], theirs.structured_content["words"]) == (1, 2)


def post(url: str, body: bytes, **headers: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=5)
    try:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request("POST", "/mcp", body=body, headers=sent)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def modern(method: str, **params: object) -> bytes:
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    return json.dumps(
        {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
    ).encode()


@pytest.mark.parametrize(
    ("body", "headers", "status", "code"),
    [
        (b"{", {}, 400, -32700),
        (b"[]", {}, 400, -32600),
        (modern("tools/list"), {}, 400, -32020),
        (
            modern("tools/list"),
            {"mcp_protocol_version": "2026-07-28", "mcp_method": "tools/call"},
            400,
            -32020,
        ),
        (modern("no/such"), {"mcp_protocol_version": "2026-07-28", "mcp_method": "no/such"}, 404, -32601),
        (b'{"jsonrpc":"2.0","id":1,"method":"no/such"}', {}, 200, -32601),
        (
            modern("tools/call", name="nothing"),
            {"mcp_protocol_version": "2026-07-28", "mcp_method": "tools/call", "mcp_name": "nothing"},
            400,
            -32602,
        ),
    ],
)
def test_what_is_not_the_protocol_is_refused_by_its_code(
    measure_url: str, body: bytes, headers: dict[str, str], status: int, code: int
) -> None:
    answered, content = post(measure_url, body, **headers)
    assert (answered, json.loads(content)["error"]["code"]) == (status, code)


def test_a_page_of_another_site_is_refused(measure_url: str) -> None:
    assert post(measure_url, modern("tools/list"), origin="https://evil.example")[0] == 403


def call(server: SampleServer, tool: str, **arguments: object) -> dict[str, Any]:
    params = {"name": tool, "arguments": arguments}
    answer = server.answer({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    assert answer is not None
    result: dict[str, Any] = answer["result"]
    return result


def test_the_same_seed_throws_the_same_dice() -> None:
    first = call(measure(), "roll_dice", count=5, seed=7)["structuredContent"]
    again = call(measure(), "roll_dice", count=5, seed=7)["structuredContent"]
    other = call(measure(), "roll_dice", count=5, seed=8)["structuredContent"]
    assert first == again != other
    assert first["total"] == sum(first["rolls"])


@pytest.mark.parametrize(
    ("server", "tool", "arguments", "reason"),
    [
        (clock(), "days_between", {"start": "soon", "end": "2026-01-01"}, "start is no date"),
        (clock(), "now", {"timezone": "Mars/Olympus"}, "no time zone 'Mars/Olympus'"),
        (clock(), "now", {"timezone": "../etc/passwd"}, "no time zone"),
        (measure(), "roll_dice", {"count": 1000}, "count must be 1 to 100"),
        (measure(), "roll_dice", {"count": True}, "count must be of type integer"),
        (measure(), "convert_units", {"value": 1}, "from_unit is missing"),
        (measure(), "roll_dice", {"colour": "red"}, "no argument 'colour'"),
    ],
)
def test_arguments_that_cannot_be_used_are_the_tools_own_error(
    server: SampleServer, tool: str, arguments: dict[str, object], reason: str
) -> None:
    result = call(server, tool, **arguments)
    assert result["isError"] is True
    assert reason in result["content"][0]["text"]


def test_a_time_keeps_its_moment_in_another_zone() -> None:
    result = call(
        clock(),
        "convert_time",
        time="2026-07-01T12:00",
        from_timezone="Europe/Vienna",
        to_timezone="Asia/Tokyo",
    )
    assert result["structuredContent"]["to"] == "2026-07-01T19:00+09:00"
