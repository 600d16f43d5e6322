"""The habits of the house, as far as a program can see them."""

import ast
import re
from pathlib import Path

import pytest

from tests.architecture.house import SRC, TESTS, comments, imports, modules, name_of, tree_of

MOST_LINES = 450
MOST_DOCSTRING_LINES = 8
NAMES_THAT_SAY_NOTHING = {"utils", "util", "helpers", "helper", "common", "base", "misc", "impl"}
STARTS_FASTER = {
    "cli/demo.py": {
        "trunkline.cli.samples.catalogue.desk",
        "trunkline.cli.samples.catalogue.measure",
        "trunkline.cli.samples.web.HttpWithSse",
        "trunkline.cli.samples.web.StreamableHttp",
        "trunkline.cli.samples.web.running",
    },
    "cli/stdio/command.py": {
        "trunkline.cli.stdio.home.Wanted",
        "trunkline.cli.stdio.life.live",
        "trunkline.front.mcp.http.PATH",
        "trunkline.front.mcp.reception.address_of",
        "trunkline.front.server.new_event_loop",
    },
    "cli/serve.py": {
        "trunkline.app.open_gateway",
        "trunkline.front.server.run",
        "trunkline.security.private_files.replace_private",
    },
    "store/schema.py": {"trunkline.store.migrating.upgrade"},
    "store/sql.py": {"trunkline.store.postgresql.PostgresDatabase"},
}
"""Imported where they are needed: by commands, so that the others answer at once; in the store, because most
gateways never need them and they weigh 22 MB."""


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_a_module_says_in_few_lines_what_it_is(path: Path) -> None:
    """An indented example and blank lines are not counted; a file that is empty says enough."""
    if not path.read_text("utf-8").strip():
        return
    docstring = ast.get_docstring(tree_of(path)) or ""
    lines = [line for line in docstring.splitlines() if line.strip() and not line.startswith("    ")]
    assert 0 < len(lines) <= MOST_DOCSTRING_LINES


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_a_file_is_short_enough_to_be_read(path: Path) -> None:
    assert len(path.read_text("utf-8").splitlines()) <= MOST_LINES


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_a_name_says_what_is_in_it(path: Path) -> None:
    parts = path.relative_to(SRC).with_suffix("").parts
    words = {word for part in parts for word in part.split("_")}
    assert words & NAMES_THAT_SAY_NOTHING == set()
    kinds = [node.name for node in ast.walk(tree_of(path)) if isinstance(node, ast.ClassDef)]
    assert [kind for kind in kinds if re.match(r"_?Base[A-Z]|.+(?:Base|Impl|Utils|Helper)$", kind)] == []


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_imports_stand_at_the_top(path: Path) -> None:
    tree = tree_of(path)
    inner = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    late = {name for function in inner for _, name in imports(function)}
    assert late == STARTS_FASTER.get(path.relative_to(SRC).as_posix(), set())
    started = False
    for statement in tree.body:
        top = isinstance(statement, ast.Import | ast.ImportFrom)
        assert not (top and started), f"line {statement.lineno} imports after the code has begun"
        started = started or isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)


def test_exceptions_to_the_rule_still_exist() -> None:
    assert [name for name in STARTS_FASTER if not (SRC / name).exists()] == []


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_only_the_command_line_prints(path: Path) -> None:
    if path.is_relative_to(SRC / "cli"):
        return
    calls = [node for node in ast.walk(tree_of(path)) if isinstance(node, ast.Call)]
    names = [call.func.id for call in calls if isinstance(call.func, ast.Name)]
    assert "print" not in names


@pytest.mark.parametrize("folder", [SRC, TESTS], ids=["src", "tests"])
def test_what_is_let_pass_is_named(folder: Path) -> None:
    """`type: ignore` and `noqa` say which rule they mean, and no file is let pass whole."""
    unnamed = [
        f"{name_of(path)}:{line} {text}"
        for path in sorted(folder.rglob("*.py"))
        for line, text in comments(path)
        if re.search(r"type:\s*ignore(?!\[[a-z-]+)|(?i:\bnoqa\b)(?!: [A-Z]+[0-9]+)", text)
        or re.search(r"(?:ruff|flake8|mypy):\s*(?:noqa|ignore-errors)", text)
    ]
    assert unnamed == []
