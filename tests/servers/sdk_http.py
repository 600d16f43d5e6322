"""A well-behaved server of the official Python SDK over the network: `sdk_http.py http|sse`.

Prints the port it listens on. `http` serves both eras at /mcp, `sse` the oldest transport at /sse.
"""

import socket
import sys

import uvicorn
from mcp.server.mcpserver import Context, MCPServer

server = MCPServer("sdk")


@server.tool()
async def echo(text: str) -> str:
    """Give the text back."""
    return text


@server.tool()
async def talk(times: int, ctx: Context) -> str:
    """Report progress before answering."""
    for step in range(times):
        await ctx.report_progress(step + 1, times)
    return "done"


@server.tool()
async def grow(ctx: Context) -> str:
    """Add a tool and say so."""
    server.add_tool(echo, name="echo_again")
    await ctx.session.send_tool_list_changed()
    await ctx.notify_tools_changed()
    return "grown"


def main() -> None:
    app = server.sse_app() if sys.argv[1] == "sse" else server.streamable_http_app()
    listening = socket.create_server(("127.0.0.1", 0))
    print(listening.getsockname()[1], flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="error")).run(sockets=[listening])


if __name__ == "__main__":
    main()
