"""`trunkline servers …`: register upstream servers, see how they are, connect, change and remove them."""

import time
from collections.abc import Callable
from typing import Annotated, Any

import typer

from trunkline.cli.desk import Desk, asks_gateway
from trunkline.cli.failures import Failure, Refused, UsageFailure
from trunkline.cli.gateway_client import AGGREGATOR, segment
from trunkline.cli.reaching import changed_config, connection_config, reach_of, sent_with
from trunkline.cli.screen import Column, Screen
from trunkline.model import ServerStatus

SERVERS = f"{AGGREGATOR}/servers"
SETTLED = frozenset({"CONNECTED", "DEGRADED", "ERROR", "DISCONNECTED"})
_POLL_SECONDS = 0.2
_DISCOVERY_SECONDS = 10.0

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Register servers and look after them.")

ServerArgument = Annotated[str, typer.Argument(metavar="NAME", help="The server's name or id.")]
HeaderOption = Annotated[
    list[str] | None, typer.Option("--header", metavar="'K: V'", help="A header to send; can be repeated.")
]
EnvOption = Annotated[
    list[str] | None, typer.Option("--env", metavar="K=V", help="A variable for the child; can be repeated.")
]
CommandArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="-- COMMAND [ARGS]...", help="The command line of a STDIO server.", show_default=False
    ),
]
TimeoutOption = Annotated[
    float, typer.Option("--timeout", metavar="SECONDS", min=1, help="How long to wait at most.")
]


def server_path(reference: str) -> str:
    """Where the gateway has the server. None is called with a slash, which even quoted parts an address."""
    if not reference or "/" in reference:
        raise Refused(404, "SERVER_NOT_FOUND", f"Server not found: {reference}")
    return f"{SERVERS}/{segment(reference)}"


@app.command("add")
@asks_gateway
def add_server(
    desk: Desk,
    name: Annotated[str, typer.Argument(metavar="NAME", help="a-z, 0-9, - and _, a letter first.")],
    command: CommandArgument = None,
    stdio: Annotated[bool, typer.Option("--stdio", help="A child process; implied by a command.")] = False,
    http: Annotated[str | None, typer.Option(metavar="URL", help="A server on streamable HTTP.")] = None,
    sse: Annotated[str | None, typer.Option(metavar="URL", help="A server on HTTP+SSE.")] = None,
    header: HeaderOption = None,
    env: EnvOption = None,
    profile: Annotated[
        str | None, typer.Option(metavar="NAME", help="A command line of the operator's file.")
    ] = None,
    parameter: Annotated[
        list[str] | None,
        typer.Option(metavar="K=V", help="Of the profile; K:=JSON for what is no text; can be repeated."),
    ] = None,
    description: Annotated[str | None, typer.Option(help="What it is for.")] = None,
    health_url: Annotated[str | None, typer.Option(metavar="URL", help="Asked instead of a ping.")] = None,
    connect: Annotated[bool, typer.Option("--connect/--no-connect", help="Connect it now.")] = True,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until it is connected.")] = True,
    timeout: TimeoutOption = 150.0,
) -> None:
    """Register a server, connect it, and say how many tools it has or why it has none.

    \b
    trunkline servers add files -- npx -y @modelcontextprotocol/server-filesystem /srv
    trunkline servers add search --http https://mcp.example.com/mcp --header 'Authorization: Bearer ${TOKEN}'
    trunkline servers add old --sse https://old.example.com/sse --description "The old one"
    trunkline servers add notes --profile files --parameter folder=/srv/notes
    """
    transport, config = connection_config(stdio, command, http, sse, header, env, profile, parameter)
    draft = {
        "name": name,
        "description": description,
        "transport_type": transport,
        "connection_config": config,
        "health_check_url": health_url,
        "auto_connect": connect,
    }
    server = desk.gateway.post(SERVERS, {key: value for key, value in draft.items() if value is not None})
    if connect and wait:
        server = wait_until_settled(desk, server["id"], name, timeout)
    _report(desk, server, f"Registered {name}.")


@app.command("list")
@asks_gateway
def list_servers(
    desk: Desk,
    status: Annotated[
        ServerStatus | None, typer.Option(case_sensitive=False, help="Only those in this status.")
    ] = None,
) -> None:
    """Show all servers.

    \b
    trunkline servers list
    trunkline servers list --status error
    """
    servers = list(desk.gateway.every(SERVERS, "servers", status=status))
    if desk.screen.as_json:
        desk.screen.json({"servers": servers, "total": len(servers)})
    elif not servers:
        desk.screen.say("No servers." if status is None else f"No servers in status {status}.")
        if status is None:
            desk.screen.say("Register one: trunkline servers add NAME -- COMMAND, or --http URL")
    else:
        desk.screen.table(
            [
                Column("NAME"),
                Column("STATUS"),
                Column("TRANSPORT"),
                Column("TOOLS", right=True),
                Column("DESCRIPTION", folds=True),
            ],
            [
                (s["name"], s["status"], s["transport_type"], s["tool_count"], s.get("description"))
                for s in servers
            ],
        )


@app.command("show")
@asks_gateway
def show_server(desk: Desk, server: ServerArgument) -> None:
    """Show one server: its state, its configuration without secrets, and what is wrong with it.

    \b
    trunkline servers show files
    """
    found = desk.gateway.get(server_path(server))
    if desk.screen.as_json:
        desk.screen.json(found)
        return
    config = found.get("connection_config") or {}
    pairs: list[tuple[str, object]] = [
        ("name", found["name"]),
        ("id", found["id"]),
        ("description", found.get("description")),
        ("status", found["status"]),
        ("error", found.get("error_message")),
        ("transport", found["transport_type"]),
        ("reaches", reach_of(config)),
        ("sends", sent_with(config) or None),
        ("era", found.get("era")),
        ("tools", found["tool_count"]),
        ("prompts", found.get("prompt_count")),
        ("resources", found.get("resource_count")),
        ("templates", found.get("resource_template_count")),
        ("health url", found.get("health_check_url")),
        ("last check", found.get("last_health_check")),
        ("connected", found.get("connected_at")),
        ("registered", found["registered_at"]),
        ("updated", found.get("updated_at")),
    ]
    desk.screen.fields([(label, value) for label, value in pairs if value is not None])
    if problems := found.get("problems"):
        desk.screen.say("\nProblems:")
        desk.screen.table(PROBLEM_COLUMNS, [(p["kind"], p["name"], p["reason"]) for p in problems])


PROBLEM_COLUMNS = [Column("KIND"), Column("NAME", folds=True), Column("REASON", folds=True)]


@app.command("connect")
@asks_gateway
def connect_server(
    desk: Desk,
    server: ServerArgument,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until it is connected.")] = True,
    timeout: TimeoutOption = 150.0,
) -> None:
    """Connect a server, also one that had been given up.

    \b
    trunkline servers connect files
    """
    answer = desk.gateway.post(f"{server_path(server)}/connect")
    if not wait:
        _show_answer(desk, answer, f"{server}: {answer['message']}.")
        return
    settled = wait_until_settled(desk, answer["server_id"], server, timeout)
    _report(desk, settled, f"{server}: {answer['message']}.")


@app.command("disconnect")
@asks_gateway
def disconnect_server(
    desk: Desk,
    server: ServerArgument,
    force: Annotated[bool, typer.Option("--force", help="Cancel the calls in flight.")] = False,
) -> None:
    """Disconnect a server; calls in flight may finish first.

    \b
    trunkline servers disconnect files
    trunkline servers disconnect files --force
    """
    answer = desk.gateway.post(f"{server_path(server)}/disconnect", {"force": force})
    _show_answer(desk, answer, f"{server}: {answer['message']}.")


@app.command("refresh")
@asks_gateway
def refresh_server(desk: Desk, server: ServerArgument) -> None:
    """Ask a server for its tools again.

    \b
    trunkline servers refresh files
    """
    answer = desk.gateway.post(f"{server_path(server)}/tools/refresh")
    _show_answer(desk, answer, f"{server}: {answer['message']}.")


@app.command("remove")
@asks_gateway
def remove_server(
    desk: Desk,
    server: ServerArgument,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Disconnect a server and forget it, with its tools and its configuration.

    \b
    trunkline servers remove files
    trunkline servers remove files --yes
    """
    found = desk.gateway.get(server_path(server))
    question = f"Remove {found['name']} and its {counted(found['tool_count'], 'tool')}?"
    confirm(desk.screen, question, yes=yes)
    desk.gateway.delete(f"{SERVERS}/{segment(found['id'])}")
    _show_answer(
        desk, {"id": found["id"], "name": found["name"], "removed": True}, f"Removed {found['name']}."
    )


@app.command("update")
@asks_gateway
def update_server(
    desk: Desk,
    server: ServerArgument,
    command: CommandArgument = None,
    http: Annotated[
        str | None, typer.Option(metavar="URL", help="Its new address (streamable HTTP).")
    ] = None,
    sse: Annotated[str | None, typer.Option(metavar="URL", help="Its new address (HTTP+SSE).")] = None,
    header: HeaderOption = None,
    env: EnvOption = None,
    description: Annotated[str | None, typer.Option(help="What it is for; '' for none.")] = None,
    health_url: Annotated[
        str | None, typer.Option(metavar="URL", help="Asked instead of a ping; '' for none.")
    ] = None,
) -> None:
    """Change a server. Its name and its transport stay: for those, remove it and add it again.

    Headers and variables given here are added to those it has; K= with nothing behind it removes one.

    \b
    trunkline servers update search --header 'Authorization: Bearer NEW'
    trunkline servers update files --description "Files of the team"
    """
    changes: dict[str, object] = {}
    if description is not None:
        changes["description"] = description or None
    if health_url is not None:
        changes["health_check_url"] = health_url or None
    if command or http or sse or header or env:
        found = desk.gateway.get(server_path(server))
        changes["connection_config"] = changed_config(found, command, http, sse, header, env)
    if not changes:
        raise UsageFailure("Nothing to change: say what, as `trunkline servers update --help` shows")
    updated = desk.gateway.patch(server_path(server), changes)
    _show_answer(desk, updated, f"Changed {updated['name']}: {', '.join(changes)}.")


def wait_until_settled(desk: Desk, server_id: str, name: str, timeout: float) -> dict[str, Any]:
    """The server once its connection was made or given up; CONNECTED once its tools are known too."""
    deadline = time.monotonic() + timeout
    with desk.screen.busy(f"Connecting {name} …"):
        server = _until(desk, server_id, deadline, lambda found: found["status"] in SETTLED)
        if server["status"] == "CONNECTED" and not server["tool_count"]:
            soon = min(deadline, time.monotonic() + _DISCOVERY_SECONDS)
            server = _until(desk, server_id, soon, _is_discovered)
    return server


def _is_discovered(server: dict[str, Any]) -> bool:
    return bool(server["tool_count"]) or bool(server.get("problems")) or server["status"] != "CONNECTED"


def _until(
    desk: Desk, server_id: str, deadline: float, is_so: Callable[[dict[str, Any]], bool]
) -> dict[str, Any]:
    while True:
        server: dict[str, Any] = desk.gateway.get(f"{SERVERS}/{segment(server_id)}")
        if is_so(server) or time.monotonic() >= deadline:
            return server
        time.sleep(_POLL_SECONDS)


def _report(desk: Desk, server: dict[str, Any], opening: str) -> None:
    """How a server is after it was added or connected; ends the command with 1 when it is not well."""
    name, status = server["name"], server["status"]
    if desk.screen.as_json:
        desk.screen.json(server)
        if status == "ERROR":
            raise typer.Exit(1)
        return
    desk.screen.say(opening)
    if status in ("CONNECTED", "DEGRADED"):
        desk.screen.say(f"{name} is {status} and has {counted(server['tool_count'], 'tool')}.", style="green")
        if server["tool_count"]:
            desk.screen.say(f"See them: trunkline tools list --server {name}")
        if left_out := _left_out(server):
            desk.screen.say(f"{left_out}: trunkline servers show {name}", style="yellow")
    elif status == "ERROR":
        reason = server.get("error_message") or "no reason was given"
        raise Failure(
            f"{name} is not connected: {reason}", f"It stays registered; more: trunkline servers show {name}"
        )
    elif status == "CONNECTING":
        desk.screen.say(f"{name} is still connecting; see: trunkline servers show {name}", style="yellow")
    else:
        desk.screen.say(f"{name} is {status}; connect it: trunkline servers connect {name}")


def _left_out(server: dict[str, Any]) -> str:
    """What the server has and clients will not see, in one line."""
    problems = server.get("problems") or []
    tools = sum(problem["kind"] == "tool" for problem in problems)
    if tools:
        return f"{counted(tools, 'tool')} {'was' if tools == 1 else 'were'} kept out"
    return f"It has {counted(len(problems), 'problem')}" if problems else ""


def _show_answer(desk: Desk, answer: dict[str, Any], text: str) -> None:
    if desk.screen.as_json:
        desk.screen.json(answer)
    else:
        desk.screen.say(text)


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def confirm(screen: Screen, question: str, *, yes: bool) -> None:
    """Ask on a terminal; elsewhere only --yes goes on."""
    if yes:
        return
    if not screen.can_ask:
        raise UsageFailure("Nothing was done: there is no terminal to ask on, so say --yes")
    if not typer.confirm(question, err=True):
        raise Failure("Nothing was done")
