"""A whole gateway on a port of its own, and a client that drives it as a person's script would."""

import asyncio
import base64
import json
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import pytest

from tests.conftest import StorePlace
from tests.postgres import PostgresUrl
from tests.servers.running import Upstreams
from trunkline.app import open_gateway
from trunkline.front.server import serve
from trunkline.settings import Settings, load_settings

KEY = base64.b64encode(os.urandom(32)).decode()
API = "/api/v1/aggregator"
T = TypeVar("T")


class Door:
    """REST, with a key."""

    def __init__(self, url: str, key: str, session: aiohttp.ClientSession, settings: Settings) -> None:
        self.url = url
        self.key = key
        self.settings = settings
        self._session = session

    async def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {self.key}"}
        async with self._session.request(method, self.url + path, json=body, headers=headers) as response:
            text = await response.text()
            return response.status, json.loads(text) if text else None

    async def register(self, name: str, transport: str, config: Mapping[str, object], **more: object) -> Any:
        body = {"name": name, "transport_type": transport, "connection_config": config, **more}
        status, server = await self.ask("POST", f"{API}/servers", body)
        assert status == 201, server
        return server

    async def server(self, name: str) -> Any:
        status, server = await self.ask("GET", f"{API}/servers/{name}")
        assert status == 200, server
        return server

    async def until(self, name: str, *statuses: str, seconds: float = 20) -> Any:
        """The server once it has one of these statuses; fails with what it says when it never does."""
        return await eventually(lambda: self.server(name), lambda it: it["status"] in statuses, seconds)

    async def connected(self, name: str, transport: str, config: Mapping[str, object], **more: object) -> Any:
        await self.register(name, transport, config, **more)
        return await self.until(name, "CONNECTED")

    async def call(self, name: str, /, server_id: str | None = None, **arguments: object) -> tuple[int, Any]:
        body: dict[str, object] = {"name": name, "arguments": arguments}
        if server_id is not None:
            body["server_id"] = server_id
        return await self.ask("POST", "/api/v1/tools/call", body)

    async def text(self, name: str, /, **arguments: object) -> str:
        """The text a call answers with; fails when it is refused."""
        status, answer = await self.call(name, None, **arguments)
        assert status == 200, answer
        assert not answer["isError"], answer
        return str(answer["content"][0]["text"])

    async def in_flight(self, server: str, calls: int) -> None:
        """Returns when so many calls to the server are under way."""
        await eventually(
            lambda: self.metric(f'trunkline_calls_in_flight{{server="{server}"}}'), lambda seen: seen == calls
        )

    async def metric(self, series: str) -> float | None:
        headers = {"Authorization": f"Bearer {self.key}"}
        async with self._session.get(self.url + "/metrics", headers=headers) as response:
            lines = (await response.text()).splitlines()
        return next((float(line.rpartition(" ")[2]) for line in lines if line.startswith(series + " ")), None)

    async def tool_names(self, server: str) -> list[str]:
        status, listing = await self.ask("GET", f"{API}/servers/{server}/tools")
        assert status == 200, listing
        return [tool["name"] for tool in listing["tools"]]


async def eventually(read: Callable[[], Awaitable[T]], holds: Callable[[T], bool], seconds: float = 20) -> T:
    """Asks again and again, in bounded time."""
    end = time.monotonic() + seconds
    while True:
        seen = await read()
        if holds(seen):
            return seen
        assert time.monotonic() < end, f"not within {seconds} s: {seen}"
        await asyncio.sleep(0.02)


class Open:
    """Opens a gateway with settings of one's choice, on one database and folder."""

    def __init__(self, environ: dict[str, str], data_dir: Path) -> None:
        self._environ = environ
        self._data_dir = data_dir
        self._database = StorePlace(environ.get("MCP_AGGREGATOR_DATABASE_URL", data_dir))
        self._gateways = AsyncExitStack()

    async def __call__(self, **flags: object) -> Door:
        chosen = {"data_dir": self._data_dir, "port": 0, **flags}
        settings = load_settings(flags=chosen, environ=self._environ)
        return await self._gateways.enter_async_context(running(settings))

    @asynccontextmanager
    async def without(self, table: str) -> AsyncIterator[None]:
        """A database that fails whenever this table is needed."""
        await asyncio.to_thread(self._rename, table, f"{table}_away")
        try:
            yield
        finally:
            await asyncio.to_thread(self._rename, f"{table}_away", table)

    def _rename(self, before: str, after: str) -> None:
        self._database.execute(f"ALTER TABLE mcp.{before} RENAME TO {after}")

    async def close(self) -> None:
        await self._gateways.aclose()


@asynccontextmanager
async def running(settings: Settings) -> AsyncIterator[Door]:
    listening: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(serve(settings, open_gateway, listening.set_result))
    either: set[asyncio.Future[Any]] = {serving, listening}
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED, timeout=30)
    if serving.done():
        await serving
    try:
        async with aiohttp.ClientSession() as session:
            key = (settings.data_dir / "admin.key").read_text().strip()
            yield Door(await listening, key, session, settings)
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)


@pytest.fixture(params=["sqlite", "postgresql"])
async def open_door(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Open]:
    """Every journey runs on both databases."""
    environ: dict[str, str] = {}
    if request.param == "postgresql":
        make: PostgresUrl = request.getfixturevalue("postgres_url")
        environ = {"MCP_AGGREGATOR_DATABASE_URL": make(), "MCP_CREDENTIAL_KEY": KEY}
    opens = Open(environ, tmp_path / "data")
    yield opens
    await opens.close()


@pytest.fixture
async def door(open_door: Open) -> Door:
    return await open_door()


@pytest.fixture
async def upstreams() -> AsyncIterator[Upstreams]:
    """Starts MCP servers that listen on a port, and ends them."""
    servers = Upstreams()
    try:
        yield servers
    finally:
        await servers.close()
