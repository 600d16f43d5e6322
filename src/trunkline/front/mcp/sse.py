"""HTTP+SSE, the transport of 2024-11-05: one stream of events down, and a POST for each message up.

The stream is the connection. Its first event says where to post; every answer, question and notification
comes on it; when it ends the session ends, and calls in flight are cancelled, which a client of streamable
HTTP would have to ask for. What a message means is `legacy.py`'s.
"""

import asyncio
import contextlib
import logging

from trunkline.front.answers import Answer
from trunkline.front.exchange import ClientGone, Exchange
from trunkline.front.mcp.channel import Channel
from trunkline.front.mcp.desk import Visitor
from trunkline.front.mcp.envelope import Posted, Routing, RpcFailure, identity_in, read, require_json
from trunkline.front.mcp.reception import Reception, address_of
from trunkline.front.mcp.reply import pump, refusal
from trunkline.front.mcp.sessions import Session
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

    async def stream(self, exchange: Exchange, principal: Principal, view: str | None) -> None:
        """A session, from its first event to its end. Raises `ServerNotFound`."""
        if view is not None:
            self._reception.gateway.get_server(view)
        routing = Routing(exchange.headers)
        if exchange.method != "GET":
            failure = RpcFailure(jsonrpc.INVALID_REQUEST, "This address takes GET", status=405)
            exchange.reply(refusal(None, failure, extra=((b"allow", b"GET"),)))
            return
        if not routing.accepts(b"text/event-stream"):
            failure = RpcFailure(
                jsonrpc.INVALID_REQUEST, "This stream needs Accept: text/event-stream", status=406
            )
            exchange.reply(refusal(None, failure))
            return
        session = self._reception.new_session(principal, view, Channel())
        working = self._working[session.id] = set()
        session.general.take_over(session)
        self._reception.open(session)
        post_to = address_of(MESSAGES, view)
        first = b"event: endpoint\ndata: %b?%b%b\n\n" % (post_to.encode(), _QUERY, session.id.encode())
        try:
            with exchange.watched(), contextlib.suppress(ClientGone):
                await pump(exchange, session.general, session, first=first)
        finally:
            self._reception.sessions.close(session)
            del self._working[session.id]
            for task in working:
                task.cancel()

    async def take(self, exchange: Exchange, principal: Principal, view: str | None) -> None:
        """One message; 202 says no more than that it came."""
        try:
            if exchange.method != "POST":
                raise RpcFailure(jsonrpc.INVALID_REQUEST, "This address takes POST", status=405)
            require_json(exchange.headers.get(b"content-type"))
            visitor = Visitor(principal, view, exchange.request_id.decode())
            session = self._reception.find(visitor, _session_id(exchange))
            working = self._working.get(session.id)
            if working is None:
                raise RpcFailure(jsonrpc.INVALID_REQUEST, "This session is spoken to at /mcp", status=404)
            if len(working) >= MOST_AT_ONCE:
                busy = RpcFailure(jsonrpc.INTERNAL_ERROR, "Too many requests at once", status=503)
                busy.retry_after = 1
                raise busy
            posted = read(exchange.body)
        except RpcFailure as failure:
            extra = ((b"allow", b"POST"),) if failure.status == 405 else ()
            exchange.reply(refusal(identity_in(exchange.body), failure, extra))
            return
        task = asyncio.create_task(self._answer(session, posted, exchange.request_id.decode()))
        working.add(task)
        task.add_done_callback(working.discard)
        exchange.reply(Answer(202, b""))

    async def _answer(self, session: Session, posted: Posted, request_id: str) -> None:
        reply = StreamReply(session.general)
        try:
            await self._reception.legacy.take(session, posted, reply, request_id)
        except Exception:
            log.exception("Unexpected error at %s", posted.method)
            if posted.id is not None and posted.method is not None:
                said = "Something unexpected went wrong in the gateway; its log says more"
                await reply.finish(jsonrpc.encode_error(posted.id, jsonrpc.INTERNAL_ERROR, said))


def _session_id(exchange: Exchange) -> str:
    found = next((part for part in exchange.query.split(b"&") if part.startswith(_QUERY)), b"")
    return found[len(_QUERY) :].decode("latin-1")
