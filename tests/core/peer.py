"""A scripted peer as a test holds it: what it has, what it was asked, how to register it."""

import json
import sys
from pathlib import Path
from typing import Any

SCRIPT = str(Path(__file__).with_name("scripted_peer.py"))
OBJECT = {"type": "object"}


def definition(name: str, **more: object) -> dict[str, object]:
    return {"name": name, "inputSchema": OBJECT, **more}


def page(*entries: object, key: str = "tools", next_cursor: object = None) -> dict[str, Any]:
    """One page of a list; a cursor of None is no cursor."""
    more = {} if next_cursor is None else {"nextCursor": next_cursor}
    return {"result": {key: list(entries), **more}}


def pages(*all_pages: tuple[object, ...]) -> dict[str, Any]:
    """Pages that follow one another."""
    cursors = ["", *(f"page-{number}" for number in range(2, len(all_pages) + 1))]
    following = [*cursors[1:], None]
    return {
        cursor: page(*entries, next_cursor=after)
        for cursor, entries, after in zip(cursors, all_pages, following, strict=True)
    }


class Peer:
    def __init__(self, file: Path) -> None:
        self.file = file
        self._script: dict[str, Any] = {"lists": {"tools/list": pages(())}, "calls": {}}
        self.say()

    def say(self, **changes: object) -> None:
        """What it does from now on."""
        self._script |= changes
        self._write()

    def no_longer(self, *names: str) -> None:
        for name in names:
            del self._script[name]
        self._write()

    def _write(self) -> None:
        fresh = self.file.with_suffix(".fresh")
        fresh.write_text(json.dumps(self._script))
        fresh.replace(self.file)

    def has(self, *tools: object) -> None:
        self.say(lists={"tools/list": pages(tools)})

    def asked(self, entry: str = "") -> int:
        """How many requests there were: in all, of one page (`tools/list page-2`), or calls of one tool."""
        ledger = self.file.with_suffix(".ledger")
        lines = ledger.read_text().splitlines() if ledger.exists() else []
        return len([line for line in lines if entry in ("", line)])

    @property
    def config(self) -> dict[str, object]:
        return {"command": sys.executable, "args": [SCRIPT, str(self.file)]}
