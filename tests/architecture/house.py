"""Where things stand in the project, and what the tests of this folder read out of its files."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
TESTS = ROOT / "tests"
SRC = ROOT / "src" / "trunkline"


def modules() -> list[Path]:
    """Every file of ours that the gateway is made of, also those that are empty."""
    return sorted(SRC.rglob("*.py"))


def rooms() -> set[str]:
    """The packages and modules directly under `trunkline`, by their dotted names."""
    folders = {path.name for path in SRC.iterdir() if path.is_dir() and any(path.rglob("*.py"))}
    files = {path.stem for path in SRC.glob("*.py")} - {"__init__", "__main__"}
    return {f"trunkline.{name}" for name in folders | files}


def name_of(path: Path) -> str:
    """As it is shown when a test fails."""
    return path.relative_to(ROOT).as_posix()


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"), str(path))


def imports(node: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and full name of everything imported at or below a node."""
    for each in ast.walk(node):
        if isinstance(each, ast.Import):
            yield from ((each.lineno, alias.name) for alias in each.names)
        elif isinstance(each, ast.ImportFrom):
            yield from ((each.lineno, f"{each.module}.{alias.name}") for alias in each.names)


def comments(path: Path) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(path.read_text("utf-8")).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def links(page: Path) -> Iterator[str]:
    """Targets of the links and images of a Markdown page, without what stands in code."""
    text = re.sub(r"^(```|~~~).*?^\1", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"`[^`\n]*`", "", text)
    for found in re.finditer(
        r"\]\(\s*<?([^)\s>]+)|^\[[^\]]+\]:\s*(\S+)|(?:src|href)=\"([^\"]+)\"", text, re.M
    ):
        yield next(group for group in found.groups() if group)
