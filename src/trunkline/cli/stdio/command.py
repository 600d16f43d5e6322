"""The command itself: what it takes, and how a client is told to start it. `life.py` runs it."""

import asyncio
from typing import Annotated

import typer

from trunkline.cli.desk import DataDirOption, KeyOption, UrlOption
from trunkline.cli.failures import UsageFailure
from trunkline.errors import StartRefused


def stdio(
    server: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only this server, under its own names.")
    ] = None,
    url: UrlOption = None,
    key: KeyOption = None,
    data_dir: DataDirOption = None,
) -> None:
    """Be an MCP server on stdin and stdout, for clients that start a command.

    It goes to the running gateway; where none runs, it is the gateway itself for as long as its client lives.

    \b
    Claude Desktop (claude_desktop_config.json) and Cursor (~/.cursor/mcp.json):
      {"mcpServers": {"trunkline": {"command": "trunkline", "args": ["stdio"]}}}

    \b
    VS Code (.vscode/mcp.json):
      {"servers": {"trunkline": {"type": "stdio", "command": "trunkline", "args": ["stdio"]}}}

    \b
    A gateway elsewhere:
      {"mcpServers": {"trunkline": {"command": "trunkline",
        "args": ["stdio", "--url", "https://tools.example.org"], "env": {"MCP_AGGREGATOR_KEY": "..."}}}}

    A client that does not find the command needs its full path, as `which trunkline` says it.
    """
    from trunkline.cli.stdio.home import Wanted
    from trunkline.cli.stdio.life import live
    from trunkline.front.mcp.http import PATH
    from trunkline.front.mcp.reception import address_of
    from trunkline.front.server import new_event_loop

    wanted = Wanted(url, key, data_dir, address_of(PATH, server))
    try:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(live(wanted))
    except StartRefused as refused:
        raise UsageFailure(refused.detail) from None
