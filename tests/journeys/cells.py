"""The four cells: a client of either era, a server of either era; and what is shown to work in which.

A test states the feature it proves and runs in every cell but those it names with the reason why not.
`docs/COMPATIBILITY.md` is made from what was stated, so that it says what the tests say.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import pytest

OLD, NEW = "legacy", "2026-07-28"
"""As the SDK's client calls the eras it is told to speak."""
CELLS = [(OLD, "legacy"), (NEW, "modern"), (OLD, "modern"), (NEW, "legacy")]
"""(client, server): both old, both new, and crossed."""

Cell = tuple[str, str]


@dataclass(frozen=True)
class Feature:
    name: str
    note: str
    but: Mapping[Cell, str]


FEATURES: list[Feature] = []


def feature(name: str, note: str = "", *, but: Mapping[Cell, str] | None = None) -> pytest.MarkDecorator:
    """Runs the test as `mode` × `era`, in the cells where the feature works."""
    FEATURES.append(Feature(name, note, dict(but or {})))
    works = [cell for cell in CELLS if cell not in (but or {})]
    return pytest.mark.parametrize(("mode", "era"), works)


def by_itself(feature: Feature, cell: Cell) -> str:
    """What the table says of one cell."""
    return feature.but.get(cell, "yes")
