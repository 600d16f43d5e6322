"""HTTP+SSE, the transport of 2024-11-05: one stream of events down, and a POST for each message up.

The stream is the connection. Its first event says where to post; every answer, question and notification
comes on it; when it ends the session ends, and calls in flight are cancelled, which a client of streamable
HTTP would have to ask for. What a message means is `legacy.py`'s.
"""

import asyncio
import contextlib
import logging

from trunkline.front.answers import Answer, Receive, Scope, Send
from trunkline.front.bodies import ClientGone
from trunkline.front.mcp.channel import Channel
from trunkline.front.mcp.desk import Visitor
from trunkline.front.mcp.envelope import Posted, Routing, RpcFailure, identity_in, read, require_json
from trunkline.front.mcp.reception import Reception, address_of
from trunkline.front.mcp.reply import pump, refuse, send_whole
from trunkline.front.mcp.sessions import Session
from trunkline.front.watch import Watch
from trunkline.model import Principal
from trunkline.wire import jsonrpc

log = logging.getLogger(__name__)

STREAM = "/sse"
MESSAGES = "/messages"
MOST_AT_ONCE = 200
"""Requests of one session that may be under way; a POST is answered before its request is."""

_QUERY = b"session_id="


class StreamReply:
    """`Answering` on the one stream of a session."""

    streams = True
    streaming = True

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def say(self, message: bytes) -> None:
        self._channel.put(message)

    async def finish(self, message: bytes | None, status: int = 200) -> None:
        """`status` was the POST's, which is answered."""
        if message:
            await self._channel.room()
            self._channel.put(message, owed=True)

    def abandon(self) -> None:
        """The stream has ended, or will go on for others."""


class McpSse:
    def __init__(self, reception: Reception) -> None:
        self._reception = reception
        self._working: dict[str, set[asyncio.Task[None]]] = {}
        """Session id → what its POSTs began."""

    async def stream(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        *,
        principal: Principal,
        view: str | None,
        body: bytes,
        content_type: bytes | None,
        request_id: str,
    ) -> None:
        """A session, from its first event to its end. Raises `ServerNotFound`."""
        if view is not None:
            self._reception.gateway.get_server(view)
        routing = Routing(scope["headers"])
        if scope["method"] != "GET":
            failure = RpcFailure(jsonrpc.INVALID_REQUEST, "This address takes GET", status=405)
            await refuse(send, None, failure, extra=((b"allow", b"GET"),))
            return
        if not routing.accepts(b"text/event-stream"):
            failure = RpcFailure(
                jsonrpc.INVALID_REQUEST, "This stream needs Accept: text/event-stream", status=406
            )
            await refuse(send, None, failure)
            return
        session = Session(principal, view, Channel())
        working = self._working[session.id] = set()
        session.general.take_over(session)
        self._reception.open(session)
        post_to = scope.get("root_path", "") + address_of(MESSAGES, view)
        first = b"event: endpoint\ndata: %b?%b%b\n\n" % (post_to.encode(), _QUERY, session.id.encode())
        try:
            with Watch(receive), contextlib.suppress(ClientGone):
                await pump(send, session.general, session, first=first)
        finally:
            self._reception.sessions.close(session)
            del self._working[session.id]
            for task in working:
                task.cancel()

    async def take(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        *,
        principal: Principal,
        view: str | None,
        body: bytes,
        content_type: bytes | None,
        request_id: str,
    ) -> None:
        """One message; 202 says no more than that it came."""
        try:
            if scope["method"] != "POST":
                raise RpcFailure(jsonrpc.INVALID_REQUEST, "This address takes POST", status=405)
            require_json(content_type)
            session = self._reception.find(Visitor(principal, view, request_id), _session_id(scope))
            working = self._working.get(session.id)
            if working is None:
                raise RpcFailure(jsonrpc.INVALID_REQUEST, "This session is spoken to at /mcp", status=404)
            if len(working) >= MOST_AT_ONCE:
                busy = RpcFailure(jsonrpc.INTERNAL_ERROR, "Too many requests at once", status=503)
                busy.retry_after = 1
                raise busy
            posted = read(body)
        except RpcFailure as failure:
            extra = ((b"allow", b"POST"),) if failure.status == 405 else ()
            await refuse(send, identity_in(body), failure, extra)
            return
        task = asyncio.create_task(self._answer(session, posted, request_id))
        working.add(task)
        task.add_done_callback(working.discard)
        await send_whole(send, Answer(202, b""))

    async def _answer(self, session: Session, posted: Posted, request_id: str) -> None:
        reply = StreamReply(session.general)
        try:
            await self._reception.legacy.take(session, posted, reply, request_id)
        except Exception:
            log.exception("Unexpected error at %s", posted.method)
            if posted.id is not None and posted.method is not None:
                said = "Something unexpected went wrong in the gateway; its log says more"
                await reply.finish(jsonrpc.encode_error(posted.id, jsonrpc.INTERNAL_ERROR, said))


def _session_id(scope: Scope) -> str:
    query: bytes = scope.get("query_string", b"")
    found = next((part for part in query.split(b"&") if part.startswith(_QUERY)), b"")
    return found[len(_QUERY) :].decode("latin-1")
