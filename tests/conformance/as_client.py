"""The gateway as the suite's client: registers the server it is given, then uses it as clients do.

Run by the suite as `python as_client.py URL`. Everything that reaches the suite's server comes from the
gateway; the SDK's client in front of it lists all there is and calls every tool.
"""

import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import mcp_types as types
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.journeys.conftest import Door, running
from trunkline.settings import load_settings

CONTEXT: dict[str, Any] = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")


async def accept(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
    """With the defaults of the form, or something of the right type."""
    content: dict[str, Any] = {}
    if isinstance(params, types.ElicitRequestFormParams):
        for name, field in params.requested_schema["properties"].items():
            if "default" in field:
                content[name] = field["default"]
            else:
                content[name] = {"boolean": True, "integer": 1, "number": 1.0}.get(field.get("type"), "told")
    return types.ElicitResult(action="accept", content=content)


def arguments_of(tool: types.Tool, tools: list[types.Tool]) -> dict[str, Any]:
    """Something of the right type for everything that is required; a schema as it was listed."""
    schema = tool.input_schema
    if tool.name == "json_schema_echo":
        return {"schema": next(each for each in tools if each.name != tool.name).input_schema}
    made: dict[str, Any] = {}
    for name in schema.get("required", []):
        kind = schema.get("properties", {}).get(name, {}).get("type")
        made[name] = {"number": 2, "integer": 2, "boolean": True, "object": {}, "array": []}.get(kind, "text")
    return made


async def use(door: Door) -> None:
    url = f"{door.url}/mcp/servers/suite"
    async with Client(streamable_http_client(url), elicitation_callback=accept) as client:
        tools = (await client.list_tools()).tools
        for call in CONTEXT.get("toolCalls", []):
            await client.call_tool(call["name"], call.get("arguments") or {})
        for tool in tools if not CONTEXT.get("toolCalls") else ():
            await client.call_tool(tool.name, arguments_of(tool, tools))


async def main(url: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        flags = {"data_dir": Path(folder) / "data", "port": 0, "auth": "off"}
        async with running(load_settings(flags=flags, environ={})) as door:
            await door.connected("suite", "HTTP", {"base_url": url})
            await use(door)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
