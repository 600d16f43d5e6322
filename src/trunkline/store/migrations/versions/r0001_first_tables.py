"""The first tables: servers, their history and definitions, keys, the audit log, marks."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

SCHEMA = "mcp"
MOMENT = sa.DateTime(timezone=True)
COUNTER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "external_servers",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("description", sa.Text()),
        sa.Column("transport_type", sa.String(32), nullable=False),
        sa.Column("connection_config", sa.Text(), nullable=False),
        sa.Column("health_check_url", sa.Text()),
        sa.Column("wanted", sa.Boolean(), nullable=False),
        sa.Column("status", sa.String(32), nullable=False),
        sa.Column("error_message", sa.Text()),
        sa.Column("tool_count", sa.Integer(), nullable=False),
        sa.Column("era", sa.String(32)),
        sa.Column("registered_at", MOMENT, nullable=False),
        sa.Column("updated_at", MOMENT, nullable=False),
        sa.Column("connected_at", MOMENT),
        sa.Column("last_health_check", MOMENT),
        sa.PrimaryKeyConstraint("id", name="pk_external_servers"),
        sa.UniqueConstraint("name", name="uq_external_servers_name"),
        schema=SCHEMA,
    )
    op.create_index("idx_external_servers_status", "external_servers", ["status"], schema=SCHEMA)
    op.create_table(
        "server_connection_history",
        sa.Column("id", COUNTER, nullable=False),
        sa.Column("server_id", sa.Uuid(), nullable=False),
        sa.Column("event_type", sa.String(32), nullable=False),
        sa.Column("details", sa.JSON(), nullable=False),
        sa.Column("timestamp", MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_server_connection_history"),
        _belongs_to_a_server("server_id", "fk_server_connection_history_server_id"),
        schema=SCHEMA,
    )
    op.create_index(
        "idx_server_connection_history_server_id_timestamp",
        "server_connection_history",
        ["server_id", "timestamp"],
        schema=SCHEMA,
    )
    op.create_table(
        "tools",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("original_name", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("input_schema", sa.JSON(), nullable=False),
        sa.Column("source_server_id", sa.Uuid(), nullable=False),
        sa.Column("is_external", sa.Boolean(), nullable=False),
        sa.Column("is_classified", sa.Boolean(), nullable=False),
        sa.Column("skill_ids", sa.JSON(), nullable=False),
        sa.Column("primary_skill_id", sa.String(64)),
        sa.Column("definition", sa.LargeBinary(), nullable=False),
        sa.Column("fingerprint", sa.String(128), nullable=False),
        sa.Column("discovered_at", MOMENT, nullable=False),
        sa.Column("updated_at", MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_tools"),
        sa.UniqueConstraint(
            "source_server_id", "original_name", name="uq_tools_source_server_id_original_name"
        ),
        _belongs_to_a_server("source_server_id", "fk_tools_source_server_id"),
        schema=SCHEMA,
    )
    op.create_table(
        "items",
        sa.Column("source_server_id", sa.Uuid(), nullable=False),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("key_digest", sa.String(64), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("definition", sa.LargeBinary(), nullable=False),
        sa.Column("fingerprint", sa.String(128), nullable=False),
        sa.UniqueConstraint(
            "source_server_id", "kind", "key_digest", name="uq_items_source_server_id_kind_key_digest"
        ),
        _belongs_to_a_server("source_server_id", "fk_items_source_server_id"),
        schema=SCHEMA,
    )
    op.create_table(
        "api_keys",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("scope", sa.String(32), nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("expires_at", MOMENT),
        sa.Column("revoked_at", MOMENT),
        sa.PrimaryKeyConstraint("id", name="pk_api_keys"),
        schema=SCHEMA,
    )
    op.create_table(
        "audit_log",
        sa.Column("id", COUNTER, nullable=False),
        sa.Column("event", sa.String(255), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("timestamp", MOMENT, nullable=False),
        sa.Column("server_id", sa.Text()),
        sa.Column("server_name", sa.Text()),
        sa.Column("ip_address", sa.String(64)),
        sa.Column("details", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_audit_log"),
        schema=SCHEMA,
    )
    for column in ("event", "timestamp", "server_id", "server_name"):
        op.create_index(f"idx_audit_log_{column}", "audit_log", [column], schema=SCHEMA)
    op.create_table(
        "marks",
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_marks"),
        schema=SCHEMA,
    )


def _belongs_to_a_server(column: str, name: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint([column], [f"{SCHEMA}.external_servers.id"], name=name, ondelete="CASCADE")
