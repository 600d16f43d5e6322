"""Writes that nobody waits for: status moves, health, the audit of calls; stored in order, behind the scenes.

What the operator asked for is durable before it is answered and does not come through here. A database
that is away does not stop calls: entries wait, in order, up to a bound, and the oldest audit records of
calls go first when it is reached, counted in a metric.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable

from trunkline.errors import StorageUnavailable
from trunkline.model import AuditRecord
from trunkline.ports import Store

log = logging.getLogger(__name__)

MOST_WAITING = 20_000
BATCH = 200
PAUSE_SECONDS = 0.05
RETRY_SECONDS = 1.0
CLOSING_SECONDS = 5.0

Write = Callable[[], Awaitable[object]]


class Journal:
    def __init__(self, store: Store, *, on_audit_dropped: Callable[[int], None]) -> None:
        self._store = store
        self._on_audit_dropped = on_audit_dropped
        self._writes: deque[Write] = deque()
        self._audit: deque[AuditRecord] = deque()
        self._settling: list[asyncio.Future[None]] = []
        self._waiting = asyncio.Event()
        self._closing = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="journal")

    def write(self, write: Write) -> None:
        self._writes.append(write)
        self._waiting.set()

    def audit(self, record: AuditRecord) -> None:
        if len(self._audit) >= MOST_WAITING:
            self._audit.popleft()
            self._on_audit_dropped(1)
        self._audit.append(record)
        self._waiting.set()

    async def settle(self) -> None:
        """Wait, within reason, until what was written so far is stored."""
        stored = asyncio.get_running_loop().create_future()
        self._settling.append(stored)
        self._waiting.set()
        await asyncio.wait({stored}, timeout=RETRY_SECONDS)

    async def close(self) -> None:
        """Store what waits, in bounded time."""
        self._closing = True
        self._waiting.set()
        if self._task is None:
            return
        try:
            await asyncio.wait_for(self._task, CLOSING_SECONDS)
        except TimeoutError:
            lost = len(self._writes) + len(self._audit)
            log.error("the database did not take the last %d records before the end", lost)

    async def _run(self) -> None:
        while True:
            await self._waiting.wait()
            self._waiting.clear()
            try:
                await self._flush()
            except StorageUnavailable as error:
                waiting = len(self._writes) + len(self._audit)
                log.warning("the database is away, %d records wait: %s", waiting, error.detail)
                await asyncio.sleep(RETRY_SECONDS)
                self._waiting.set()
                continue
            if self._closing and not self._writes and not self._audit:
                return
            await asyncio.sleep(0 if self._closing else PAUSE_SECONDS)

    async def _flush(self) -> None:
        while self._writes or self._audit:
            if self._writes:
                await self._store_next()
            else:
                await self._store_audit()
        for stored in self._settling:
            if not stored.done():
                stored.set_result(None)
        self._settling.clear()

    async def _store_next(self) -> None:
        try:
            await self._writes[0]()
        except StorageUnavailable:
            raise
        except Exception:
            log.exception("a record could not be stored and is left out")
        self._writes.popleft()

    async def _store_audit(self) -> None:
        batch = [self._audit.popleft() for _ in range(min(BATCH, len(self._audit)))]
        try:
            await self._store.append_audit(batch)
        except StorageUnavailable:
            self._audit.extendleft(reversed(batch))
            raise
