"""One message over to the gateway and what comes back from it, as the client on stdio is to hear it.

Whatever the gateway or the way to it says, a request ends in one answer: this turns refusals without
JSON-RPC, lost connections and streams that break off into errors a user can read. It knows no era.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from trunkline.cli.stdio.home import Home
from trunkline.errors import Lost, NotSent
from trunkline.front.mcp.channel import one_line
from trunkline.upstream.passage import Hear, Passage, Passed
from trunkline.wire import jsonrpc
from trunkline.wire.jsonrpc import RpcId

log = logging.getLogger(__name__)

Say = Callable[[bytes], Awaitable[None]]
"""Takes one message to the client; returns when it is written."""

UNKNOWN_EFFECT = "Whether it had an effect is not known"


class Link:
    def __init__(self, home: Home, say: Say) -> None:
        self._home = home
        self._say = say

    async def say(self, message: bytes) -> None:
        await self._say(one_line(message))

    async def post(self, message: bytes, headers: Mapping[str, str], hear: Hear) -> Passed:
        """Sent once; or a second time, if it certainly did not leave. Raises `UpstreamError`."""
        try:
            return await self._over(await self._home.passage(), message, headers, hear)
        except NotSent:
            return await self._over(await self._home.passage(), message, headers, hear)

    async def _over(self, passage: Passage, message: bytes, headers: Mapping[str, str], hear: Hear) -> Passed:
        try:
            return await passage.post(message, headers, hear)
        except (NotSent, Lost):
            self._home.doubt(passage)
            raise

    async def ask(
        self, identity: RpcId, message: bytes, headers: Mapping[str, str]
    ) -> tuple[Passed, bytes | None]:
        """A request: its refusal or plain answer is returned, what comes on a stream is said at once.

        Raises `UpstreamError`, also when the stream ends before the answer.
        """
        answered = False

        async def hear(data: bytes, _: str | None) -> None:
            nonlocal answered
            try:
                told = jsonrpc.decode(data)
            except jsonrpc.Malformed as error:
                log.warning("The gateway sent an event that is %s", error)
                return
            await self.say(data)
            answered = answered or isinstance(told, jsonrpc.Response | jsonrpc.ErrorResponse)

        passed = await self.post(message, headers, hear)
        if passed.status == 200 and not passed.body:
            if not answered:
                raise Lost("the gateway ended the stream before the answer")
            return passed, None
        return passed, answer_in(identity, passed)

    async def listen(self, headers: Mapping[str, str], hear: Hear) -> Passed:
        """Raises `UpstreamError`."""
        passage = await self._home.passage()
        try:
            return await passage.listen(headers, hear)
        except (NotSent, Lost):
            self._home.doubt(passage)
            raise

    async def leave(self, headers: Mapping[str, str]) -> None:
        """Raises `UpstreamError`."""
        await (await self._home.passage()).leave(headers)


async def unheard(data: bytes, event_id: str | None) -> None:
    """For a POST whose stream says nothing that matters."""


def answer_in(identity: RpcId, passed: Passed) -> bytes:
    """The message as it came, if it is the answer; else an error that says what came instead."""
    try:
        message = jsonrpc.decode(passed.body)
    except jsonrpc.Malformed:
        message = None
    if isinstance(message, jsonrpc.Response | jsonrpc.ErrorResponse):
        if message.id == identity:
            return passed.body
        if isinstance(message, jsonrpc.ErrorResponse):
            return jsonrpc.encode_error(identity, message.code, message.message, message.data)
    return jsonrpc.encode_error(identity, jsonrpc.INTERNAL_ERROR, *_refusal(passed))


def _refusal(passed: Passed) -> tuple[str, bytes | None]:
    """Of the door, which speaks no JSON-RPC: who may come in, and how much at a time."""
    try:
        told: Any = msgspec.json.decode(passed.body)
    except (msgspec.DecodeError, RecursionError):
        told = None
    fields = told if isinstance(told, dict) else {}
    detail = fields.get("detail")
    if isinstance(detail, str):
        data = msgspec.json.encode({"error_code": fields.get("error_code"), "status": passed.status})
        return detail, data
    return f"The gateway answered with status {passed.status} and no message", None
