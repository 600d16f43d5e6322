"""Brings a database up to the tables this version knows, or refuses one that is ahead of it.

Runs in the transaction its caller opened, under the lock its caller holds: all of it happens or nothing. An
empty database gets the tables as they are now; only an older one needs the migrations, and what runs them
(`migrating.py`).
"""

from pathlib import Path

from sqlalchemy import (
    Column,
    Connection,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    insert,
    inspect,
    select,
)

from trunkline.errors import StartRefused
from trunkline.store.tables import SCHEMA, metadata

MIGRATIONS = Path(__file__).parent / "migrations"
VERSION_TABLE = "alembic_version"


def version_schema(connection: Connection) -> str | None:
    """Where the number of the last migration lies: beside the tables."""
    return SCHEMA if connection.dialect.name == "postgresql" else None


def migrate(connection: Connection) -> None:
    known = sorted(file.name[1:5] for file in MIGRATIONS.glob("versions/r*.py"))
    head = known[-1]
    found = found_version(connection)
    if found == head:
        return
    if found is None:
        _make(connection, head)
        return
    if found not in known:
        raise StartRefused(
            f"The database was last used by a newer version of Trunkline (its schema is {found}, this one "
            f"knows up to {head}): start that version, or restore an older backup."
        )
    from trunkline.store.migrating import upgrade  # what it needs weighs 12 MB

    upgrade(connection)


def found_version(connection: Connection) -> str | None:
    """The revision the tables are at; None where there are none."""
    if not inspect(connection).has_table(VERSION_TABLE, schema=version_schema(connection)):
        return None
    return connection.execute(select(_version_table(connection).c.version_num)).scalar_one_or_none()


def _make(connection: Connection, head: str) -> None:
    metadata.create_all(connection, checkfirst=False)  # a table of somebody else is an error
    table = _version_table(connection)
    table.create(connection)
    connection.execute(insert(table).values(version_num=head))


def _version_table(connection: Connection) -> Table:
    """As Alembic makes it."""
    return Table(
        VERSION_TABLE,
        MetaData(),
        Column("version_num", String(32), nullable=False),
        PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
        schema=version_schema(connection),
    )
