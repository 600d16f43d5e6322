"""The tables in docs/ that are made from the code: settings, metrics, commands.

`python -m scripts.tables` writes them anew between their markers; `tests/architecture` fails when one is
out of step. It reads the same objects the gateway runs on and decides nothing.
"""

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any

import typer
from prometheus_client import Counter, Gauge, Histogram
from typer.core import TyperCommand, TyperGroup

from tests.journeys import test_mcp_cells, test_mcp_tasks
from tests.journeys.cells import CELLS, FEATURES, by_itself
from trunkline.cli.main import app
from trunkline.settings import Settings, variable_of
from trunkline.telemetry import Metrics

__all__ = ["test_mcp_cells", "test_mcp_tasks"]  # read for the features it states

DOCS = Path(__file__).parent.parent / "docs"
BEGIN, END = "<!-- made by scripts/docs: begin -->", "<!-- made by scripts/docs: end -->"


def settings_table() -> str:
    rows = [(f"`{variable_of(item)}`", default_of(item), item.metadata["doc"]) for item in fields(Settings)]
    return table(("Variable", "Default", "Meaning"), rows)


def default_of(item: Field[Any]) -> str:
    if item.metadata["shown"]:
        return str(item.metadata["shown"])
    if item.default is MISSING:
        raise SystemExit(f"{item.name}: its default differs from machine to machine; say it in `shown`")
    if item.default is None or item.default == ():
        return "unset"
    text = f"{item.default:g}" if isinstance(item.default, float) else str(item.default)
    return f"`{text.lower()}`"


def metrics_table() -> str:
    families = [each for each in vars(Metrics()).values() if isinstance(each, Counter | Gauge | Histogram)]
    rows = [
        (f"`{name}`", kind, ", ".join(f"`{label}`" for label in family._labelnames) or "none", meaning)
        for family in families
        for name, kind, meaning in described(family)
    ]
    return table(("Series", "Type", "Labels", "Meaning"), rows)


def described(family: Counter | Gauge | Histogram) -> Iterator[tuple[str, str, str]]:
    for metric in family.describe():
        name = f"{metric.name}_total" if metric.type == "counter" else metric.name
        yield name, metric.type, metric.documentation


def commands() -> str:
    """Every verb with what it does, its arguments and its options, as the program itself says them."""
    program = typer.main.get_command(app)
    assert isinstance(program, TyperGroup)
    return "\n\n".join(text_of(path, command) for path, command in verbs("trunkline", program))


def verbs(path: str, group: TyperGroup) -> Iterator[tuple[str, TyperCommand]]:
    for name, child in sorted(group.commands.items()):
        if isinstance(child, TyperGroup):
            yield from verbs(f"{path} {name}", child)
        elif isinstance(child, TyperCommand) and not child.hidden:
            yield f"{path} {name}", child


def text_of(path: str, command: TyperCommand) -> str:
    context = typer.Context(command, info_name=path)
    usage = " ".join([path, *command.collect_usage_pieces(context)])
    parts = [f"## `{usage}`", inspect.cleandoc(command.help or "")]
    records = [parameter.get_help_record(context) for parameter in command.params]
    if rows := [(f"`{record[0]}`", record[1]) for record in records if record]:
        parts.append(table(("Argument or option", "Meaning"), rows))
    return "\n\n".join(parts)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(map(cell, row))} |" for row in (head, ["---"] * len(head), *rows))


def cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def compatibility() -> str:
    """What the journeys state and prove, cell by cell."""
    heads = {
        CELLS[0]: "older client, older server",
        CELLS[1]: "newer client, newer server",
        CELLS[2]: "older client, newer server",
        CELLS[3]: "newer client, older server",
    }
    rows = [(each.name, *(by_itself(each, cell) for cell in CELLS), each.note) for each in FEATURES]
    return table(("Feature", *heads.values(), "How"), rows)


TABLES: dict[str, Callable[[], str]] = {
    "SETTINGS.md": settings_table,
    "METRICS.md": metrics_table,
    "CLI.md": commands,
    "COMPATIBILITY.md": compatibility,
}


def in_step(name: str) -> str:
    """The document as it should be."""
    before, marker, rest = (DOCS / name).read_text("utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not marker or not end:
        raise SystemExit(f"docs/{name} has lost its markers: {BEGIN} and {END}")
    return f"{before}{BEGIN}\n\n{TABLES[name]()}\n\n{END}{after}"


def main() -> None:
    for name in TABLES:
        made = in_step(name)
        if made != (DOCS / name).read_text("utf-8"):
            (DOCS / name).write_text(made, "utf-8")
            print(f"docs/{name} written")


if __name__ == "__main__":
    main()
