"""Messages on their way to one client: put in order by anybody, taken out by whoever writes the stream.

Bounded: what a client does not take is dropped from the front, but never what is owed and was not taken;
who puts that waits for `room`. With `replayable` each message has an id and is kept for a while, so that a
client that lost its stream can go on where it was.
"""

import asyncio
from collections import deque

MOST_BYTES = 8 * 1024 * 1024
MOST_KEPT = 1000
KEEP_ALIVE_SECONDS = 15.0
KEEP_ALIVE = b": keep-alive\n\n"


class Channel:
    def __init__(self, name: str = "", *, replayable: bool = False) -> None:
        self.name = name
        self._replayable = replayable
        self._events: deque[tuple[int, bytes, bool]] = deque()
        self._size = 0
        self._count = 0
        self._position = 0
        """The number of the last event that was taken."""
        self._news = asyncio.Event()
        self._taken = asyncio.Event()
        self.closed = False
        self.reader: object | None = None
        """Who takes the messages; a new reader takes over from an old one."""

    @property
    def _over(self) -> bool:
        return self._size > MOST_BYTES or len(self._events) > MOST_KEPT

    def put(self, message: bytes, *, owed: bool = False) -> None:
        if self.closed:
            return
        self._count += 1
        self._events.append((self._count, message, owed))
        self._size += len(message)
        while len(self._events) > 1 and self._over:
            index = self._dispensable()
            if index is None:
                break
            self._size -= len(self._events[index][1])
            del self._events[index]
        self._news.set()

    def _dispensable(self) -> int | None:
        for index, (number, _, owed) in enumerate(self._events):
            if not owed or number <= self._position:
                return index
        return None

    async def room(self) -> None:
        """Returns when less than half of what may wait is waiting, or when the channel is closed."""
        while not self.closed and (self._size > MOST_BYTES / 2 or len(self._events) > MOST_KEPT / 2):
            self._taken.clear()
            await self._taken.wait()

    def close(self) -> None:
        """No more will come; what is there can still be taken."""
        self.closed = True
        self._news.set()
        self._taken.set()

    def exhausted(self, after: int) -> bool:
        """Whether nothing will come any more after the message numbered `after`."""
        return self.closed and after >= self._count

    def take_over(self, reader: object, after: int | None = None) -> None:
        """`reader` takes the messages from now on, beginning after the one numbered `after`."""
        self.reader = reader
        if after is not None:
            self._position = after
        self._news.set()

    async def next(self, reader: object) -> bytes | None:
        """Some events as they are written, or a keep-alive; None when no more will come for this reader."""
        while True:
            if self.reader is not reader:
                return None
            if ready := self._ready():
                return ready
            if self.closed:
                return None
            self._news.clear()
            try:
                async with asyncio.timeout(KEEP_ALIVE_SECONDS):
                    await self._news.wait()
            except TimeoutError:
                return KEEP_ALIVE

    def _ready(self) -> bytes:
        parts: list[bytes] = []
        for number, message, _ in self._events:
            if number > self._position:
                self._position = number
                parts.append(self.encode(number, message))
        if not self._replayable:
            self._events.clear()
            self._size = 0
            self._taken.set()
        return b"".join(parts)

    def encode(self, number: int, message: bytes) -> bytes:
        identity = b"id: %b-%d\n" % (self.name.encode(), number) if self._replayable else b""
        return b"%bevent: message\ndata: %b\n\n" % (identity, one_line(message))

    @property
    def first(self) -> bytes:
        """What a stream begins with: where to resume from, and when."""
        return self.place(0) if self._replayable else b""

    def place(self, number: int) -> bytes:
        """An event without a message, which only tells where to resume from."""
        return b"id: %b-%d\nretry: 1000\ndata: \n\n" % (self.name.encode(), number)


def one_line(message: bytes) -> bytes:
    """In JSON a line end is only ever white space between tokens; in an event it would end the line."""
    if b"\n" in message or b"\r" in message:
        return message.replace(b"\r", b" ").replace(b"\n", b" ")
    return message
