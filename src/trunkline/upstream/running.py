"""One request under way on a connection: what its server says in its course, and who is to hear it.

Progress moves the deadline on and goes to the client, questions are put to the client, and while one is
open the deadline waits for a person. `connection.py` finds out which request is meant; a wire never does.
"""

import asyncio
from collections.abc import Callable

from trunkline.errors import Declined
from trunkline.model import Counterpart
from trunkline.upstream.deadlines import Deadline
from trunkline.wire import jsonrpc
from trunkline.wire.jsonrpc import RpcId

QUESTIONS = frozenset({"elicitation/create", "sampling/createMessage", "roots/list"})

Hear = Callable[[str, bytes], None]
"""Takes a notification's method and params; returns at once."""


class Running:
    __slots__ = ("client", "deadline", "hear", "questions")

    def __init__(self, deadline: Deadline, client: Counterpart | None, hear: Hear | None = None) -> None:
        self.deadline = deadline
        self.client = client
        self.hear = hear
        """Where it is a subscription: who hears what comes of it."""
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
