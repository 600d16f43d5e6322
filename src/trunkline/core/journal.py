"""Writes that nobody waits for: status moves, health, the audit of calls; stored in order, behind the scenes.

What the operator asked for is durable before it is answered and does not come through here. A database
that is away does not stop calls: entries wait, up to a bound. Of a state (an era, a count) only the latest
waits. When a bound is reached the oldest status moves and the oldest audit records are left out, the first
counted in the log and the others in a metric.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Hashable

from trunkline.errors import StorageUnavailable
from trunkline.model import AuditRecord
from trunkline.ports import Store
from trunkline.telemetry import Flood

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
        self._moves: deque[Write] = deque()
        self._states: dict[Hashable, Write] = {}
        self._audit: deque[AuditRecord] = deque()
        self._moves_dropped = 0
        self._drop_log = Flood()
        self._settling: list[asyncio.Future[None]] = []
        self._waiting = asyncio.Event()
        self._closing = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="journal")

    def write(self, write: Write) -> None:
        """Something that happened: stored in order."""
        if len(self._moves) >= MOST_WAITING:
            self._moves.popleft()
            self._moves_dropped += 1
            if self._drop_log.passes():
                log.error("%d status moves will be missing from the history", self._moves_dropped)
        self._moves.append(write)
        self._waiting.set()

    def write_state(self, key: Hashable, write: Write) -> None:
        """How something is now: it takes the place of what waits under the same key."""
        self._states[key] = write
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
            lost = self._number_waiting
            log.error("the database did not take the last %d records before the end", lost)

    async def _run(self) -> None:
        while True:
            await self._waiting.wait()
            self._waiting.clear()
            try:
                await self._flush()
            except StorageUnavailable as error:
                log.warning("the database is away, %d records wait: %s", self._number_waiting, error.detail)
                await asyncio.sleep(RETRY_SECONDS)
                self._waiting.set()
                continue
            if self._closing and not self._number_waiting:
                return
            await asyncio.sleep(0 if self._closing else PAUSE_SECONDS)

    async def _flush(self) -> None:
        while self._number_waiting:
            if self._moves:
                await self._store_move()
            elif self._states:
                await self._store_state()
            else:
                await self._store_audit()
        for stored in self._settling:
            if not stored.done():
                stored.set_result(None)
        self._settling.clear()

    @property
    def _number_waiting(self) -> int:
        return len(self._moves) + len(self._states) + len(self._audit)

    async def _store_move(self) -> None:
        write = self._moves[0]
        await _done(write)
        # While it was being stored, it may have been the one to go.
        if self._moves and self._moves[0] is write:
            self._moves.popleft()

    async def _store_state(self) -> None:
        key, write = next(iter(self._states.items()))
        await _done(write)
        if self._states[key] is write:
            del self._states[key]

    async def _store_audit(self) -> None:
        batch = [self._audit.popleft() for _ in range(min(BATCH, len(self._audit)))]
        try:
            await _done(lambda: self._store.append_audit(batch))
        except StorageUnavailable:
            self._audit.extendleft(reversed(batch))
            raise


async def _done(write: Write) -> None:
    """Raises `StorageUnavailable` alone: what the database refuses must not stop what comes after it."""
    try:
        await write()
    except StorageUnavailable:
        raise
    except Exception:
        log.exception("a record could not be stored and is left out")
