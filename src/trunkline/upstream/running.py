"""One request under way on a connection: how long it may take, and what its server says in its course.

Progress moves the deadline on and goes to the client, questions are put to the client, and while one is
open the deadline waits for a person. `connection.py` finds out which request is meant; a wire never does.
"""

import asyncio

from trunkline.errors import Declined
from trunkline.model import Counterpart
from trunkline.wire import jsonrpc
from trunkline.wire.jsonrpc import RpcId

QUESTIONS = frozenset({"elicitation/create", "sampling/createMessage", "roots/list"})


class Running:
    __slots__ = ("client", "deadline", "questions")

    def __init__(self, deadline: "Deadline", client: Counterpart | None) -> None:
        self.deadline = deadline
        self.client = client
        self.questions: set[asyncio.Task[bytes]] = set()

    def on_progress(self, params: bytes) -> None:
        self.deadline.extend()
        if self.client is not None:
            self.client.on_progress(params)

    async def put(self, method: str, params: bytes) -> bytes:
        """Ask the client. Raises `Declined`."""
        if self.client is None:
            raise Declined(jsonrpc.METHOD_NOT_FOUND, f"Nobody is there to answer {method}")
        self.deadline.hold()
        try:
            return await self.client.ask(method, params)
        finally:
            self.deadline.release()

    def end(self) -> None:
        self.deadline.end()
        for question in self.questions:
            question.cancel()


async def answer_to(identity: RpcId, method: str, params: bytes, running: Running | None) -> bytes:
    """The response to a server's request, as a message."""
    if method == "ping":
        return jsonrpc.encode_result(identity, b"{}")
    if method not in QUESTIONS:
        return jsonrpc.encode_error(identity, jsonrpc.METHOD_NOT_FOUND, f"Trunkline does not answer {method}")
    if running is None:
        reason = f"{method} cannot be passed on: it belongs to no call, or it is not clear to which"
        return jsonrpc.encode_error(identity, jsonrpc.INVALID_REQUEST, reason)
    try:
        return jsonrpc.encode_result(identity, await running.put(method, params))
    except Declined as declined:
        return jsonrpc.encode_error(identity, declined.code, declined.message)


class Deadline:
    """A time limit that progress moves on, up to a cap, and that can be brought forward to now."""

    def __init__(self, seconds: float, cap: float) -> None:
        now = asyncio.get_running_loop().time()
        self._started = now
        self._seconds = seconds
        self._latest = now + max(cap, seconds)
        self._held = 0
        self._over = False
        self.scope = asyncio.timeout_at(now + seconds)

    def extend(self) -> None:
        if not self._held:
            self._move(min(asyncio.get_running_loop().time() + self._seconds, self._latest))

    def hold(self) -> None:
        """A person is asked: only the cap counts until `release`."""
        self._held += 1
        self._move(self._latest)

    def release(self) -> None:
        self._held -= 1
        self.extend()

    def expire(self) -> None:
        self._move(asyncio.get_running_loop().time())

    def end(self) -> None:
        """What comes late changes nothing any more."""
        self._over = True

    def _move(self, when: float) -> None:
        if not self._over and not self.scope.expired():
            self.scope.reschedule(when)

    def waited(self) -> float:
        return asyncio.get_running_loop().time() - self._started
