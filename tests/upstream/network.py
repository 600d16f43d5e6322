"""What the tests of the network wires share: an inbox that remembers, and clients under the real policy."""

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from trunkline.errors import UpstreamError
from trunkline.security.outbound import Outbound
from trunkline.upstream.outbound_client import OutboundClient
from trunkline.wire.jsonrpc import RpcId

SERVERS = Path(__file__).parents[1] / "servers"
MIB = 1024 * 1024


class Heard:
    """Everything a wire told its owner."""

    def __init__(self) -> None:
        self.requests: list[tuple[RpcId, str, int | None]] = []
        self.notifications: list[tuple[str, bytes, int | None]] = []
        self.noise: list[str] = []
        self.lost: list[UpstreamError] = []

    def on_request(self, identity: RpcId, method: str, params: bytes, asked_by: int | None) -> None:
        self.requests.append((identity, method, asked_by))

    def on_notification(self, method: str, params: bytes, asked_by: int | None) -> None:
        self.notifications.append((method, params, asked_by))

    def on_noise(self, reason: str) -> None:
        self.noise.append(reason)

    def on_lost(self, error: UpstreamError) -> None:
        self.lost.append(error)


def policy() -> Outbound:
    return Outbound(allowed_networks=(), on_loopback=True, allow_insecure_http=False)


def outbound_client() -> OutboundClient:
    return OutboundClient(policy())


def redact(text: str) -> str:
    return text.replace("s3cret", "********")


async def until(reached: Callable[[], object], seconds: float = 10.0) -> None:
    async with asyncio.timeout(seconds):
        while not reached():  # noqa: ASYNC110 - what is waited for is another program's doing
            await asyncio.sleep(0.005)


@contextmanager
def sdk_server(transport: str) -> Iterator[str]:
    """The address of a real server of the official SDK, in a process of its own."""
    process = subprocess.Popen(
        [sys.executable, str(SERVERS / "sdk_http.py"), transport], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        yield f"http://127.0.0.1:{port}/{'sse' if transport == 'sse' else 'mcp'}"
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
