"""The requests of one session that are being answered, and the word that one is not wanted any more.

That word can come on another connection than its request, and before it: it is remembered for a moment. It
can come late, for an id that is answered; and a client may have given one id to several requests at once:
then it means all of them.
"""

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any

from trunkline.wire.jsonrpc import RpcId

EARLY_SECONDS = 5.0
"""How much later a request may come than the word that it is not wanted."""
MOST_EARLY = 64
MOST_ANSWERED = 256
"""Ids that were answered last: word of one of them is late, and not for a request to come."""


class UnderWay:
    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._tasks: dict[RpcId, list[asyncio.Task[Any]]] = {}
        self._withdrawn: set[asyncio.Task[Any]] = set()
        self._early: OrderedDict[RpcId, float] = OrderedDict()
        self._answered: deque[RpcId] = deque(maxlen=MOST_ANSWERED)

    def __len__(self) -> int:
        return len(self._tasks)

    def begin(self, identity: RpcId, task: asyncio.Task[Any]) -> bool:
        """Whether to answer this request at all; if so, `end` must follow."""
        known_for = self._now() - self._early.pop(identity, float("-inf"))
        if known_for <= EARLY_SECONDS:
            return False
        self._tasks.setdefault(identity, []).append(task)
        return True

    def end(self, identity: RpcId, task: asyncio.Task[Any]) -> None:
        self._withdrawn.discard(task)
        tasks = self._tasks.get(identity, [])
        if task in tasks:
            tasks.remove(task)
        if not tasks:
            self._tasks.pop(identity, None)
        self._answered.append(identity)

    def withdraw(self, identity: RpcId) -> None:
        """The client does not want this request answered any more."""
        tasks = self._tasks.get(identity, ())
        for task in tasks:
            self._withdrawn.add(task)
            task.cancel()
        if not tasks and identity not in self._answered:
            self._early[identity] = self._now()
            while len(self._early) > MOST_EARLY:
                self._early.popitem(last=False)

    def was_withdrawn(self, task: asyncio.Task[Any]) -> bool:
        """Whether it was the client that ended this request."""
        return task in self._withdrawn
