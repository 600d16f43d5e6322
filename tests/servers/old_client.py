"""A client on the first line of the Python SDK, which speaks the session era alone; run by its own Python.

`python old_client.py COMMAND...` starts the command, walks through what an MCP server offers and prints what
it found as JSON.
"""

import asyncio
import json
import os
import sys
from typing import Any

import mcp.types as types  # type: ignore[import-not-found,unused-ignore]
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client


async def accept(context: Any, params: Any) -> Any:
    return types.ElicitResult(action="accept", content={"username": "told", "email": "told"})


async def main() -> None:
    seen: list[float] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        seen.append(progress)

    command = StdioServerParameters(command=sys.argv[1], args=sys.argv[2:], env=dict(os.environ))
    async with (
        stdio_client(command) as (reading, writing),
        ClientSession(reading, writing, elicitation_callback=accept) as session,
    ):
        opened: Any = await session.initialize()
        tools: Any = await session.list_tools()
        asked = await session.call_tool("every__test_elicitation", {"message": "Who?"})
        await session.call_tool("every__test_tool_with_progress", {}, progress_callback=on_progress)
        prompt = await session.get_prompt("every__test_simple_prompt")
        found = {
            "version": opened.protocolVersion,
            "tools": [tool.name for tool in tools.tools],
            "asked": str(asked.content),
            "progress": seen,
            "prompt": len(prompt.messages),
        }
    print(json.dumps(found))


asyncio.run(main())
