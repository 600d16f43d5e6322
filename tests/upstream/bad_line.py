"""A STDIO wire to the scripted bad server, what it tells its owner, and a look at the processes it leaves."""

import asyncio
import json
import sys
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from trunkline.errors import UpstreamError
from trunkline.model import StdioSpec
from trunkline.telemetry import Redactor
from trunkline.upstream.spawner import Spawner
from trunkline.upstream.stdio import StdioWire
from trunkline.upstream.wires import Exchange
from trunkline.wire.jsonrpc import RpcId

SERVER = str(Path(__file__).parents[1] / "servers" / "bad_stdio.py")
MARK = uuid.uuid4().hex
"""Stands on the command line of every server this test run starts."""
ARGUMENTS = ("-I", "-S", SERVER, "--mark", MARK)
MIB = 1024 * 1024


class Heard:
    """What a wire told its owner."""

    def __init__(self) -> None:
        self.requests: list[tuple[RpcId, str, int | None]] = []
        self.notifications: list[tuple[str, bytes]] = []
        self.noise: list[str] = []
        self.lost: list[UpstreamError] = []

    def on_request(self, identity: RpcId, method: str, params: bytes, asked_by: int | None) -> None:
        self.requests.append((identity, method, asked_by))

    def on_notification(self, method: str, params: bytes, asked_by: int | None) -> None:
        self.notifications.append((method, params))

    def on_noise(self, reason: str) -> None:
        self.noise.append(reason)

    def on_lost(self, error: UpstreamError) -> None:
        self.lost.append(error)


class Line:
    """A wire to the bad server, and everything it told."""

    def __init__(self, wire: StdioWire) -> None:
        self.wire = wire
        self.heard = Heard()
        self.keys = iter(range(1, 1_000_000))

    async def ask(self, method: str, **params: Any) -> Any:
        return json.loads(await self.send(method, json.dumps(params).encode()))

    async def send(self, method: str, params: bytes = b"{}") -> bytes:
        async with asyncio.timeout(20):
            return await self.wire.exchange(Exchange(next(self.keys), method, params))


@asynccontextmanager
async def opened(
    *flags: str,
    env: dict[str, str] | None = None,
    limit: int = 16 * MIB,
    redact: Redactor | None = None,
    close_grace: float = 2.0,
    term_grace: float = 5.0,
) -> AsyncIterator[Line]:
    spawner = Spawner()
    wire = StdioWire(
        StdioSpec(sys.executable, (*ARGUMENTS, *flags), env or {}),
        name="bad",
        message_limit=limit,
        redact=redact or Redactor(),
        spawner=spawner,
        close_grace=close_grace,
        term_grace=term_grace,
    )
    line = Line(wire)
    try:
        await wire.open(line.heard)
        yield line
    finally:
        await wire.close()
        await spawner.close()


def made(spawner: Spawner, command: str = sys.executable, env: dict[str, str] | None = None) -> StdioWire:
    args = ARGUMENTS if command == sys.executable else ()
    return StdioWire(
        StdioSpec(command, args, env or {}),
        name="bad",
        message_limit=16 * MIB,
        redact=Redactor(),
        spawner=spawner,
    )


async def until(true: Callable[[], bool], seconds: float = 5.0) -> None:
    async with asyncio.timeout(seconds):
        while not true():  # noqa: ASYNC110 (a process gives no event)
            await asyncio.sleep(0.01)


def running(mark: str = MARK) -> list[int]:
    """The pids of the processes that have this argument; zombies have none."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                arguments = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if mark.encode() in arguments:
                found.append(int(entry.name))
    return found


def children_of(pid: int | None) -> str:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text()


def is_running(pid: int | None) -> bool:
    """A zombie is not: collecting it is its parent's affair."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z"
    except FileNotFoundError:
        return False
