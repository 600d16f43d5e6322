"""`trunkline tools …` and `trunkline call`: see the tools of all servers, and call one."""

import json
import shlex
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from trunkline.cli.arguments import read_arguments, usage_lines
from trunkline.cli.desk import Desk, asks_gateway
from trunkline.cli.failures import Failure, UsageFailure
from trunkline.cli.gateway_client import CALL_SECONDS, TOOLS, segment
from trunkline.cli.screen import Column
from trunkline.telemetry import printable

_LONGEST_SUMMARY = 120

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="See the tools of all servers.")

ToolArgument = Annotated[str, typer.Argument(metavar="SERVER.TOOL", help="As `tools list` shows it.")]


@app.command("list")
@asks_gateway
def list_tools(
    desk: Desk,
    server: Annotated[str | None, typer.Option(metavar="NAME", help="Only those of this server.")] = None,
) -> None:
    """Show all tools, named server.tool, each with the first sentence of what it does.

    \b
    trunkline tools list
    trunkline tools list --server files
    """
    tools = list(desk.gateway.every(TOOLS, "tools", server=server))
    if desk.screen.as_json:
        desk.screen.json({"tools": tools, "total": len(tools)})
    elif not tools:
        desk.screen.say("No tools." if server is None else f"{server} has no tools.")
        desk.screen.say("See why: trunkline doctor")
    else:
        desk.screen.table(
            [Column("TOOL"), Column("DOES", folds=True)],
            [(tool["name"], first_sentence(tool.get("description") or "")) for tool in tools],
        )


@app.command("show")
@asks_gateway
def show_tool(desk: Desk, tool: ToolArgument) -> None:
    """Show one tool: what it does, what it takes, and an example of a call.

    \b
    trunkline tools show files.read_file
    """
    found = desk.gateway.get(f"{TOOLS}/{segment(tool)}")
    if desk.screen.as_json:
        desk.screen.json(found)
        return
    server = found.get("server") or {}
    desk.screen.fields(
        [("name", found["name"]), ("server", f"{server.get('name')} ({server.get('status')})")]
    )
    if description := str(found.get("description") or "").strip():
        desk.screen.say(f"\n{description}\n")
    for line in usage_lines(found["input_schema"]):
        desk.screen.say(line)
    desk.screen.say(f"\nCall it: {example(found['name'], found['input_schema'])}")


@asks_gateway
def call_tool(
    desk: Desk,
    tool: ToolArgument,
    pairs: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE...", help="Arguments; KEY:=JSON for what a text cannot say."),
    ] = None,
    args: Annotated[
        str | None,
        typer.Option("--args", metavar="JSON|@FILE|-", help="All arguments as JSON, from a file, or stdin."),
    ] = None,
) -> None:
    """Call a tool and print what it answers.

    Values are read as the tool's schema wants them; where it takes a text, they stay the text they are.
    A list takes its key several times, or JSON. Ends with 1 when the tool says that it failed.

    \b
    trunkline call files.read_file path=/srv/notes.txt
    trunkline call measure.roll_dice count=3 seed=7
    trunkline call search.query text=mcp filters:='{"year": 2026}'
    trunkline call search.query --args @query.json
    """
    found = desk.gateway.get(f"{TOOLS}/{segment(tool)}")
    given = None if args is None else whole_arguments(args)
    arguments = read_arguments(pairs or [], found["input_schema"], given)
    body = {"name": found["name"], "arguments": arguments}
    with desk.screen.busy(f"Calling {found['name']} …"):
        answer = desk.gateway.post(f"{TOOLS}/call", body, timeout=CALL_SECONDS)
    if desk.screen.as_json:
        desk.screen.json(answer)
    else:
        for piece in shown_result(answer):
            desk.screen.plain(piece)
    if warning := (answer.get("metadata") or {}).get("warning"):
        desk.screen.note(f"warning: {warning}", style="yellow")
    if answer.get("isError"):
        raise Failure(f"{found['name']} says that it failed")


def whole_arguments(text: str) -> dict[str, Any]:
    """What --args says: JSON, `@file`, or `-` for stdin. Raises `UsageFailure`."""
    source = "--args"
    if text == "-":
        text, source = sys.stdin.read(), "stdin"
    elif text.startswith("@"):
        source = text[1:]
        try:
            text = Path(source).read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageFailure(f"Cannot read {source}: {getattr(error, 'strerror', None) or error}") from None
    try:
        arguments = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageFailure(f"{source} is not JSON: {error}") from None
    if not isinstance(arguments, dict):
        raise UsageFailure(f"{source} is not a JSON object")
    return arguments


def shown_result(answer: Mapping[str, Any]) -> Iterator[str]:
    """A result as a person reads it; structured content once, though servers also send it as text."""
    structured = answer.get("structuredContent")
    blocks = [block for block in answer.get("content") or () if isinstance(block, dict)]
    if any(_says(block, _wrapped(structured)) for block in blocks):
        structured = None
    for block in blocks:
        if not _says(block, structured):
            yield described(block)
    if structured is not None:
        yield json.dumps(structured, indent=2, ensure_ascii=False)


def _wrapped(structured: Any) -> Any:
    """The only value of an object: SDKs give a result that is none such a coat, and its text goes bare."""
    if isinstance(structured, dict) and len(structured) == 1:
        return next(iter(structured.values()))
    return None


def _says(block: Mapping[str, Any], value: Any) -> bool:
    if value is None or block.get("type") != "text":
        return False
    text = str(block.get("text"))
    try:
        return text == value or bool(json.loads(text) == value)
    except (ValueError, RecursionError):
        return False


def described(block: Mapping[str, Any]) -> str:
    """One block of content: a text as it is, anything else in words."""
    kind = block.get("type")
    if kind == "text":
        return printable(str(block.get("text", "")))
    if kind in ("image", "audio"):
        return _bracketed(kind, block.get("mimeType"), _size(block.get("data")))
    if kind == "resource_link":
        return _bracketed("link", block.get("title") or block.get("name"), block.get("uri"))
    if kind == "resource" and isinstance(resource := block.get("resource"), dict):
        if isinstance(resource.get("text"), str):
            return _bracketed("resource", resource.get("uri")) + "\n" + printable(resource["text"])
        return _bracketed(
            "resource", resource.get("uri"), resource.get("mimeType"), _size(resource.get("blob"))
        )
    return _bracketed(f"{kind} content", json.dumps(block, ensure_ascii=False))


def _bracketed(*parts: object) -> str:
    return printable("[" + ", ".join(str(part) for part in parts if part) + "]")


def _size(encoded: object) -> str:
    size = len(encoded) * 3 // 4 if isinstance(encoded, str) else 0
    return f"{size} bytes" if size < 2048 else f"{size / 1024:.1f} KiB"


def first_sentence(text: str) -> str:
    line = " ".join(text.split())
    end = line.find(". ")
    line = line if end < 0 else line[: end + 1]
    return line if len(line) <= _LONGEST_SUMMARY else line[: _LONGEST_SUMMARY - 1].rstrip() + "…"


def example(name: str, schema: Mapping[str, Any]) -> str:
    """A call with the required arguments, to be filled in; a shell takes it as it stands."""
    required = [key for key in schema.get("required") or () if isinstance(key, str)]
    return " ".join(["trunkline call", shlex.quote(name), *(f"{shlex.quote(key)}=…" for key in required)])
