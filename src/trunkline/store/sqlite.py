"""SQLite as a `Database`: one file in the data folder, one process, one writer.

A lock on the folder is held for life, because two processes with two catalogues on one file would each
be wrong. Writes go through `GroupCommit` on the only connection that ever writes; reads have their own
connections, which WAL lets look past a write under way. Both work in threads of their own, with the driver as
it is. `synchronous=FULL` is what makes an acknowledged write survive a power cut; group commit is what makes
that affordable.
"""

import asyncio
import fcntl
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.exc import DBAPIError

from trunkline.errors import StartRefused, StorageUnavailable
from trunkline.store.database import as_json
from trunkline.store.failures import code_of, translated
from trunkline.store.group_commit import GroupCommit
from trunkline.store.schema import migrate
from trunkline.store.tables import SCHEMA

Result = TypeVar("Result")

DATABASE = "trunkline.db"
LOCK = "trunkline.lock"
READERS = 4
_DAMAGED = ("SQLITE_NOTADB", "SQLITE_CORRUPT")


class SqliteDatabase:
    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._file = data_dir / DATABASE
        self._lock: int | None = None
        self._reads: Engine | None = None
        self._readers: ThreadPoolExecutor | None = None
        self._writes: Engine | None = None
        self._writer: GroupCommit | None = None

    async def open(self) -> None:
        try:
            self._lock = _take_folder(self._data_dir)
            _prepare_file(self._file)
            self._writes = writing_engine(self._file)
            self._reads = reading_engine(self._file)
            self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="store-reader")
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._readers, _migrate, self._writes)
            self._writer = GroupCommit(self._writes)
        except OSError as error:
            await self.close()
            raise StartRefused(
                f"Cannot keep data in {self._data_dir}: {error.strerror}. Make the folder writable for this "
                "user, or give another with --data-dir."
            ) from None
        except DBAPIError as error:
            await self.close()
            raise StartRefused(self._why(error)) from None
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        if self._writer is not None:
            await self._writer.close()
            self._writer = None
        # The writer's connection goes last, so that it alone folds the log back into the file.
        if self._readers is not None:
            await asyncio.to_thread(self._readers.shutdown)
            self._readers = None
        for engine in (self._reads, self._writes):
            if engine is not None:
                engine.dispose()
        self._reads = self._writes = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    async def read(self, work: Callable[[Connection], Result]) -> Result:
        if self._reads is None or self._readers is None:
            raise StorageUnavailable("The database is closed.")
        with translated():
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._readers, _read, self._reads, work)

    async def write(self, work: Callable[[Connection], Result]) -> Result:
        if self._writer is None:
            raise StorageUnavailable("The database is closed.")
        with translated():
            return await self._writer.submit(work)

    def _why(self, error: DBAPIError) -> str:
        code = code_of(error) or type(error.orig).__name__
        if code.startswith(_DAMAGED):
            return (
                f"{self._file} is damaged or no SQLite database: put a backup in its place, or move it away "
                "to start with an empty one."
            )
        return f"{self._file} cannot be opened ({code}): {error.orig}."


def _migrate(engine: Engine) -> None:
    with engine.begin() as connection:
        migrate(connection)


def _read(engine: Engine, work: Callable[[Connection], Result]) -> Result:
    with engine.connect() as connection:
        return work(connection)


def _take_folder(data_dir: Path) -> int:
    """The open lock file; the lock goes with it, also when the process is killed."""
    data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = os.open(data_dir / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(lock, 32, 0).decode("ascii", "replace").strip()
        os.close(lock)
        raise StartRefused(
            f"{data_dir} is in use by another gateway{f' (process {holder})' if holder else ''}: stop that "
            "one, or give this one another folder with --data-dir."
        ) from None
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    return lock


def _prepare_file(file: Path) -> None:
    """Only its owner may read it; SQLite gives the files beside it the same mode."""
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        os.fchmod(descriptor, 0o600)
    finally:
        os.close(descriptor)


def writing_engine(file: Path) -> Engine:
    pragmas = ("busy_timeout=5000", "journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON")
    return _engine(file, pragmas, begin="BEGIN IMMEDIATE", connections=1)


def reading_engine(file: Path) -> Engine:
    pragmas = ("busy_timeout=5000", "query_only=ON")
    return _engine(file, pragmas, begin="BEGIN", connections=READERS)


def _engine(file: Path, pragmas: tuple[str, ...], *, begin: str, connections: int) -> Engine:
    engine = create_engine(
        URL.create("sqlite", database=str(file)),
        pool_size=connections,
        max_overflow=0,
        hide_parameters=True,
        json_serializer=as_json,
        execution_options={"schema_translate_map": {SCHEMA: None}},
    )

    def set_up(connection: Any, _record: object) -> None:
        connection.isolation_level = None  # or the driver begins transactions of its own
        cursor = connection.cursor()
        for pragma in pragmas:
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    def begin_transaction(connection: Connection) -> None:
        connection.exec_driver_sql(begin)

    event.listen(engine, "connect", set_up)
    event.listen(engine, "begin", begin_transaction)
    return engine
