"""A well-behaved server on the official SDK, of either line: run with `stdio`, `http PORT` or `sse PORT`.

It runs under `mcp` 1.x (session era only) and 2.x (both eras) alike; only the import tells them apart.
"""

import asyncio
import os
import sys
from importlib import import_module
from typing import Any

try:
    line: Any = import_module("mcp.server.mcpserver").MCPServer
    SECOND_LINE = True
except ImportError:
    line = import_module("mcp.server.fastmcp").FastMCP
    SECOND_LINE = False


def add(a: int, b: int) -> int:
    """Add two whole numbers."""
    return a + b


def echo(text: str) -> str:
    """Give the text back."""
    return text


async def slow(seconds: float) -> str:
    """Wait, then answer."""
    await asyncio.sleep(seconds)
    return "done"


def pid() -> int:
    """The process that answers."""
    return os.getpid()


def fail() -> str:
    """Fail, as tools do."""
    raise ValueError("this tool always fails")


def greeting(name: str) -> str:
    """Greet somebody."""
    return f"Hello {name}"


def today() -> str:
    """What is written for today."""
    return "nothing yet"


def some_day(day: str) -> str:
    """What is written for a day."""
    return f"nothing on {day}"


def make(port: int) -> Any:
    server = line("sdk") if SECOND_LINE else line("sdk", port=port)
    for tool in (add, echo, slow, pid, fail):
        server.tool()(tool)
    server.prompt()(greeting)
    server.resource("notes://today")(today)
    server.resource("notes://{day}")(some_day)
    return server


def main() -> None:
    mode = sys.argv[1]
    if mode == "stdio":
        make(0).run("stdio")
        return
    port = int(sys.argv[2])
    transport = {"http": "streamable-http", "sse": "sse"}[mode]
    if SECOND_LINE:
        make(port).run(transport, port=port)
    else:
        make(port).run(transport)


if __name__ == "__main__":
    main()
