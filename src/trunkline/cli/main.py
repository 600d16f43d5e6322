"""The command `trunkline`: puts the commands together; every failure becomes a line and an exit code."""

import sys
from typing import Annotated

import typer

from trunkline import __version__
from trunkline.cli import keys, servers, tools
from trunkline.cli.audit import read_audit
from trunkline.cli.demo import demo
from trunkline.cli.doctor import doctor
from trunkline.cli.failures import Failure
from trunkline.cli.importing import import_servers
from trunkline.cli.screen import show_failure
from trunkline.cli.serve import serve
from trunkline.cli.status import show_status
from trunkline.cli.stdio.command import stdio
from trunkline.cli.tools import call_tool

app = typer.Typer(
    name="trunkline",
    rich_markup_mode=None,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    epilog="Exit codes: 0 done; 1 refused or failed; 2 not usable as typed; 3 no gateway answers.",
)
app.command("serve")(serve)
app.command("stdio", short_help="Be an MCP server on stdin and stdout.")(stdio)
app.command("demo", short_help="Try it with three sample servers.")(demo)
app.command("status", short_help="Servers, tools and health at a glance.")(show_status)
app.add_typer(servers.app, name="servers")
app.add_typer(tools.app, name="tools")
app.command("call")(call_tool)
app.command("import", short_help="Take over another client's servers.")(import_servers)
app.add_typer(keys.app, name="keys")
app.command("audit", short_help="What was done, when, and by whom.")(read_audit)
app.command("doctor")(doctor)


def _show_version(asked: bool) -> None:
    if asked:
        print(f"trunkline {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", is_eager=True, callback=_show_version)
    ] = False,
) -> None:
    """One door to the tools of all your MCP servers.

    \b
    trunkline serve                                    start the gateway
    trunkline stdio                                    the same for a client that starts a command
    trunkline demo                                     see it work
    trunkline servers add files -- npx -y SERVER DIR   register a server
    trunkline call files.read_file path=notes.txt      call a tool
    """


def main() -> None:
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        app()
    except Failure as failure:
        show_failure(failure.message, failure.hints)
        sys.exit(failure.exit_code)
