"""Calls that wait for their client to answer a question, between two requests of that client.

A server of the session era asks in the middle of a call; a client of the newer era is asked by the result
of its request and answers by repeating it. Meanwhile the call is parked here, in memory and for a limited
time: it dies with the process, and then a repeated request is refused rather than run a second time.
"""

import asyncio
import hashlib
import logging
import secrets
from collections.abc import Mapping
from typing import Any, Protocol

from trunkline.errors import Declined
from trunkline.wire import jsonrpc, translate

log = logging.getLogger(__name__)

PREFIX = "trunkline-parked:"
MOST_PARKED = 1000
TOGETHER_SECONDS = 0.02
"""After a question: how long others may come to be asked along with it."""


class Movable(Protocol):
    """A client whose later messages belong to a later request."""

    def move_to(self, later: Any) -> None: ...


class Parked:
    """One call, and what it asks."""

    def __init__(self, owner: str, digest: bytes) -> None:
        self.owner = owner
        self.digest = digest
        self.token = ""
        self.client: Movable | None = None
        self.work: asyncio.Task[bytes] | None = None
        self.expiry: asyncio.TimerHandle | None = None
        self._open: dict[str, tuple[str, bytes, asyncio.Future[bytes]]] = {}
        self._asked = asyncio.Event()
        self._count = 0

    async def ask(self, method: str, params: bytes) -> bytes:
        """Called in the course of the call. Raises `Declined` when no answer comes in time."""
        self._count += 1
        key = f"q{self._count}"
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._open[key] = (method, params, answer)
        self._asked.set()
        try:
            return await answer
        finally:
            self._open.pop(key, None)

    def answer(self, responses: Mapping[str, bytes]) -> None:
        for key, response in responses.items():
            if key in self._open and not self._open[key][2].done():
                self._open[key][2].set_result(response)

    @property
    def questions(self) -> dict[str, tuple[str, bytes]]:
        return {
            key: (method, params) for key, (method, params, answer) in self._open.items() if not answer.done()
        }

    async def outcome(self) -> bytes | None:
        """The result, or None when there are questions first. Raises what the call raised."""
        work = self.work
        if work is None:
            raise AssertionError("nothing is under way")
        while not work.done():
            if self.questions:
                await asyncio.wait({work}, timeout=TOGETHER_SECONDS)
                if not work.done() and self.questions:
                    return None
                continue
            self._asked.clear()
            asked = asyncio.ensure_future(self._asked.wait())
            try:
                await asyncio.wait({work, asked}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                asked.cancel()
        return work.result()

    def give_up(self, reason: str) -> None:
        for _, _, answer in self._open.values():
            if not answer.done():
                answer.set_exception(Declined(jsonrpc.INTERNAL_ERROR, reason))
        if self.work is not None and not self.work.cancel() and not self.work.cancelled():
            self.work.exception()  # it failed while nobody was there to be told


class Parking:
    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        """How long a call waits for its client."""
        self._parked: dict[str, Parked] = {}

    def keep(self, parked: Parked) -> bytes:
        """Until the client repeats its request: the result that asks it to."""
        parked.token = PREFIX + secrets.token_urlsafe(24)
        while len(self._parked) >= MOST_PARKED:
            self._drop(next(iter(self._parked)), "too many calls wait for their clients")
        self._parked[parked.token] = parked
        loop = asyncio.get_running_loop()
        parked.expiry = loop.call_later(self._seconds, self._drop, parked.token, "nobody answered in time")
        return translate.input_required(parked.questions, parked.token)

    def take(self, token: str, owner: str, digest: bytes) -> Parked | None:
        """The call that waits under this token, for its owner and the same request alone. Only once."""
        parked = self._parked.get(token)
        if parked is None or parked.owner != owner or parked.digest != digest:
            return None
        del self._parked[token]
        if parked.expiry is not None:
            parked.expiry.cancel()
        return parked

    def _drop(self, token: str, reason: str) -> None:
        parked = self._parked.pop(token, None)
        if parked is not None:
            log.info("A parked call is given up: %s", reason)
            if parked.expiry is not None:
                parked.expiry.cancel()
            parked.give_up(reason)

    def close(self) -> None:
        for token in list(self._parked):
            self._drop(token, "the gateway is stopping")


def digest_of(method: str, name: str, arguments: bytes) -> bytes:
    """What makes a repeated request the same request."""
    return hashlib.sha256(b"\0".join((method.encode(), name.encode("utf-8", "replace"), arguments))).digest()
