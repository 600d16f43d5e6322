"""PostgreSQL as a `Database`: a pool of connections, each write a transaction of its own.

The address goes to the driver as the user wrote it, so everything libpq's URLs can say is understood
(socket folders, `sslmode`, several hosts). Connections are tried before use: the pool heals by itself
when the server comes back. No text from here ever holds the address or a part of it.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import asyncpg
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool
from sqlalchemy.schema import CreateSchema

from trunkline.errors import SettingsError, StartRefused, StorageUnavailable
from trunkline.store.database import as_json
from trunkline.store.failures import FOREIGN, code_of, driver_error, translated
from trunkline.store.schema import migrate
from trunkline.store.tables import SCHEMA

Result = TypeVar("Result")

VARIABLE = "MCP_AGGREGATOR_DATABASE_URL"
CONNECT_SECONDS = 5.0
STATEMENT_SECONDS = 30.0
_FOREIGN = (*FOREIGN, asyncpg.PostgresError, asyncpg.InterfaceError)
_MIGRATION_LOCK = int.from_bytes(b"trunklin")
_LOCK_TIMEOUT = "20s"

_REASONS = {
    "28P01": "it rejected the user name or the password",
    "28000": "it does not let this user in",
    "3D000": "it has no database of this name",
    "42501": "this user may not create the tables; give it CREATE on the database",
    "53300": "it has no connection left",
    "55P03": "another gateway has been changing its tables for 20 seconds; start again when it is done",
    "57P03": "it is starting up or shutting down",
}


class PostgresDatabase:
    def __init__(self, url: str) -> None:
        self._url = plain_url(url)
        self._closed = True
        self._under_way = 0
        self._idle = asyncio.Event()
        self._engine = create_async_engine(
            "postgresql+asyncpg://",
            async_creator=self._connect,
            pool_size=5,
            max_overflow=5,
            pool_timeout=10,
            pool_pre_ping=True,
            hide_parameters=True,
            json_serializer=as_json,
        )

    async def open(self) -> None:
        try:
            await self._migrate()
        except (*_FOREIGN, ValueError) as error:
            await self.close()
            raise StartRefused(_why(error)) from None
        self._closed = False

    async def close(self) -> None:
        self._closed = True
        while self._under_way:
            self._idle.clear()
            await self._idle.wait()
        await self._engine.dispose()

    async def read(self, work: Callable[[Connection], Result]) -> Result:
        with self._counted(), translated(_FOREIGN):
            async with self._engine.connect() as connection:
                return await connection.run_sync(work)

    async def write(self, work: Callable[[Connection], Result]) -> Result:
        with self._counted(), translated(_FOREIGN):
            async with self._engine.begin() as connection:
                return await connection.run_sync(work)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        """What is under way when the store closes may end first."""
        if self._closed:
            raise StorageUnavailable("The database is closed.")
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1
            self._idle.set()

    async def _connect(self, command_timeout: float | None = STATEMENT_SECONDS) -> Any:
        return await asyncpg.connect(
            self._url,
            timeout=CONNECT_SECONDS,
            command_timeout=command_timeout,
            server_settings={"application_name": "trunkline"},
        )

    async def _migrate(self) -> None:
        """On a connection of its own, which may take longer over a statement than the others."""

        async def connect() -> Any:
            return await self._connect(command_timeout=None)

        engine = create_async_engine(
            "postgresql+asyncpg://", async_creator=connect, poolclass=NullPool, hide_parameters=True
        )
        try:
            async with engine.begin() as connection:
                await connection.execute(text(f"SET LOCAL lock_timeout = '{_LOCK_TIMEOUT}'"))
                await connection.execute(text(f"SELECT pg_advisory_xact_lock({_MIGRATION_LOCK})"))
                await connection.execute(CreateSchema(SCHEMA, if_not_exists=True))
                await connection.run_sync(migrate)
        finally:
            await engine.dispose()


def plain_url(url: str) -> str:
    """The URL as PostgreSQL's own tools spell it. Raises `SettingsError`."""
    scheme, separator, rest = url.partition("://")
    if not separator or scheme not in ("postgresql", "postgres", "postgresql+asyncpg"):
        raise SettingsError(
            f"{VARIABLE} must start with postgresql://, as in postgresql://user:password@host/name"
        )
    return f"postgresql://{rest}"


def _why(error: Exception) -> str:
    code = code_of(error)
    if code in _REASONS:
        reason = _REASONS[code]
    elif isinstance(driver_error(error), ValueError):
        reason = "the address cannot be read; in a password, write @ : / ? # % as %40 %3A %2F %3F %23 %25"
    elif isinstance(error, TimeoutError):
        reason = f"it does not answer within {CONNECT_SECONDS:g} seconds"
    elif isinstance(error, OSError):
        reason = "nothing answers at this address"
    else:
        reason = f"it answered with an error ({code or type(driver_error(error)).__name__})"
    return f"Cannot use the PostgreSQL of {VARIABLE}: {reason}."
