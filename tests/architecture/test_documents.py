"""That the documents say what the program does, and lead somewhere."""

import re
from dataclasses import fields
from pathlib import Path

import pytest
import typer
from typer.core import TyperGroup

from scripts.tables import TABLES, in_step
from tests.architecture.house import DOCS, ROOT, links, name_of
from trunkline import errors
from trunkline.cli.main import app
from trunkline.errors import StartRefused, TrunklineError
from trunkline.settings import Settings, variable_of
from trunkline.telemetry import Metrics

ADR = DOCS / "adr"
WANTED = ("README.md", "CHANGELOG.md", "docs/ARCHITECTURE.md")
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]


def page(name: str) -> str:
    return (DOCS / name).read_text("utf-8")


# Tables


@pytest.mark.parametrize("name", ["SETTINGS.md", "METRICS.md", "CLI.md"])
def test_a_generated_table_is_in_step(name: str) -> None:
    """When this fails, run scripts/docs."""
    assert in_step(name) == page(name)


def test_every_generated_table_is_looked_at() -> None:
    assert set(TABLES) == {"SETTINGS.md", "METRICS.md", "CLI.md", "COMPATIBILITY.md"}


def test_every_setting_is_documented_once() -> None:
    """R-53: none is missing, none is invented."""
    rows = re.findall(r"^\| `([A-Z_]+)` \|", page("SETTINGS.md").partition("The command line finds")[0], re.M)
    assert sorted(rows) == sorted(variable_of(item) for item in fields(Settings))


def test_every_metric_is_documented_once() -> None:
    """R-52: none is missing, none is invented."""
    rows = re.findall(r"^\| `([a-z_]+)` \| (?:counter|gauge|histogram) \|", page("METRICS.md"), re.M)
    families = Metrics().registry.collect()
    assert sorted(rows) == sorted(
        f"{family.name}_total" if family.type == "counter" else family.name for family in families
    )


def test_every_verb_is_documented_once() -> None:
    program = typer.main.get_command(app)
    assert isinstance(program, TyperGroup)
    verbs = []
    for name, command in program.commands.items():
        inner = command.commands if isinstance(command, TyperGroup) else None
        verbs += [f"{name} {verb}" for verb in inner] if inner else [name]
    headings = re.findall(r"^## `trunkline ([a-z-]+(?: [a-z-]+)?)", page("CLI.md"), re.M)
    assert sorted(headings) == sorted(verbs)


# Errors


def codes() -> dict[str, str]:
    """Every code with its HTTP status; `none` for one that only stops the start."""
    kinds, waiting = set[type[TrunklineError]](), [TrunklineError]
    while waiting:
        kind = waiting.pop()
        kinds.add(kind)
        waiting += kind.__subclasses__()
    ours = [kind for kind in kinds if kind.__module__ == errors.__name__]
    return {kind.code: "none" if issubclass(kind, StartRefused) else str(kind.status) for kind in ours}


def test_every_error_code_is_documented_with_its_status() -> None:
    """None is missing, none is invented, none stands there twice."""
    rows = re.findall(r"^\| `([A-Z_]+)` \| (\d+|none) \|", page("ERRORS.md"), re.M)
    assert sorted(rows) == sorted(codes().items())


def test_every_documented_error_says_when_and_what_to_do() -> None:
    rows = [line.split(" | ") for line in page("ERRORS.md").splitlines() if line.startswith("| `")]
    assert rows
    for row in rows:
        assert len(row) == 4, row[0]
        assert all(len(text.strip(" |")) > 10 for text in row[2:]), row[0]


def test_no_two_errors_share_a_code() -> None:
    """A code is a promise: what it means must not depend on who raised it."""
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    ours = [kind.code for kind in kinds if issubclass(kind, TrunklineError)]
    assert len(ours) == len(set(ours))


# Pages


@pytest.mark.parametrize("name", WANTED)
def test_a_page_that_readers_expect_is_there(name: str) -> None:
    assert len((ROOT / name).read_text("utf-8").split()) > 50


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_every_relative_link_leads_to_a_file(path: Path) -> None:
    broken = []
    for target in links(path):
        place = target.partition("#")[0]
        if place and not re.match(r"[a-z][a-z0-9+.-]*:", target) and not (path.parent / place).exists():
            broken.append(target)
    assert broken == []


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_every_link_to_a_heading_meets_one(path: Path) -> None:
    broken = []
    for target in links(path):
        place, mark, heading = target.partition("#")
        goal = path.parent / place if place else path
        if mark and not re.match(r"[a-z][a-z0-9+.-]*:", target) and heading not in headings(goal):
            broken.append(target)
    assert broken == []


def headings(path: Path) -> set[str]:
    """As GitHub spells them in a link."""
    titles = re.findall(r"^#+ +(.+?) *$", path.read_text("utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


# Decisions


def test_decisions_are_numbered_without_gaps() -> None:
    names = sorted(path.name for path in ADR.glob("*.md"))
    assert names
    found = [re.fullmatch(r"(\d{4})-[a-z0-9-]+\.md", name) for name in names]
    assert all(found), names
    assert [int(match[1]) for match in found if match] == list(range(1, len(names) + 1))


def test_the_architecture_page_links_every_decision() -> None:
    linked = {target.partition("#")[0] for target in links(DOCS / "ARCHITECTURE.md")}
    missing = {f"adr/{path.name}" for path in ADR.glob("*.md")} - linked
    assert missing == set()
