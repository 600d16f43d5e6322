"""Runs the migrations on an older database, with Alembic. `schema.py` says when."""

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection

from trunkline.store.schema import MIGRATIONS


def upgrade(connection: Connection, revision: str = "head") -> None:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, revision)
