"""Notices a client that goes away while its request is being worked on, and ends that work.

Most requests are over before watching begins and pay nothing for it.
"""

import asyncio
from types import TracebackType
from typing import Any

from trunkline.front.answers import Receive
from trunkline.front.bodies import ClientGone

WATCH_AFTER = 0.05
"""Seconds a request runs before its client is watched."""


class Watch:
    """Cancels the task it is entered in when the client goes away, and says so by `ClientGone`."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._gone = False
        self._watcher: asyncio.Task[None] | None = None

    def __enter__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(WATCH_AFTER, self._start, asyncio.current_task())

    def _start(self, task: asyncio.Task[Any] | None) -> None:
        self._watcher = self._loop.create_task(self._wait(task))

    async def _wait(self, task: asyncio.Task[Any] | None) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._gone = True
        if task is not None:
            task.cancel()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        if self._watcher is not None:
            self._watcher.cancel()
        if self._gone:
            raise ClientGone from error
