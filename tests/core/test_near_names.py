"""The catalogue's guesses: what somebody may have meant, and that guessing costs next to nothing."""

import time
from datetime import UTC, datetime

import pytest

from trunkline.core.catalog import Catalog
from trunkline.model import Tool

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def catalog_of(*names: str) -> Catalog:
    catalog: dict[str, Tool] = {}
    for number, name in enumerate(names):
        server, _, original = name.partition(".")
        catalog[name] = Tool(
            number,
            server,
            server,
            original,
            b"{}",
            "",
            "",
            False,
            False,
            (),
            datetime(2026, 1, 1, tzinfo=UTC),
        )
    return Catalog(by_name=catalog)


@pytest.mark.parametrize(
    ("meant", "known"),
    [
        ("echo.ecko", "echo.echo"),
        ("read_fil", "files.read_file"),
        ("readFile", "files.read_file"),
        ("get_wether", "sky.get_weather"),
        ("post-serch", "notes.API-post-search"),
    ],
)
def test_a_slip_is_recognised(meant: str, known: str) -> None:
    catalog = catalog_of(
        "echo.echo", "files.read_file", "files.write_file", "sky.get_weather", "notes.API-post-search"
    )
    assert catalog.near(meant)[0] == known


def test_nothing_is_guessed_for_a_stranger_or_a_name_too_long_to_be_a_slip() -> None:
    catalog = catalog_of("echo.echo", "a.tool_" + "tool_" * 30)
    assert catalog.near("zzzz") == []
    assert catalog.near("") == []
    assert catalog.near("tool_" * 30) == []


@pytest.mark.parametrize(
    "meant", ["tool_" * 9000, "tool_" * 20, "SsssxSssssxSxxxxsSsssssssxSsss", "x" + "s" * 99, "ab" * 50]
)
def test_a_guess_is_cheap_whatever_tools_are_called(meant: str) -> None:
    """One request must not hold up the others: 10,000 names, each chosen to be slow to compare."""
    catalog = catalog_of(*(f"{'s' * 240}{i}.{'s' * 150}{'ab' * 50}_tool" for i in range(10_000)))
    took = []
    for _ in range(5):
        began = time.thread_time()
        catalog.near(meant)
        took.append(time.thread_time() - began)
    assert min(took) < 0.03
