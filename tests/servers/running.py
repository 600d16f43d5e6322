"""Starts the servers of this folder as processes of their own, waits until they listen, and ends them."""

import asyncio
import socket
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Upstreams:
    def __init__(self) -> None:
        self._processes: list[asyncio.subprocess.Process] = []

    async def start(
        self, script: str, *arguments: str, port: int | None = None, python: str = sys.executable
    ) -> int:
        """Run `python script arguments… PORT`; returns the port once it listens."""
        port = port or free_port()
        process = await asyncio.create_subprocess_exec(
            python,
            str(HERE / script),
            *arguments,
            str(port),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        self._processes.append(process)
        await listening(port)
        return port

    async def kill(self) -> None:
        """End all that run, without warning."""
        for process in self._processes:
            if process.returncode is None:
                process.kill()
        await asyncio.gather(*(process.wait() for process in self._processes))
        self._processes.clear()

    async def close(self) -> None:
        await self.kill()


async def listening(port: int, seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            assert time.monotonic() < end, f"nothing listens on {port}"
            await asyncio.sleep(0.02)
            continue
        writer.close()
        return
