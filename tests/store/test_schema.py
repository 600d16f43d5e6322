"""The tables are what the migrations make, on both databases, from the first revision on."""

import asyncio
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import BLANK_SCHEMA, Connection, MetaData, inspect, text

from tests.conftest import StorePlace
from tests.postgres import PostgresUrl
from tests.samples import new_record, new_server
from trunkline.errors import StartRefused
from trunkline.store.database import Database
from trunkline.store.migrating import upgrade
from trunkline.store.postgresql import PostgresDatabase
from trunkline.store.schema import MIGRATIONS, found_version, version_schema
from trunkline.store.sql import SqlStore
from trunkline.store.sqlite import SqliteDatabase
from trunkline.store.tables import metadata

HEAD = max(file.name[1:5] for file in MIGRATIONS.glob("versions/r*.py"))


@pytest.fixture
def database(store_place: StorePlace) -> Database:
    where = store_place.where
    return PostgresDatabase(where) if isinstance(where, str) else SqliteDatabase(where)


def expected_on(schema: str | None) -> MetaData:
    if schema is not None:
        return metadata
    bare = MetaData(naming_convention=metadata.naming_convention)
    for table in metadata.sorted_tables:
        table.to_metadata(
            bare,
            schema=None,  # type: ignore[arg-type]
            referred_schema_fn=lambda *_: BLANK_SCHEMA,  # type: ignore[arg-type]
        )
    return bare


def differences(connection: Connection) -> list[Any]:
    schema = version_schema(connection)
    options = {
        "compare_type": True,
        "compare_server_default": True,
        "include_schemas": schema is not None,
        "include_name": lambda name, kind, _parents: kind != "schema" or name == schema,
        "version_table_schema": schema,
    }
    found: list[Any] = compare_metadata(
        MigrationContext.configure(connection, opts=options), expected_on(schema)
    )
    return found


async def test_an_empty_database_gets_exactly_the_tables(database: Database) -> None:
    """R-54."""
    await database.open()
    assert await database.read(differences) == []
    assert await database.read(found_version) == HEAD
    await database.close()


async def test_the_migrations_make_exactly_the_tables(database: Database) -> None:
    """R-54: who has come all the way has what a new installation has."""

    def come_all_the_way(connection: Connection) -> None:
        metadata.drop_all(connection)
        connection.execute(text(f"DROP TABLE {'mcp.' if version_schema(connection) else ''}alembic_version"))
        upgrade(connection)

    await database.open()
    await database.write(come_all_the_way)
    assert await database.read(differences) == []
    assert await database.read(found_version) == HEAD
    await database.close()


async def test_a_difference_would_be_seen(store_place: StorePlace, database: Database) -> None:
    """The test above can fail, on both databases."""
    await database.open()
    store_place.execute("DROP INDEX mcp.idx_audit_log_event")
    store_place.execute("ALTER TABLE mcp.marks ADD COLUMN extra INTEGER")
    found = await database.read(differences)
    assert sorted(difference[0] for difference in found) == ["add_index", "remove_column"]
    await database.close()


async def test_a_database_newer_than_the_code_refuses_to_start(
    store_place: StorePlace, store: SqlStore
) -> None:
    """R-54: an older gateway would not know what it breaks."""
    await store.set_mark("kept", "yes")
    await store.close()
    store_place.execute("UPDATE mcp.alembic_version SET version_num = '9999'")
    with pytest.raises(StartRefused, match="newer version of Trunkline") as refusal:
        await store.open()
    assert "9999" in refusal.value.detail
    assert "\n" not in refusal.value.detail
    store_place.execute(f"UPDATE mcp.alembic_version SET version_num = '{HEAD}'")
    await store.open()
    assert await store.get_mark("kept") == "yes"


async def test_a_database_of_the_first_revision_is_brought_up(
    store_place: StorePlace, store: SqlStore
) -> None:
    """R-54: what it holds stays; a server of that time has no prefix yet."""
    await store.add_server(new_server("alpha"), new_record("server.registered"))
    await store.close()
    store_place.execute("ALTER TABLE mcp.external_servers DROP COLUMN prefix")
    store_place.execute("UPDATE mcp.alembic_version SET version_num = '0001'")
    await store.open()
    [server] = await store.load_servers()
    assert (server.name, server.prefix) == ("alpha", "")
    await store.set_prefix(server.id, "alpha")
    [server] = await store.load_servers()
    assert server.prefix == "alpha"


async def test_gateways_that_start_together_migrate_once(postgres_url: PostgresUrl) -> None:
    """R-55: several replicas on one empty PostgreSQL."""
    url = postgres_url()
    replicas = [SqlStore.postgresql(url) for _ in range(5)]
    await asyncio.gather(*(replica.open() for replica in replicas))
    await replicas[0].set_mark("seen", "by all")
    assert [await replica.get_mark("seen") for replica in replicas] == ["by all"] * 5
    await asyncio.gather(*(replica.close() for replica in replicas))


async def test_everything_lies_in_the_schema_the_documents_name(postgres_url: PostgresUrl) -> None:
    """R-54: schema `mcp`, and nothing beside it."""
    database = PostgresDatabase(postgres_url())
    await database.open()

    def tables(connection: Connection) -> tuple[set[str], list[str]]:
        inspector = inspect(connection)
        return set(inspector.get_table_names("mcp")), inspector.get_table_names("public")

    inside, outside = await database.read(tables)
    assert {"external_servers", "tools", "server_connection_history", "alembic_version"} <= inside
    assert outside == []
    await database.close()
