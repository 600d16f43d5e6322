"""A real gateway behind a real socket on a free port, with keys of every scope and a real STDIO server."""

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import uvloop

from trunkline.app import open_gateway
from trunkline.core.gateway import Gateway
from trunkline.front.connections import Patience
from trunkline.front.server import serve
from trunkline.model import Principal, Scope, ServerStatus
from trunkline.settings import Settings

ECHO = Path(__file__).with_name("echo_server.py")
TESTER = Principal("test", "tester", Scope.ADMIN)


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The loop the front runs on in earnest: connections end differently on asyncio's own."""
    return {"uvloop": uvloop.new_event_loop}


@dataclass
class Running:
    url: str
    gateway: Gateway
    keys: dict[Scope, str]
    client: aiohttp.ClientSession

    @property
    def port(self) -> int:
        return int(self.url.rsplit(":", 1)[1])

    def bearer(self, scope: Scope = Scope.ADMIN) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.keys[scope]}"}

    async def ask(
        self, method: str, path: str, *, scope: Scope = Scope.ADMIN, **more: Any
    ) -> tuple[int, Any]:
        """Status and decoded JSON (None for an empty body)."""
        headers = {**self.bearer(scope), **more.pop("headers", {})}
        async with self.client.request(method, self.url + path, headers=headers, **more) as answer:
            return answer.status, await answer.json() if await answer.read() else None

    async def call(self, name: str, arguments: object = None, **more: object) -> tuple[int, Any]:
        body = {"name": name, "arguments": arguments, **more}
        return await self.ask("POST", "/api/v1/tools/call", scope=Scope.CALL, json=body)

    async def raw(self, data: bytes, seconds: float = 10) -> bytes:
        """Everything that comes back until the other side closes."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(data)
        try:
            return await asyncio.wait_for(reader.read(), seconds)
        finally:
            writer.close()


StartFront = Callable[..., Awaitable[Running]]


async def until(condition: Callable[[], bool], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come about in time"
        await asyncio.sleep(0.01)


@pytest.fixture
async def start_front(tmp_path: Path) -> AsyncIterator[StartFront]:
    async with contextlib.AsyncExitStack() as ending:

        async def start(*, patience: Patience | None = None, **given: Any) -> Running:
            listening: asyncio.Future[str] = asyncio.get_running_loop().create_future()
            opened: list[Gateway] = []

            @contextlib.asynccontextmanager
            async def opening(settings: Settings) -> AsyncIterator[Gateway]:
                async with open_gateway(settings) as gateway:
                    opened.append(gateway)
                    yield gateway

            settings = Settings(**{"port": 0, "data_dir": tmp_path / "data", **given})
            serving = asyncio.create_task(serve(settings, opening, listening.set_result, patience=patience))
            both: list[asyncio.Future[Any]] = [serving, listening]
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if serving.done():
                serving.result()
            ending.push_async_callback(_cancelled, serving)
            keys = {}
            for scope in Scope:
                _, keys[scope] = await opened[0].create_key(f"{scope}-key", scope, expires_at=None, by=TESTER)
            client = await ending.enter_async_context(aiohttp.ClientSession())
            return Running(listening.result(), opened[0], keys, client)

        yield start


async def _cancelled(task: asyncio.Task[int]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


@pytest.fixture
async def front(start_front: StartFront) -> Running:
    return await start_front()


def echo_registration(folder: Path, name: str = "echo") -> dict[str, Any]:
    return {
        "name": name,
        "description": "Says what it hears",
        "transport_type": "stdio",
        "connection_config": {
            "command": sys.executable,
            "args": [str(ECHO), str(folder)],
            "env": {"API_TOKEN": "planted-secret-value"},
        },
    }


async def registered(front: Running, folder: Path, name: str = "echo") -> str:
    """The id of a connected server whose tools are in the catalogue."""
    status, answer = await front.ask(
        "POST", "/api/v1/aggregator/servers", json=echo_registration(folder, name)
    )
    assert status == 201, answer
    identity = str(answer["id"])

    def ready() -> bool:
        server = front.gateway.get_server(identity)
        return server.status is ServerStatus.CONNECTED and server.tool_count > 0

    await until(ready)
    return identity


@pytest.fixture
async def echo(front: Running, tmp_path: Path) -> str:
    return await registered(front, tmp_path)
