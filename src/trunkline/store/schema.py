"""Brings a database up to the tables this version knows, or refuses one that is ahead of it.

Runs in the transaction its caller opened, under the lock its caller holds: all of it happens or nothing.
"""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

from trunkline.errors import StartRefused
from trunkline.store.tables import SCHEMA

MIGRATIONS = Path(__file__).parent / "migrations"


def version_schema(connection: Connection) -> str | None:
    """Where the number of the last migration lies: beside the tables."""
    return SCHEMA if connection.dialect.name == "postgresql" else None


def migrate(connection: Connection) -> None:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    scripts = ScriptDirectory.from_config(config)
    known = {script.revision for script in scripts.walk_revisions()}
    options = {"version_table_schema": version_schema(connection)}
    found = MigrationContext.configure(connection, opts=options).get_current_revision()
    if found is not None and found not in known:
        raise StartRefused(
            f"The database was last used by a newer version of Trunkline (its schema is {found}, this one "
            f"knows up to {scripts.get_current_head()}): start that version, or restore an older backup."
        )
    if found != scripts.get_current_head():
        command.upgrade(config, "head")
