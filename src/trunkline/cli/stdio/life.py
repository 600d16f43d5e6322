"""The life of one `trunkline stdio`: its parts, the order in which they begin and end, and what ends it.

That is the end of stdin, a reader of stdout that went away, a signal, or the end of a gateway of its own.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any

from trunkline.cli.stdio.home import Home, Wanted
from trunkline.cli.stdio.link import Link
from trunkline.cli.stdio.pipes import Pipes, taken_over
from trunkline.cli.stdio.relay import Relay
from trunkline.front.server import STOP_SIGNALS
from trunkline.settings import load_settings
from trunkline.telemetry import Redactor, set_up_logging


async def live(wanted: Wanted) -> None:
    """Raises `Failure` and `StartRefused`, when there is no gateway to begin with."""
    settings = load_settings(flags={"host": "127.0.0.1", "port": 0, "data_dir": wanted.data_dir})
    redactor = Redactor()
    set_up_logging(settings.log_level, settings.log_format, redactor)
    ended = asyncio.Event()
    for number in STOP_SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    reading, writing = taken_over()
    home = Home(wanted, settings, redactor, on_own_ended=ended.set)
    try:
        await _unless(ended, home.find())
        if ended.is_set():
            return
        pipes = Pipes(reading, writing, limit=settings.body_limit, on_reader_gone=ended.set)
        relay = Relay(Link(home, pipes.write), limit=settings.body_limit)
        await _unless(ended, _read(pipes, relay))
        home.stay()
        await relay.finish()
    finally:
        await home.close()


async def _read(pipes: Pipes, relay: Relay) -> None:
    async for line in pipes.lines():
        await relay.take(line)


async def _unless(ended: asyncio.Event, work: Coroutine[Any, Any, object]) -> None:
    """Returns when the work is done, or there is no use in it any more."""
    working, waiting = asyncio.ensure_future(work), asyncio.ensure_future(ended.wait())
    await asyncio.wait({working, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if not working.done():
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        return
    working.result()
