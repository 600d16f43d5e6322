"""One writer for a database that allows one: all writes that wait share the next commit.

A commit to disk costs milliseconds whatever is in it, so the writer takes everything that has queued
up meanwhile, runs each in a savepoint of its own, commits once, and only then answers. A write that
fails, fails alone; a commit that fails, fails all of its batch. A write that has the commit to itself needs
no savepoint: so are the records of calls, many in one write. Callers may go away at any time.
Works in a thread of its own. Knows nothing of SQLite but that it wants this.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar, cast

from sqlalchemy import Connection, Engine

from trunkline.errors import StorageUnavailable
from trunkline.store.failures import unavailable

Result = TypeVar("Result")
Work = Callable[[Connection], object]


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting:
    work: Work
    answer: asyncio.Future[object]


@dataclass(frozen=True, slots=True)
class _Done:
    value: object


@dataclass(frozen=True, slots=True)
class _Failed:
    error: Exception


class GroupCommit:
    def __init__(self, engine: Engine, *, most: int = 256) -> None:
        self._engine = engine
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="store-writer")
        self._most = most
        self._queue: deque[_Waiting] = deque()
        self._wake = asyncio.Event()
        self._stopped = False
        self._writer = asyncio.create_task(self._run(), name="store-writer")

    async def submit(self, work: Callable[[Connection], Result]) -> Result:
        """Wait until `work` is committed. Cancelled before its turn, it does not run at all."""
        if self._stopped:
            raise _stopped()
        waiting = _Waiting(work, asyncio.get_running_loop().create_future())
        self._queue.append(waiting)
        self._wake.set()
        return cast(Result, await waiting.answer)

    async def close(self) -> None:
        """Take no more, commit what waits."""
        self._stopped = True
        self._wake.set()
        await self._writer

    async def _run(self) -> None:
        try:
            while self._queue or not self._stopped:
                await self._wake.wait()
                self._wake.clear()
                while batch := self._next_batch():
                    await self._commit(batch)
        finally:
            self._stopped = True
            self._thread.shutdown(wait=False)
            for waiting in self._queue:
                _answer(waiting, _Failed(_stopped()))

    def _next_batch(self) -> list[_Waiting]:
        batch: list[_Waiting] = []
        while self._queue and len(batch) < self._most:
            waiting = self._queue.popleft()
            if not waiting.answer.cancelled():
                batch.append(waiting)
        return batch

    async def _commit(self, batch: Sequence[_Waiting]) -> None:
        works = [waiting.work for waiting in batch]
        try:
            loop = asyncio.get_running_loop()
            outcomes = await loop.run_in_executor(self._thread, _run_all, self._engine, works)
        except BaseException as error:
            for waiting in batch:
                _answer(waiting, _Failed(unavailable(error)))
            if not isinstance(error, Exception):
                raise
        else:
            for waiting, outcome in zip(batch, outcomes, strict=True):
                _answer(waiting, outcome)


def _run_all(engine: Engine, works: Sequence[Work]) -> list[_Done | _Failed]:
    """Raises when the commit fails."""
    if len(works) == 1:
        with engine.connect() as connection:
            return [_run_alone(connection, works[0])]
    with engine.begin() as connection:
        return _run_each(connection, works)


def _run_alone(connection: Connection, work: Work) -> _Done | _Failed:
    """Without a savepoint, which has nobody to protect here."""
    with connection.begin() as transaction:
        try:
            value = work(connection)
        except Exception as error:
            transaction.rollback()
            return _Failed(error)
    return _Done(value)


def _run_each(connection: Connection, works: Sequence[Work]) -> list[_Done | _Failed]:
    outcomes: list[_Done | _Failed] = []
    for work in works:
        savepoint = connection.begin_nested()
        try:
            value = work(connection)
        except Exception as error:
            # A full disk undoes the whole transaction, savepoint included: then this raises, and all fail.
            savepoint.rollback()
            outcomes.append(_Failed(error))
        else:
            savepoint.commit()
            outcomes.append(_Done(value))
    return outcomes


def _answer(waiting: _Waiting, outcome: _Done | _Failed) -> None:
    if waiting.answer.done():
        return
    if isinstance(outcome, _Done):
        waiting.answer.set_result(outcome.value)
    else:
        waiting.answer.set_exception(outcome.error)


def _stopped() -> StorageUnavailable:
    return StorageUnavailable("The gateway is stopping and stores nothing more.")
