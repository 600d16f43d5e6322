"""Streams of the older era that ended without an answer, and what becomes of a client that comes back to one.

The official SDKs come back to every stream that ended so, once a second, until they are told that nothing
more will come; and they come back to the session's own stream if the other one does not say its place anew.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest

from tests.journeys.conftest import Door
from tests.journeys.mcp_client import McpClient, mcp_client
from tests.servers.running import Upstreams

pytestmark = pytest.mark.parametrize("open_door", ["sqlite"], indirect=True)


@pytest.fixture
async def client(door: Door, upstreams: Upstreams) -> AsyncIterator[McpClient]:
    port = await upstreams.start("mirror.py", "legacy")
    await door.connected("mirror", "HTTP", {"base_url": f"http://127.0.0.1:{port}/mcp"})
    async with mcp_client(door.url + "/mcp", door.key, modern=False) as client:
        yield client


@asynccontextmanager
async def calling(client: McpClient) -> AsyncIterator[aiohttp.ClientResponse]:
    """The stream of call 1, which waits."""
    call = {"name": "mirror.wait", "arguments": {}}
    message, _ = client.request("tools/call", call, id=1, progressToken=1)
    async with (
        asyncio.timeout(10),
        aiohttp.ClientSession() as session,
        session.post(client.url, headers=client.headers, json=message) as response,
    ):
        yield response


@asynccontextmanager
async def coming_back(client: McpClient, last_id: str) -> AsyncIterator[aiohttp.ClientResponse]:
    headers = {**client.headers, "Last-Event-ID": last_id}
    async with (
        asyncio.timeout(10),
        aiohttp.ClientSession() as session,
        session.get(client.url, headers=headers) as response,
    ):
        yield response


async def cancel(client: McpClient) -> None:
    await client.post({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}})


async def next_id(response: aiohttp.ClientResponse) -> str:
    async for line in response.content:
        if line.startswith(b"id: "):
            return line[4:].strip().decode()
    raise AssertionError("the stream has ended")


async def test_nobody_comes_back_to_a_call_that_was_cancelled(client: McpClient) -> None:
    async with calling(client) as response:
        await cancel(client)
        lines = (await response.read()).splitlines()
    ids = [line[4:].decode() for line in lines if line.startswith(b"id: ")]
    for gone in (ids[-1], "s999-1"):
        async with coming_back(client, gone) as again:
            assert again.status == 405
    assert not [line for line in lines if b'"result"' in line or b'"error"' in line]


async def test_a_stream_that_is_taken_up_says_where_before_there_is_news(client: McpClient) -> None:
    async with calling(client) as response:
        await next_id(response)
        last_id = await next_id(response)
    async with coming_back(client, last_id) as again:
        assert again.status == 200
        assert await next_id(again) == last_id
        assert await next_id(again) != last_id
    await cancel(client)
