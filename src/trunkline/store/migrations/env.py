"""Alembic's entry: runs the revisions on the connection `store/schema.py` hands over, in its transaction."""

from alembic import context
from sqlalchemy import Connection

from trunkline.store.schema import version_schema
from trunkline.store.tables import metadata

connection: Connection = context.config.attributes["connection"]
context.configure(
    connection=connection,
    target_metadata=metadata,
    version_table_schema=version_schema(connection),
)
context.run_migrations()
