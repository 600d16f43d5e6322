"""The tables, as SQLAlchemy Core sees them; the migrations make them, and a test keeps the two equal.

On PostgreSQL they live in schema `mcp`; on SQLite, which has no schemas, the engine maps that name away.
Only types both databases have are used. The three types at the top are where values change on their way:
times are aware and UTC on both sides, text never holds what PostgreSQL cannot store, server ids are UUIDs.
"""

from datetime import UTC, datetime
from uuid import UUID

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Dialect,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
)
from sqlalchemy.types import TypeDecorator

SCHEMA = "mcp"

metadata = MetaData(
    schema=SCHEMA,
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ix": "idx_%(table_name)s_%(column_0_N_name)s",
    },
)


class UtcTime(TypeDecorator[datetime]):
    """Aware in, aware out, UTC at rest. SQLite keeps no zone, so the zone is put back when reading."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError("a time without a zone cannot be stored")
        return value if value.tzinfo is UTC else value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class Words(TypeDecorator[str]):
    """Text from anywhere: NUL, which PostgreSQL refuses, and lone surrogates, which both do, are replaced."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        if value is None or (value.isascii() and "\x00" not in value):
            return value
        return value.replace("\x00", "\ufffd").encode("utf-8", "replace").decode("utf-8")


class ServerId(TypeDecorator[str]):
    """A UUID in the database, its usual spelling everywhere else."""

    impl = Uuid
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> UUID | None:
        return None if value is None else UUID(value)

    def process_result_value(self, value: UUID | None, dialect: Dialect) -> str | None:
        return None if value is None else str(value)


def _counter() -> BigInteger:
    """SQLite counts by itself only in a column declared INTEGER."""
    return BigInteger().with_variant(Integer, "sqlite")


def _owner() -> Column[str]:
    return Column(
        "source_server_id",
        ServerId,
        ForeignKey("mcp.external_servers.id", ondelete="CASCADE"),
        nullable=False,
    )


external_servers = Table(
    "external_servers",
    metadata,
    Column("id", ServerId, primary_key=True),
    Column("name", String(255), nullable=False, unique=True),
    Column("description", Words),
    Column("transport_type", String(32), nullable=False),
    Column("connection_config", Text, nullable=False),
    Column("health_check_url", Words),
    Column("wanted", Boolean, nullable=False),
    Column("status", String(32), nullable=False, index=True),
    Column("error_message", Words),
    Column("tool_count", Integer, nullable=False),
    Column("era", String(32)),
    Column("registered_at", UtcTime, nullable=False),
    Column("updated_at", UtcTime, nullable=False),
    Column("connected_at", UtcTime),
    Column("last_health_check", UtcTime),
    Column("prefix", String(64)),
)

server_connection_history = Table(
    "server_connection_history",
    metadata,
    Column("id", _counter(), primary_key=True),
    Column("server_id", ServerId, ForeignKey("mcp.external_servers.id", ondelete="CASCADE"), nullable=False),
    Column("event_type", String(32), nullable=False),
    Column("details", JSON, nullable=False),
    Column("timestamp", UtcTime, nullable=False),
    Index(None, "server_id", "timestamp"),
)

tools = Table(
    "tools",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", Words, nullable=False),
    Column("original_name", Words, nullable=False),
    Column("description", Words, nullable=False),
    Column("input_schema", JSON, nullable=False),
    _owner(),
    Column("is_external", Boolean, nullable=False),
    Column("is_classified", Boolean, nullable=False),
    Column("skill_ids", JSON, nullable=False),
    Column("primary_skill_id", String(64)),
    Column("definition", LargeBinary, nullable=False),
    Column("fingerprint", String(128), nullable=False),
    Column("discovered_at", UtcTime, nullable=False),
    Column("updated_at", UtcTime, nullable=False),
    UniqueConstraint("source_server_id", "original_name"),
)

items = Table(
    "items",
    metadata,
    _owner(),
    Column("kind", String(32), nullable=False),
    Column("key_digest", String(64), nullable=False),
    Column("key", Words, nullable=False),
    Column("definition", LargeBinary, nullable=False),
    Column("fingerprint", String(128), nullable=False),
    # A URI may be longer than an index entry can be: its digest stands for it.
    UniqueConstraint("source_server_id", "kind", "key_digest"),
)

api_keys = Table(
    "api_keys",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("name", Words, nullable=False),
    Column("scope", String(32), nullable=False),
    Column("digest", LargeBinary, nullable=False),
    Column("created_at", UtcTime, nullable=False),
    Column("expires_at", UtcTime),
    Column("revoked_at", UtcTime),
)

audit_log = Table(
    "audit_log",
    metadata,
    Column("id", _counter(), primary_key=True),
    Column("event", String(255), nullable=False, index=True),
    Column("actor", Words, nullable=False),
    Column("timestamp", UtcTime, nullable=False, index=True),
    # No foreign keys here: what happened outlives the server it happened to.
    Column("server_id", Words, index=True),
    Column("server_name", Words, index=True),
    Column("ip_address", String(64)),
    Column("details", JSON, nullable=False),
)

marks = Table(
    "marks",
    metadata,
    Column("name", String(255), primary_key=True),
    Column("value", Text, nullable=False),
)
