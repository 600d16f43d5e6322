"""What a command shows: text for people, JSON for programs, never both on stdout.

Foreign text (a server's, a tool's) is made printable here and never read as markup. Nothing is ever cut
short: a table that does not fit is folded, and where folding would break an id, each row becomes a block.
"""

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from trunkline.telemetry import printable

_UNBOUNDED = 100_000
_NARROWEST_FOLD = 16
_GAP = 2

_STYLES = {
    "CONNECTED": "green",
    "healthy": "green",
    "ok": "green",
    "added": "green",
    "add": "green",
    "CONNECTING": "yellow",
    "DEGRADED": "yellow",
    "DISCONNECTING": "yellow",
    "degraded": "yellow",
    "warning": "yellow",
    "skip": "yellow",
    "skipped": "yellow",
    "ERROR": "red",
    "failed": "red",
    "wrong": "red",
    "revoked": "red",
    "expired": "red",
}


@dataclass(frozen=True, slots=True)
class Column:
    title: str
    folds: bool = False
    """Whether its text may go over several lines; ids and names may not, or they could not be copied."""
    right: bool = False


def one_line(value: object) -> str:
    """Any value as a cell shows it."""
    if value is None:
        return "-"
    return printable(" ".join(str(value).split()))


def terminal_width(file_is_terminal: bool) -> int:
    """Lines of a pipe have no width, unless COLUMNS says one."""
    named = os.environ.get("COLUMNS", "")
    if named.isdigit() and int(named) > 0:
        return int(named)
    if not file_is_terminal:
        return _UNBOUNDED
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or 80
    except OSError:
        return 80


def fits_as_table(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int) -> bool:
    """Whether the columns that may not fold leave enough room for those that may."""
    needed = _GAP * (len(columns) - 1)
    for index, column in enumerate(columns):
        widest = max([cell_len(column.title), *(cell_len(row[index]) for row in rows)])
        needed += min(widest, max(_NARROWEST_FOLD, cell_len(column.title))) if column.folds else widest
    return needed <= width


class Screen:
    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self.answered = False
        """Whether the one JSON document of this command has been printed."""
        self.interactive = sys.stderr.isatty() and not as_json
        self.can_ask = sys.stdin.isatty() and sys.stderr.isatty()
        self._out = Console(
            width=terminal_width(sys.stdout.isatty()), highlight=False, markup=False, emoji=False
        )
        self._err = Console(stderr=True, highlight=False, markup=False, emoji=False, soft_wrap=True)

    def json(self, value: Any) -> None:
        self.answered = True
        sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=not _writes_unicode()) + "\n")

    def say(self, text: str = "", *, style: str = "") -> None:
        """A line for people; with --json it is left out."""
        if not self.as_json:
            self._out.print(Text(printable(text), style=style), soft_wrap=True)

    def marked(self, mark: str, style: str, text: str) -> None:
        """A line with a coloured word in front."""
        if not self.as_json:
            line = Text(f"{mark:<9}", style=style) + Text(printable(text), style="default")
            self._out.print(line, soft_wrap=True)

    def plain(self, text: str) -> None:
        """An answer exactly as it is, for eyes and pipes alike."""
        sys.stdout.write(text if text.endswith("\n") else text + "\n")

    def note(self, text: str, *, style: str = "") -> None:
        """A line beside the answer, on stderr."""
        self._err.print(Text(printable(text), style=style))

    def table(self, columns: Sequence[Column], rows: Sequence[Sequence[object]]) -> None:
        cells = [[one_line(value) for value in row] for row in rows]
        if fits_as_table(columns, cells, self._out.width):
            self._print(_table(columns, cells))
        else:
            self._blocks(columns, cells)

    def _print(self, table: Table) -> None:
        """Without the spaces that fill its last column up."""
        with self._out.capture() as captured:
            self._out.print(table)
        self._out.file.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))

    def _blocks(self, columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
        for index, row in enumerate(rows):
            if index:
                self._out.print()
            self.fields([(column.title, cell) for column, cell in zip(columns, row, strict=True)])

    def fields(self, pairs: Sequence[tuple[str, object]]) -> None:
        """Labels and values, a line each; a long value goes on under itself where there is room for that."""
        label_width = max(cell_len(label) for label, _ in pairs)
        for label, value in pairs:
            shown = one_line(value)
            line = Text(f"{label:<{label_width}}  ", style="bold")
            line.append(Text(shown, style=_STYLES.get(shown, "not bold")))
            room = self._out.width - label_width - _GAP
            if " " in shown and cell_len(shown) > room >= _NARROWEST_FOLD:
                grid = Table.grid(padding=(0, _GAP, 0, 0))
                grid.add_column(no_wrap=True, style="bold")
                grid.add_column(overflow="fold")
                grid.add_row(Text(f"{label:<{label_width}}"), Text(shown))
                self._print(grid)
            else:
                self._out.print(line, soft_wrap=True)

    @contextmanager
    def busy(self, text: str) -> Iterator[None]:
        """Shows that something is under way, where somebody watches."""
        if not self.interactive:
            yield
            return
        with self._err.status(Text(printable(text))):
            yield


def _table(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> Table:
    table = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(
            Text(column.title),
            overflow="fold",
            no_wrap=not column.folds,
            justify="right" if column.right else "left",
        )
    for row in rows:
        table.add_row(*(Text(cell, style=_STYLES.get(cell, "")) for cell in row))
    return table


def _writes_unicode() -> bool:
    return (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"


def show_failure(message: str, hints: Sequence[str]) -> None:
    console = Console(stderr=True, highlight=False, markup=False, emoji=False, soft_wrap=True)
    console.print(Text("error: ", style="bold red") + Text(printable(message)))
    for hint in hints:
        console.print(Text("  " + printable(hint)))
