"""That no room escapes the contracts of the import linter, and the doors it cannot describe."""

import re
import tomllib
from typing import Any

import pytest

from tests.architecture.house import DOCS, ROOT, SRC, imports, modules, name_of, rooms, tree_of

CONTRACTS: list[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"][
    "importlinter"
]["contracts"]
OF_ONE_LIBRARY = [
    contract
    for contract in CONTRACTS
    if contract["type"] == "forbidden"
    and not any(name.startswith("trunkline.") for name in contract["forbidden_modules"])
]


def test_every_room_has_its_place_in_the_layers() -> None:
    """A new room is not outside of every rule until somebody remembers it."""
    (layers,) = [contract["layers"] for contract in CONTRACTS if contract["type"] == "layers"]
    placed = [name.strip() for layer in layers for name in layer.split("|")]
    assert sorted(placed) == sorted(rooms())


@pytest.mark.parametrize("contract", OF_ONE_LIBRARY, ids=lambda contract: str(contract["name"]))
def test_a_library_is_forbidden_to_every_room_but_one(contract: dict[str, Any]) -> None:
    assert len(rooms() - set(contract["source_modules"])) == 1
    assert set(contract["source_modules"]) <= rooms()


def test_the_libraries_that_have_a_room_have_a_contract() -> None:
    forbidden = {name for contract in OF_ONE_LIBRARY for name in contract["forbidden_modules"]}
    assert forbidden >= {
        *("sqlalchemy", "alembic", "asyncpg"),
        *("cryptography", "prometheus_client"),
    }


def test_a_front_sees_only_the_gateway_of_the_core() -> None:
    seen = {
        f"{name_of(path)}:{line} {name}"
        for path in modules()
        if path.is_relative_to(SRC / "front")
        for line, name in imports(tree_of(path))
        if name.startswith("trunkline.core") and not name.startswith("trunkline.core.gateway.")
    }
    assert seen == set()


def test_only_the_composition_root_names_the_store() -> None:
    seen = {
        f"{name_of(path)}:{line} {name}"
        for path in modules()
        if path != SRC / "app.py" and not path.is_relative_to(SRC / "store")
        for line, name in imports(tree_of(path))
        if re.match(r"trunkline\.store\b", name)
    }
    assert seen == set()


def test_the_architecture_page_names_every_room() -> None:
    page = (DOCS / "ARCHITECTURE.md").read_text("utf-8")
    unnamed = {room for room in rooms() if not re.search(rf"\b{room.partition('.')[2]}\b", page)}
    assert unnamed == set()
