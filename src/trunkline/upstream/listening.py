"""Keeps one stream of notifications open, for as long as the server offers it.

A stream that ends is no error and is opened again; how soon is a matter of how long it lived, with jitter,
so that neither a server that hangs up at once nor fifty that restart together are stormed. What travels
on the stream is the wire's business.
"""

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable

from trunkline.errors import UpstreamError

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
