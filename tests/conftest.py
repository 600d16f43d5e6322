"""Fixtures every suite may use: a real PostgreSQL, and a `Store` on each of the two databases."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.postgres import PostgresUrl, postgres_server, postgres_url, psql
from trunkline.store.sql import SqlStore

__all__ = ["postgres_server", "postgres_url", "store", "store_place"]


@dataclass(frozen=True)
class StorePlace:
    """A folder or a database that stores can be opened on, one after the other."""

    where: Path | str

    def store(self) -> SqlStore:
        if isinstance(self.where, Path):
            return SqlStore.sqlite(self.where)
        return SqlStore.postgresql(self.where)

    def execute(self, statement: str) -> None:
        """Behind the store's back; tables are named with `mcp.` before them."""
        if isinstance(self.where, str):
            psql(self.where, statement)
            return
        with closing(sqlite3.connect(self.where / "trunkline.db")) as connection, connection:
            connection.execute(statement.replace("mcp.", ""))


@pytest.fixture(params=["sqlite", "postgresql"])
def store_place(request: pytest.FixtureRequest, tmp_path: Path) -> StorePlace:
    if request.param == "sqlite":
        return StorePlace(tmp_path / "data")
    make: PostgresUrl = request.getfixturevalue("postgres_url")
    return StorePlace(make())


@pytest.fixture
async def store(store_place: StorePlace) -> AsyncIterator[SqlStore]:
    """An open, empty store; a test that takes it runs once on SQLite and once on PostgreSQL."""
    fresh = store_place.store()
    await fresh.open()
    yield fresh
    await fresh.close()
