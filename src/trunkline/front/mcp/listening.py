"""Subscriptions of the newer era: one request whose stream tells of changes until somebody ends it.

It finds out what its client may hear of (lists, resources, tasks), says so first, and says nothing that was
not asked for. Who notices that something changed is `audience.py`, for tasks `core/task_hearing.py`.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from trunkline.core.gateway import Gateway
from trunkline.front.mcp import notices
from trunkline.front.mcp.audience import Audience, Ear
from trunkline.front.mcp.channel import MOST_KEPT
from trunkline.front.mcp.desk import Visitor, may_call, require_tasks
from trunkline.front.mcp.envelope import Posted, RpcFailure, object_of
from trunkline.front.mcp.reply import Answering
from trunkline.model import Counterpart
from trunkline.wire import eras, jsonrpc, tasks

_ACKNOWLEDGED = "notifications/subscriptions/acknowledged"


class _Stream:
    """What comes before its first message, which says what will be heard of, waits for that."""

    def __init__(self, say: Callable[[bytes], None]) -> None:
        self._say = say
        self._early: deque[bytes] = deque(maxlen=MOST_KEPT)
        self._begun = False

    def say(self, message: bytes) -> None:
        if self._begun:
            self._say(message)
        else:
            self._early.append(message)

    def begin(self, first: bytes) -> None:
        self._begun = True
        for message in (first, *self._early):
            self._say(message)
        self._early.clear()


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What a client wants to hear of, as far as it may."""

    kinds: set[str]
    uris: list[str]
    task_ids: list[str]


def _wanted(posted: Posted, visitor: Visitor, client: Counterpart) -> _Wanted:
    """Raises `RpcFailure`."""
    named = object_of(posted.params.get("notifications"), "notifications")
    task_ids = _texts(named.get("taskIds"))
    if task_ids:
        require_tasks(client)
    return _Wanted(
        {kind for kind, name in notices.LISTEN_NAMES.items() if named.get(name) is True},
        _texts(named.get("resourceSubscriptions")) if may_call(visitor.principal) else [],
        task_ids,
    )


class Listening:
    def __init__(self, gateway: Gateway, audience: Audience) -> None:
        self._gateway = gateway
        self._audience = audience

    async def serve(self, visitor: Visitor, posted: Posted, client: Counterpart, reply: Answering) -> bytes:
        """The result, when the stream ends on our side. Raises `RpcFailure`."""
        if not reply.streams:
            raise RpcFailure(jsonrpc.INVALID_REQUEST, "subscriptions/listen needs Accept: text/event-stream")
        wanted = _wanted(posted, visitor, client)
        identity = msgspec.json.encode(posted.id)
        mark = b'"_meta":{"%b":%b}' % (eras.SUBSCRIPTION_KEY.encode(), identity)
        stream = _Stream(reply.say)
        limit = self._gateway.settings.result_limit
        ear = Ear(
            visitor.view,
            wanted.kinds,
            lambda method, members: stream.say(notices.marked(method, members, mark)),
        )
        hearing = self._gateway.tasks.heard(
            wanted.task_ids,
            visitor.principal,
            self._gateway.get_server(visitor.view).id if visitor.view is not None else None,
            client,
            lambda told: stream.say(notices.of_task(tasks.within(told, limit), identity)),
        )
        async with self._audience.listening(ear), hearing as heard:
            uris = [uri for uri in wanted.uris if await self._audience.subscribe(ear, uri)]
            honoured = {
                **{notices.LISTEN_NAMES[kind]: True for kind in wanted.kinds},
                **({"resourceSubscriptions": uris} if uris else {}),
                **({"taskIds": sorted(heard.task_ids)} if heard.task_ids else {}),
            }
            members = b'"notifications":' + msgspec.json.encode(honoured)
            stream.begin(notices.marked(_ACKNOWLEDGED, members, mark))
            await self._end(heard.lost if heard.task_ids else None)
        return b'{"resultType":"complete",%b}' % mark

    async def _end(self, lost: asyncio.Event | None) -> None:
        """Returns when the gateway stops, or a task is lost: then its client listens anew, and asks."""
        if lost is None:
            await self._audience.wait_closed()
            return
        either = {asyncio.ensure_future(self._audience.wait_closed()), asyncio.ensure_future(lost.wait())}
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in either:
                each.cancel()


def _texts(value: object) -> list[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []
