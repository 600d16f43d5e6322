"""A prefix for each server, which its tools' aliases begin with.

Those registered before this revision get theirs when the gateway starts: until then it is null.
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

SCHEMA = "mcp"


def upgrade() -> None:
    prefix = sa.Column("prefix", sa.String(64))
    # Unlike a table that is made, one that is altered is not found under its mapped schema.
    schema = SCHEMA if op.get_context().dialect.name == "postgresql" else None
    op.add_column("external_servers", prefix, schema=schema)
