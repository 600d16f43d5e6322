"""The `Store` of the house, in SQL: every statement once, for SQLite and PostgreSQL alike.

Each method is one piece of work in one transaction; the `Database` under it decides how that becomes
durable and turns foreign errors into ours. Verbs on a server that is gone raise `ServerNotFound`; what is
merely observed of it (a move, a health check, an era, a count) is dropped, for it may come late.
"""

import asyncio
import secrets
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from sqlalchemy import (
    ColumnElement,
    Connection,
    and_,
    bindparam,
    delete,
    func,
    insert,
    or_,
    select,
    text,
    update,
)
from sqlalchemy.exc import IntegrityError

from trunkline.errors import KeyNotFound, ServerAlreadyExists, ServerNotFound, StorageUnavailable
from trunkline.model import ApiKey, AuditRecord, Era, HistoryRecord, Item, Server, StatusMove
from trunkline.ports import AuditFilter, Store, StoredTool, ToolDraft
from trunkline.settings import Settings
from trunkline.store import definitions, rows
from trunkline.store.database import Database
from trunkline.store.sqlite import SqliteDatabase
from trunkline.store.tables import (
    api_keys,
    audit_log,
    external_servers,
    items,
    marks,
    server_connection_history,
    tools,
)

Result = TypeVar("Result")

PRUNED_AT_ONCE = 5000
"""Old records are deleted in portions, so that nobody waits long behind them."""
PING_SECONDS = 1.0
"""How long a ping waits for its own write."""


def store_for(settings: Settings) -> Store:
    """The store the settings ask for, not yet open."""
    if settings.database_url:
        return SqlStore.postgresql(settings.database_url)
    return SqlStore.sqlite(settings.data_dir)


class SqlStore:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._write_failed = False

    @classmethod
    def sqlite(cls, data_dir: Path) -> "SqlStore":
        return cls(SqliteDatabase(data_dir))

    @classmethod
    def postgresql(cls, url: str) -> "SqlStore":
        from trunkline.store.postgresql import PostgresDatabase  # its driver weighs 10 MB

        return cls(PostgresDatabase(url))

    async def open(self) -> None:
        await self._database.open()

    async def close(self) -> None:
        await self._database.close()

    async def ping(self) -> None:
        """A full disk or a lock lets reads pass: after a failed write, one must succeed again."""
        await self._database.read(lambda connection: connection.execute(text("SELECT 1")).scalar_one())
        if self._write_failed:
            try:
                async with asyncio.timeout(PING_SECONDS):
                    await self.set_mark("store.writable", secrets.token_hex(8))
            except (StorageUnavailable, TimeoutError):
                raise StorageUnavailable("The database answers, and takes no write.") from None

    async def _write(self, work: Callable[[Connection], Result]) -> Result:
        try:
            result = await self._database.write(work)
        except StorageUnavailable:
            self._write_failed = True
            raise
        self._write_failed = False
        return result

    # Servers

    async def load_servers(self) -> list[Server]:
        query = select(external_servers).order_by(external_servers.c.registered_at, external_servers.c.name)
        return await self._database.read(lambda connection: [*map(rows.server_of, connection.execute(query))])

    async def add_server(self, server: Server, audit: AuditRecord) -> None:
        def work(connection: Connection) -> None:
            try:
                connection.execute(insert(external_servers).values(rows.server_values(server)))
            except IntegrityError:
                raise ServerAlreadyExists(server.name) from None
            _record(connection, [audit])

        await self._write(work)

    async def update_server(self, server: Server, audit: AuditRecord | None = None) -> None:
        def work(connection: Connection) -> None:
            if not _change(connection, server.id, rows.operator_values(server)):
                raise ServerNotFound(server.id)
            _record(connection, [audit] if audit else [])

        await self._write(work)

    async def record_move(self, move: StatusMove) -> None:
        def work(connection: Connection) -> None:
            if _change(connection, move.server_id, rows.move_values(move)) and move.event is not None:
                connection.execute(insert(server_connection_history).values(rows.history_values(move)))

        await self._write(work)

    async def record_health(self, checks: Mapping[str, datetime]) -> None:
        if not checks:
            return
        statement = (
            update(external_servers)
            .where(external_servers.c.id == bindparam("server"))
            .values(last_health_check=bindparam("at"))
        )
        # Always in the same order: two gateways on one PostgreSQL must not wait for each other's rows.
        values = [{"server": server_id, "at": at} for server_id, at in sorted(checks.items())]
        await self._write(lambda connection: connection.execute(statement, values))

    async def set_tool_count(self, server_id: str, count: int) -> None:
        await self._write(lambda connection: _change(connection, server_id, {"tool_count": count}))

    async def set_prefix(self, server_id: str, prefix: str) -> None:
        await self._database.write(lambda connection: _change(connection, server_id, {"prefix": prefix}))

    async def remember_era(self, server_id: str, era: Era | None) -> None:
        await self._write(lambda connection: _change(connection, server_id, {"era": era}))

    async def remove_server(self, server_id: str, audit: AuditRecord) -> None:
        def work(connection: Connection) -> None:
            gone = connection.execute(delete(external_servers).where(external_servers.c.id == server_id))
            if not gone.rowcount:
                raise ServerNotFound(server_id)
            _record(connection, [audit])

        await self._write(work)

    async def history(self, server_id: str, limit: int = 50) -> list[HistoryRecord]:
        table = server_connection_history
        query = (
            select(table)
            .where(table.c.server_id == server_id)
            .order_by(table.c.timestamp.desc(), table.c.id.desc())
            .limit(limit)
        )
        return await self._database.read(
            lambda connection: [*map(rows.history_of, connection.execute(query))]
        )

    # Definitions

    async def load_tools(self) -> list[StoredTool]:
        query = select(tools).order_by(tools.c.id)
        return await self._database.read(lambda connection: [*map(rows.tool_of, connection.execute(query))])

    async def apply_tools(
        self, server_id: str, upserts: Sequence[ToolDraft], removed: Sequence[str], at: datetime
    ) -> dict[str, int]:
        return await self._write(
            lambda connection: definitions.apply_tools(connection, server_id, upserts, removed, at)
        )

    async def load_items(self) -> list[Item]:
        query = select(items).order_by(items.c.source_server_id, items.c.kind, items.c.key)
        return await self._database.read(lambda connection: [*map(rows.item_of, connection.execute(query))])

    async def apply_items(
        self, server_id: str, upserts: Sequence[Item], removed: Sequence[tuple[str, str]]
    ) -> None:
        await self._write(lambda connection: definitions.apply_items(connection, server_id, upserts, removed))

    # Keys

    async def load_keys(self) -> list[ApiKey]:
        query = select(api_keys).order_by(api_keys.c.created_at, api_keys.c.id)
        return await self._database.read(lambda connection: [*map(rows.key_of, connection.execute(query))])

    async def add_key(self, key: ApiKey, audit: AuditRecord) -> None:
        def work(connection: Connection) -> None:
            connection.execute(insert(api_keys).values(rows.key_values(key)))
            _record(connection, [audit])

        await self._write(work)

    async def revoke_key(self, key_id: str, at: datetime, audit: AuditRecord) -> None:
        """Raises `KeyNotFound`, also for a key that is revoked already: its first hour stands."""

        def work(connection: Connection) -> None:
            valid = and_(api_keys.c.id == key_id, api_keys.c.revoked_at.is_(None))
            if not connection.execute(update(api_keys).where(valid).values(revoked_at=at)).rowcount:
                raise KeyNotFound(f"No such key, or revoked already: {key_id}")
            _record(connection, [audit])

        await self._write(work)

    # Audit

    async def append_audit(self, records: Sequence[AuditRecord]) -> None:
        if records:
            await self._write(lambda connection: _record(connection, records))

    async def read_audit(self, query: AuditFilter) -> tuple[list[AuditRecord], int]:
        matches = _audit_matching(query)
        page = (
            select(audit_log)
            .where(*matches)
            .order_by(audit_log.c.timestamp.desc(), audit_log.c.id.desc())
            .limit(query.limit)
            .offset(query.offset)
        )
        count = select(func.count()).select_from(audit_log).where(*matches)

        def work(connection: Connection) -> tuple[list[AuditRecord], int]:
            found = [*map(rows.audit_of, connection.execute(page))]
            return found, connection.execute(count).scalar_one()

        return await self._database.read(work)

    async def prune_audit(self, before: datetime) -> int:
        oldest = (
            select(audit_log.c.id)
            .where(audit_log.c.timestamp < before)
            .order_by(audit_log.c.timestamp)
            .limit(PRUNED_AT_ONCE)
        )
        statement = delete(audit_log).where(audit_log.c.id.in_(oldest.scalar_subquery()))
        pruned = 0
        while True:
            gone = await self._write(lambda connection: connection.execute(statement).rowcount)
            pruned += gone
            if gone < PRUNED_AT_ONCE:
                return pruned

    # Marks

    async def get_mark(self, name: str) -> str | None:
        query = select(marks.c.value).where(marks.c.name == name)
        return await self._database.read(lambda connection: connection.execute(query).scalar_one_or_none())

    async def set_mark(self, name: str, value: str) -> None:
        def work(connection: Connection) -> None:
            change = update(marks).where(marks.c.name == name).values(value=value)
            if connection.execute(change).rowcount:
                return
            try:
                with connection.begin_nested():
                    connection.execute(insert(marks).values(name=name, value=value))
            except IntegrityError:
                connection.execute(change)

        await self._write(work)


def _change(connection: Connection, server_id: str, values: rows.Values) -> bool:
    """Whether there was such a server."""
    changed = connection.execute(
        update(external_servers).where(external_servers.c.id == server_id).values(values)
    )
    return changed.rowcount > 0


def _record(connection: Connection, records: Sequence[AuditRecord]) -> None:
    if records:
        connection.execute(insert(audit_log), [rows.audit_values(record) for record in records])


def _audit_matching(query: AuditFilter) -> list[ColumnElement[bool]]:
    columns = audit_log.c
    matches: list[ColumnElement[bool]] = []
    if query.event is not None:
        matches.append(columns.event == query.event)
    if query.actor is not None:
        matches.append(columns.actor == query.actor)
    if query.server is not None:
        matches.append(or_(columns.server_id == query.server, columns.server_name == query.server))
    if query.since is not None:
        matches.append(columns.timestamp >= query.since)
    return matches
