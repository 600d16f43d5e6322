"""Keeps a stream of notifications open, for as long as the server offers it.

A stream that ends is no error and is opened again; how soon is a matter of how long it lived, with jitter,
so that neither a server that hangs up at once nor fifty that restart together are stormed. What travels
on the stream is the wire's business.
"""

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping

import msgspec

from trunkline.errors import ProtocolViolation, RpcError, UpstreamError

FIRST_PAUSE = 0.5
LONGEST_PAUSE = 60.0
STEADY_SECONDS = 10.0
"""A stream that lived so long was well; the next pause is a short one again."""


class NotOffered(Exception):
    """The server has no such stream: asking again is pointless."""


def pause_after(short_lives: int, rng: random.Random) -> float:
    """Full jitter under a ceiling that doubles with every stream that ended too soon."""
    return rng.uniform(0.0, min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(short_lives, 16)))


async def keep_listening(listen: Callable[[], Awaitable[float]], rng: random.Random) -> None:
    """Call `listen` again and again. It returns when its stream ends, with the pause the server asks for."""
    loop = asyncio.get_running_loop()
    short_lives = 0
    while True:
        began, wished = loop.time(), 0.0
        try:
            with contextlib.suppress(UpstreamError):
                wished = await listen()
        except NotOffered:
            return
        short_lives = 0 if loop.time() - began >= STEADY_SECONDS else short_lives + 1
        await asyncio.sleep(min(LONGEST_PAUSE, wished) + pause_after(short_lives, rng))


CHANGES: Mapping[str, tuple[str, str]] = {
    "tools": ("toolsListChanged", "notifications/tools/list_changed"),
    "prompts": ("promptsListChanged", "notifications/prompts/list_changed"),
    "resources": ("resourcesListChanged", "notifications/resources/list_changed"),
}
"""Kind → what a subscription of the newer era calls its changes, and the notification that tells of one."""

ACKNOWLEDGED = "notifications/subscriptions/acknowledged"


class Subscription:
    """The one stream on which a server of the newer era tells of changes: a request that stays open.

    What is wanted can change; then the request is made anew. Nothing is replayed in between, so each time
    but the first the lists count as changed.
    """

    def __init__(self, kinds: Iterable[str], *, on_missed: Callable[[], None]) -> None:
        self._kinds = tuple(kinds)
        self._uris: set[str] = set()
        self._on_missed = on_missed
        self._heard_before = False
        self._changed = asyncio.Event()
        self._agreed = asyncio.Event()
        self._rng = random.Random()  # noqa: S311 - spreads reconnects, guards nothing

    async def keep(self, request: Callable[[bytes], Awaitable[bytes]]) -> None:
        """Ask, with `request`, for as long as there is something to ask for. Ended by cancelling it."""
        while True:
            self._changed.clear()
            if not (self._kinds or self._uris):
                await self._changed.wait()
                continue
            listening = asyncio.ensure_future(keep_listening(lambda: self._listen(request), self._rng))
            changed = asyncio.ensure_future(self._changed.wait())
            try:
                await asyncio.wait({listening, changed}, return_when=asyncio.FIRST_COMPLETED)
                if not changed.done():
                    await changed  # it is not offered: nothing to do until something else is wanted
            finally:
                listening.cancel()
                changed.cancel()
                await asyncio.gather(listening, changed, return_exceptions=True)

    async def _listen(self, request: Callable[[bytes], Awaitable[bytes]]) -> float:
        wanted: dict[str, object] = {CHANGES[kind][0]: True for kind in self._kinds}
        if self._uris:
            wanted["resourceSubscriptions"] = sorted(self._uris)
        try:
            await request(msgspec.json.encode({"notifications": wanted}))
        except (RpcError, ProtocolViolation):
            raise NotOffered from None
        return 0.0

    def on_acknowledged(self) -> None:
        self._agreed.set()
        if self._heard_before and self._kinds:
            self._on_missed()
        self._heard_before = True

    async def add(self, uri: str, seconds: float) -> None:
        """Returns when the server has agreed, or after `seconds`."""
        self._uris.add(uri)
        await self._ask_anew(seconds)

    async def remove(self, uri: str) -> None:
        self._uris.discard(uri)
        self._agreed.clear()
        self._changed.set()

    async def _ask_anew(self, seconds: float) -> None:
        self._agreed.clear()
        self._changed.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._agreed.wait()
