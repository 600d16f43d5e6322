"""stdin and stdout as bytes, taken away from everything else in the process.

Each is served by a thread of its own, so that terminals, pipes and files all work and none is made
non-blocking for others who have it open. Nothing is read ahead: a line waits in the pipe until it is asked
for, and who writes waits until the line is written. What anything else prints goes to stderr.
"""

import asyncio
import os
import queue
import threading
from collections.abc import AsyncIterator, Callable
from typing import TypeVar

from trunkline.wire.lines import LineSplitter, Oversized

T = TypeVar("T")

_CHUNK = 64 * 1024


def taken_over() -> tuple[int, int]:
    """stdin and stdout for us alone; in their places are nothing, and stderr."""
    reading, writing = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return reading, writing


class Pipes:
    def __init__(self, reading: int, writing: int, *, limit: int, on_reader_gone: Callable[[], None]) -> None:
        self._reading = reading
        self._writing = writing
        self._limit = limit
        self._on_reader_gone = on_reader_gone
        self._loop = asyncio.get_running_loop()
        self._wanted: queue.SimpleQueue[asyncio.Future[bytes]] = queue.SimpleQueue()
        self._outgoing: queue.SimpleQueue[tuple[bytes, asyncio.Future[bool]]] = queue.SimpleQueue()
        self._gone = False
        for work in (self._read_on, self._write_on):
            # A thread that waits for the other side must not hold the process.
            threading.Thread(target=work, daemon=True).start()

    async def lines(self) -> AsyncIterator[bytes | Oversized]:
        """Until the end of stdin; a last line without a line end counts."""
        splitter = LineSplitter(self._limit)
        while chunk := await self._chunk():
            for line in splitter.feed(chunk):
                yield line
        if rest := splitter.rest().strip():
            yield rest

    async def write(self, line: bytes) -> None:
        """Returns when it is written; quietly, if nobody reads any more."""
        if self._gone:
            return
        written: asyncio.Future[bool] = self._loop.create_future()
        self._outgoing.put((line + b"\n", written))
        if not await asyncio.shield(written):
            self._gone = True
            self._on_reader_gone()

    async def _chunk(self) -> bytes:
        found: asyncio.Future[bytes] = self._loop.create_future()
        self._wanted.put(found)
        return await found

    def _read_on(self) -> None:
        while True:
            wanted = self._wanted.get()
            try:
                chunk = os.read(self._reading, _CHUNK)
            except OSError:
                chunk = b""
            if not self._on_loop(_fulfil, wanted, chunk):
                return

    def _write_on(self) -> None:
        while True:
            line, written = self._outgoing.get()
            rest = memoryview(line)
            try:
                while rest:
                    rest = rest[os.write(self._writing, rest) :]
            except OSError:
                pass
            if not self._on_loop(_fulfil, written, not rest):
                return

    def _on_loop(self, work: Callable[..., None], *arguments: object) -> bool:
        """False when the loop is closed and nobody waits."""
        try:
            self._loop.call_soon_threadsafe(work, *arguments)
        except RuntimeError:
            return False
        return True


def _fulfil(future: "asyncio.Future[T]", value: T) -> None:
    if not future.done():
        future.set_result(value)
