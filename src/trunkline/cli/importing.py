"""`trunkline import`: takes over the servers another MCP client already knows.

Shows what it would do; does it after a yes. What is there already is left alone, so it can be run again.
The reading of the files is in `client_configs.py`; here are only the files' places, the table and the deed.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from trunkline.cli.client_configs import (
    Registration,
    Unusable,
    Values,
    entries_of,
    inputs_of,
    inputs_used,
    plan,
    read_config,
)
from trunkline.cli.desk import Desk, asks_gateway
from trunkline.cli.failures import Failure, NoGateway, Refused, UsageFailure
from trunkline.cli.reaching import reach_of, sent_with
from trunkline.cli.screen import Column
from trunkline.cli.servers import SERVERS, counted

_COLUMNS = [
    Column("PLAN"),
    Column("NAME"),
    Column("TRANSPORT"),
    Column("REACHES", folds=True),
    Column("SENDS", folds=True),
    Column("NOTE", folds=True),
]


class Client(StrEnum):
    CLAUDE_DESKTOP = "claude-desktop"
    CLAUDE_CODE = "claude-code"
    CURSOR = "cursor"
    VSCODE = "vscode"


@asks_gateway
def import_servers(
    desk: Desk,
    file: Annotated[Path | None, typer.Argument(metavar="[FILE]", help="A client's list of servers.")] = None,
    client: Annotated[
        Client | None, typer.Option("--from", help="Find the usual file of this client.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do it, without asking.")] = False,
    connect: Annotated[bool, typer.Option("--connect/--no-connect", help="Connect them at once.")] = True,
    given: Annotated[
        list[str] | None,
        typer.Option("--input", metavar="ID=VALUE", help="What an ${input:ID} stands for; can be repeated."),
    ] = None,
    fill_variables: Annotated[
        bool,
        typer.Option("--fill-variables", help="Fill in ${VAR} from this shell now, to be kept sealed."),
    ] = False,
) -> None:
    """Register the servers that Claude Desktop, Claude Code, Cursor or VS Code has in its file.

    Shows first what it would do. Secrets go in sealed and are shown masked.

    \b
    trunkline import ~/.cursor/mcp.json
    trunkline import --from claude-desktop --yes
    trunkline import .vscode/mcp.json --input token=… --yes
    """
    source = _source(file, client)
    content = read_config(_read(source))
    entries = entries_of(content)
    inputs = _pairs(given or [])
    inputs |= _asked(desk, content, entries, inputs)
    values = Values(
        inputs=inputs,
        environ=os.environ if fill_variables else None,
        workspace=_workspace(source),
        home=Path.home(),
    )
    planned = plan(entries, values)
    known = {server["name"] for server in desk.gateway.every(SERVERS, "servers")}
    rows = [_row(item, known) for item in planned]
    todo = [item for item in planned if isinstance(item, Registration) and item.name not in known]
    if not desk.screen.as_json:
        _show_plan(desk, source, rows, len(todo))
    doing = bool(todo) and (yes or _agreed(desk, len(todo)))
    results = [_register(desk, item, connect=connect) for item in todo] if doing else []
    failed = [result for result in results if result["error"]]
    if desk.screen.as_json:
        desk.screen.json({"file": str(source), "plan": rows, "done": doing, "results": results})
    elif doing:
        _summarise(desk, results, len(rows) - len(todo))
    if failed:
        raise typer.Exit(1)


def usual_files(
    client: Client, home: Path, here: Path, environ: Mapping[str, str], platform: str
) -> list[Path]:
    """Where a client keeps its servers: the project's file before the user's."""
    if platform == "darwin":
        config = home / "Library" / "Application Support"
    elif platform == "win32":
        config = Path(environ.get("APPDATA") or home / "AppData" / "Roaming")
    else:
        config = Path(environ.get("XDG_CONFIG_HOME") or home / ".config")
    return {
        Client.CLAUDE_DESKTOP: [config / "Claude" / "claude_desktop_config.json"],
        Client.CLAUDE_CODE: [here / ".mcp.json", home / ".claude.json"],
        Client.CURSOR: [here / ".cursor" / "mcp.json", home / ".cursor" / "mcp.json"],
        Client.VSCODE: [here / ".vscode" / "mcp.json", config / "Code" / "User" / "mcp.json"],
    }[client]


def _source(file: Path | None, client: Client | None) -> Path:
    if file is not None and client is None:
        return file.expanduser()
    if client is None or file is not None:
        raise UsageFailure("Say what to import: either a FILE, or --from " + "|".join(Client))
    places = usual_files(client, Path.home(), Path.cwd(), os.environ, sys.platform)
    for place in places:
        if place.is_file():
            return place
    raise Failure(f"{client} has no file here: looked for {' and '.join(map(str, places))}")


def _read(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except UnicodeDecodeError:
        raise UsageFailure(f"{file} is not a text file") from None
    except OSError as error:
        raise UsageFailure(f"Cannot read {file}: {error.strerror}") from None


def _workspace(file: Path) -> Path | None:
    folder = file.resolve().parent
    return folder.parent if folder.name in (".vscode", ".cursor") else folder


def _pairs(given: Sequence[str]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for pair in given:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise UsageFailure("--input must be ID=VALUE")
        pairs[name] = value
    return pairs


def _asked(
    desk: Desk, content: Mapping[str, Any], entries: Mapping[str, Any], given: Mapping[str, str]
) -> dict[str, str]:
    """The inputs nobody gave yet, asked for where somebody can answer; an empty answer leaves one out."""
    if not desk.screen.can_ask or desk.screen.as_json:
        return {}
    answers: dict[str, str] = {}
    questions = inputs_of(content)
    for name in inputs_used(entries):
        if name in given:
            continue
        question, secret = questions.get(name, (name, True))
        answer = typer.prompt(
            f"{question} [empty to skip]", default="", hide_input=secret, show_default=False, err=True
        )
        if answer:
            answers[name] = answer
    return answers


def _row(item: Registration | Unusable, known: set[str]) -> dict[str, Any]:
    if isinstance(item, Unusable):
        return {"plan": "skip", "name": item.original_name, "reason": item.reason}
    row = {
        "plan": "add",
        "name": item.name,
        "original_name": item.original_name,
        "transport": item.transport,
        "reaches": reach_of(item.shown),
        "sends": sent_with(item.shown),
        "notes": list(item.notes),
    }
    if item.original_name != item.name:
        row["notes"] = [f"called {item.original_name!r} there", *item.notes]
    if item.name in known:
        row |= {"plan": "skip", "reason": "exists already and is left as it is"}
    return row


def _show_plan(desk: Desk, source: Path, rows: Sequence[Mapping[str, Any]], count: int) -> None:
    desk.screen.say(f"From {source}:\n")
    if rows:
        desk.screen.table(_COLUMNS, [_cells(row) for row in rows])
    desk.screen.say(f"\n{counted(count, 'server')} to register, {len(rows) - count} to skip.")


def _cells(row: Mapping[str, Any]) -> tuple[object, ...]:
    note = row.get("reason") or "; ".join(row.get("notes", ())) or None
    return (
        row["plan"], row["name"], row.get("transport"), row.get("reaches"), row.get("sends") or None, note,
    )  # fmt: skip


def _agreed(desk: Desk, count: int) -> bool:
    if desk.screen.as_json:
        return False
    if not desk.screen.can_ask:
        desk.screen.say("Nothing was done: say --yes to register them.")
        return False
    if typer.confirm(f"Register {counted(count, 'server')}?", err=True):
        return True
    desk.screen.say("Nothing was done.")
    return False


def _register(desk: Desk, item: Registration, *, connect: bool) -> dict[str, Any]:
    draft = {
        "name": item.name,
        "transport_type": item.transport,
        "connection_config": item.config,
        "auto_connect": connect and item.connect,
    }
    try:
        server = desk.gateway.post(SERVERS, draft)
    except NoGateway:
        raise
    except Refused as refused:
        if refused.code == "SERVER_ALREADY_EXISTS":
            return {"name": item.name, "result": "skipped", "status": None, "error": None}
        reason = "; ".join([refused.message, *refused.hints])
        return {"name": item.name, "result": "failed", "status": None, "error": reason}
    except Failure as failure:
        return {"name": item.name, "result": "failed", "status": None, "error": failure.message}
    return {"name": item.name, "result": "added", "status": server["status"], "error": None}


def _summarise(desk: Desk, results: Sequence[Mapping[str, Any]], skipped: int) -> None:
    desk.screen.say()
    desk.screen.table(
        [Column("RESULT"), Column("NAME"), Column("WHY", folds=True)],
        [(result["result"], result["name"], result["error"] or result["status"]) for result in results],
    )
    added = sum(result["result"] == "added" for result in results)
    failed = sum(result["result"] == "failed" for result in results)
    skipped += len(results) - added - failed
    desk.screen.say(f"\nAdded {added}, skipped {skipped}, failed {failed}. See them: trunkline servers list")
