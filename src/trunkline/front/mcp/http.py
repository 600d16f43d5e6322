"""`/mcp` over streamable HTTP: finds out which era a request is of, and carries it to its front.

Both eras share one address. A request that carries an envelope is of the newer one; one that begins or
names a session is of the older one; what is neither gets the answer that tells its sender what to do.
"""

from trunkline.front.answers import Answer
from trunkline.front.exchange import Exchange
from trunkline.front.mcp.desk import Visitor
from trunkline.front.mcp.envelope import Posted, Routing, RpcFailure, identity_in, read, require_json
from trunkline.front.mcp.modern import ModernFront
from trunkline.front.mcp.reception import Reception
from trunkline.front.mcp.reply import Reply, pump, refusal
from trunkline.model import Principal
from trunkline.wire import eras, jsonrpc

PATH = "/mcp"
_JSON, _EVENTS = b"application/json", b"text/event-stream"


class McpHttp:
    def __init__(self, reception: Reception) -> None:
        self._gateway = reception.gateway
        self._reception = reception
        self._modern = ModernFront(reception.gateway, reception.desk, reception.audience)

    async def serve(self, exchange: Exchange, principal: Principal, view: str | None) -> None:
        """Raises `ClientGone`, and `TrunklineError` for what is refused at the door."""
        if view is not None:
            self._gateway.get_server(view)
        routing = Routing(exchange.headers)
        visitor = Visitor(principal, view, exchange.request_id.decode())
        method = exchange.method
        if method == "POST":
            await self._post(visitor, routing, exchange)
        elif method == "GET" and routing.session is not None:
            await self._get(visitor, routing, exchange)
        elif method == "DELETE" and routing.session is not None:
            self._delete(visitor, routing.session, exchange)
        else:
            failure = RpcFailure(jsonrpc.INVALID_REQUEST, "This address takes POST", status=405)
            exchange.reply(refusal(None, failure, extra=((b"allow", b"POST"),)))

    def _delete(self, visitor: Visitor, session_id: str, exchange: Exchange) -> None:
        try:
            self._reception.sessions.close(self._reception.find(visitor, session_id))
        except RpcFailure as failure:
            exchange.reply(refusal(None, failure))
        else:
            exchange.reply(Answer(204, b""))

    async def _post(self, visitor: Visitor, routing: Routing, exchange: Exchange) -> None:
        identity: jsonrpc.RpcId | None = None
        try:
            require_json(exchange.headers.get(b"content-type"))
            if not routing.accepts(_JSON) and not routing.accepts(_EVENTS):
                raise RpcFailure(
                    jsonrpc.INVALID_REQUEST,
                    "The request must accept application/json and text/event-stream",
                    status=406,
                )
            posted = read(exchange.body)
            identity = posted.id if posted.method is not None else None
            streams = routing.accepts(_EVENTS)
            if eras.VERSION_KEY in posted.meta:
                reply = Reply(exchange, streams=streams)
                try:
                    await self._modern.serve(visitor, posted, routing, reply, exchange)
                except BaseException:
                    reply.abandon()
                    raise
            else:
                await self._post_legacy(visitor, posted, routing, exchange, streams)
        except RpcFailure as failure:
            if identity is None:
                identity = identity_in(exchange.body)
            exchange.reply(refusal(identity, failure))

    async def _post_legacy(
        self, visitor: Visitor, posted: Posted, routing: Routing, exchange: Exchange, streams: bool
    ) -> None:
        if posted.method == "initialize" and posted.id is not None and routing.session is None:
            self._open(visitor, posted, posted.id, exchange)
            return
        if routing.session is None:
            raise _stray(routing, posted)
        if routing.version is not None and routing.version not in eras.LEGACY_VERSIONS:
            raise RpcFailure(
                jsonrpc.INVALID_REQUEST,
                f"Unsupported MCP-Protocol-Version in a session: {routing.version[:40]}",
                status=400,
            )
        session = self._reception.find(visitor, routing.session)
        reply = Reply(exchange, streams=streams and posted.id is not None, make_channel=session.new_stream)
        try:
            await self._reception.legacy.take(session, posted, reply, visitor.request_id)
        except BaseException:
            reply.abandon()
            raise

    def _open(self, visitor: Visitor, posted: Posted, identity: jsonrpc.RpcId, exchange: Exchange) -> None:
        session = self._reception.new_session(visitor.principal, visitor.view)
        result = self._reception.legacy.initialize(session, posted)
        self._reception.open(session)
        headers = ((b"mcp-session-id", session.id.encode()),)
        exchange.reply(Answer(200, jsonrpc.encode_result(identity, result), headers))

    async def _get(self, visitor: Visitor, routing: Routing, exchange: Exchange) -> None:
        """The stream of what belongs to no request, or another one taken up where it broke off."""
        try:
            session = self._reception.find(visitor, routing.session or "")
            if not routing.accepts(_EVENTS):
                raise RpcFailure(
                    jsonrpc.INVALID_REQUEST, "This stream needs Accept: text/event-stream", status=406
                )
        except RpcFailure as failure:
            exchange.reply(refusal(None, failure))
            return
        channel, after, first = session.general, None, b": listening\n\n"
        if routing.last_event_id:
            found = session.stream_of(routing.last_event_id.decode("latin-1"))
            if found is None or found[0].exhausted(found[1]):
                exchange.reply(refusal(None, _nothing_more(), extra=((b"allow", b"POST"),)))
                return
            channel, after = found
            first = channel.place(after)
        reader = object()
        channel.take_over(reader, after)
        try:
            with exchange.watched():
                await pump(exchange, channel, reader, first=first)
        finally:
            if channel.reader is reader:
                channel.take_over(None)

    def close(self) -> None:
        self._modern.close()


def _stray(routing: Routing, posted: Posted) -> RpcFailure:
    """What belongs to neither era: its sender is told what would make it belong."""
    if posted.method is None:
        return RpcFailure(jsonrpc.INVALID_REQUEST, "A response belongs to a session, and this names none")
    if routing.version is not None and routing.version not in eras.LEGACY_VERSIONS:
        return RpcFailure(
            jsonrpc.INVALID_PARAMS,
            f"_meta has no {eras.VERSION_KEY}, which MCP-Protocol-Version {routing.version[:40]} asks for",
            status=400,
        )
    if routing.session is None and posted.method == "initialize":
        return RpcFailure(jsonrpc.INVALID_REQUEST, "initialize is a request and has an id", status=400)
    return RpcFailure(
        jsonrpc.INVALID_REQUEST,
        "No session: begin with initialize and send the Mcp-Session-Id you are given, or put the envelope of "
        f"{eras.MODERN} into params._meta",
        status=400,
    )


def _nothing_more() -> RpcFailure:
    """With this status SDKs stop coming back; with an empty stream they would come back for ever."""
    return RpcFailure(jsonrpc.INVALID_REQUEST, "Nothing more will come on this stream", status=405)
