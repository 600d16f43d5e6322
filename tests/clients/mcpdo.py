"""The Inspector's second command line, which keeps a connection: a process holds it, commands are put to it.

Each command is a process of its own that prints JSON. One that goes on (a subscription, a call that waits) is
ended as people end it, by an interrupt; that cancels a call only where a person sits at a terminal, so there
is one for it. Nothing is left behind.
"""

import asyncio
import json
import os
import pty
import secrets
import signal
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.clients.foreign import NODE, node_packages, printed


class Running:
    """A command that has not ended, and what it prints meanwhile."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._text = ""

    async def next(self, seconds: float = 20) -> Any:
        """The next JSON it prints."""
        async with asyncio.timeout(seconds):
            while True:
                try:
                    found, end = json.JSONDecoder().raw_decode(self._text.lstrip())
                except json.JSONDecodeError:
                    await self._read()
                    continue
                self._text = self._text.lstrip()[end:]
                return found

    async def _read(self) -> None:
        assert self._process.stdout is not None
        said = await self._process.stdout.read(65536)
        assert said, "it has ended"
        self._text += said.decode()

    async def interrupt(self) -> None:
        self._process.send_signal(signal.SIGINT)
        await asyncio.wait_for(self._process.wait(), 20)


class Mcpdo:
    def __init__(self, home: Path, folder: str) -> None:
        package = node_packages() / "@modelcontextprotocol" / "inspector"
        self._program = [
            NODE,
            str(package / "clients" / "mcpdo" / "build" / "mcp-bin.js"),
            "--format",
            "json",
        ]
        self._home = home
        self._environ = {
            "MCP_INSPECTOR_DAEMON_DIR": folder,
            "MCP_INSPECTOR_DAEMON_TOKEN": secrets.token_urlsafe(),
            "MCP_INSPECTOR_SECRET_STORE": "memory",
        }
        self._connection: list[str] = []

    async def connect(self, era: str, *target: str) -> Any:
        connected = await self("connect", "--era", era, *target)
        self._connection = ["--connection", connected["name"]]
        return connected

    async def __call__(self, *command: str) -> Any:
        """The JSON a command prints."""
        return await printed([*self._program, *self._connection, *command], self._home, **self._environ)

    @asynccontextmanager
    async def running(self, *command: str) -> AsyncIterator[Running]:
        """A command that goes on."""
        nowhere, pipe = asyncio.subprocess.DEVNULL, asyncio.subprocess.PIPE
        async with self._started(
            *self._program, *self._connection, *command, stdin=nowhere, stdout=pipe
        ) as it:
            yield it

    @asynccontextmanager
    async def at_a_terminal(self, *command: str) -> AsyncIterator[Running]:
        """The same; it believes that somebody looks on."""
        leader, follower = pty.openpty()
        program = self._program[:-2]  # for people, not as JSON
        try:
            async with self._started(
                *program, *self._connection, *command, stdin=follower, stdout=follower
            ) as it:
                yield it
        finally:
            os.close(leader)
            os.close(follower)

    @asynccontextmanager
    async def _started(self, *command: str, stdin: int, stdout: int) -> AsyncIterator[Running]:
        process = await asyncio.create_subprocess_exec(
            *command,
            env={"PATH": os.defpath, "HOME": str(self._home), **self._environ},
            stdin=stdin,
            stdout=stdout,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            yield Running(process)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


@asynccontextmanager
async def mcpdo(home: Path) -> AsyncIterator[Mcpdo]:
    with tempfile.TemporaryDirectory() as folder:  # a short path: there is a socket in it
        commands = Mcpdo(home, folder)
        try:
            yield commands
        finally:
            await commands("daemon", "stop")
