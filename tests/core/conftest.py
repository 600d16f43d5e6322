"""What the tests of the core share: a gateway of real parts on SQLite, and peers that do as they are told."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.core.clock import FakeClock
from tests.core.peer import Peer
from trunkline.app import open_gateway
from trunkline.core.gateway import Gateway
from trunkline.model import Call, Principal, Scope, Server, ServerDraft, ServerStatus
from trunkline.ports import Clock
from trunkline.settings import load_settings
from trunkline.store.sql import SqlStore

ADMIN = Principal("k1", "ann", Scope.ADMIN, "192.0.2.1")


async def until(holds: Callable[[], bool], seconds: float = 20) -> None:
    """Returns when it holds; fails when it never does."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"not within {seconds} s"
        await asyncio.sleep(0.005)


class House:
    """A gateway, and what tests do with one."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway

    async def register(
        self, name: str, config: dict[str, object], transport: str = "STDIO", **more: object
    ) -> Server:
        return await self.gateway.register(ServerDraft(name, transport, config, **more), ADMIN)  # type: ignore[arg-type]

    async def connected(self, name: str, config: dict[str, object], transport: str = "STDIO") -> Server:
        await self.register(name, config, transport)
        return await self.reaches(name, ServerStatus.CONNECTED)

    async def reaches(self, name: str, *statuses: ServerStatus) -> Server:
        await until(lambda: self.server(name).status in statuses)
        return self.server(name)

    def server(self, name: str) -> Server:
        return self.gateway.get_server(name)

    def tools(self, name: str) -> list[str]:
        return [tool.original_name for tool in self.gateway.tools_of(name)]

    async def call(self, name: str, server_id: str | None = None) -> bytes:
        outcome = await self.gateway.call(Call(ADMIN, name, b"{}", server_id=server_id))
        return outcome.result


class OpenHouse:
    """Opens gateways one after the other on one folder, with settings of one's choice."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self._open = AsyncExitStack()

    async def __call__(self, *, clock: Clock | None = None, **flags: object) -> House:
        settings = load_settings(flags={"data_dir": self.data_dir, **flags}, environ={})
        return House(await self._open.enter_async_context(open_gateway(settings, clock=clock)))

    async def close(self) -> None:
        await self._open.aclose()
        self._open = AsyncExitStack()


@pytest.fixture
async def open_house(tmp_path: Path) -> AsyncIterator[OpenHouse]:
    house = OpenHouse(tmp_path / "data")
    yield house
    await house.close()


@pytest.fixture
async def house(open_house: OpenHouse) -> House:
    return await open_house()


@pytest.fixture
def new_peer(tmp_path: Path) -> Callable[[str], Peer]:
    return lambda name: Peer(tmp_path / f"{name}.json")


@pytest.fixture
def peer(new_peer: Callable[[str], Peer]) -> Peer:
    return new_peer("peer")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def sqlite(tmp_path: Path) -> AsyncIterator[SqlStore]:
    """An open, empty store on SQLite; what the core asks of it is proved for both databases elsewhere."""
    store = SqlStore.sqlite(tmp_path / "store")
    await store.open()
    yield store
    await store.close()
