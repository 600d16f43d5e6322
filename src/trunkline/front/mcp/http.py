"""`/mcp` over streamable HTTP: finds out which era a request is of, and carries it to its front.

Both eras share one address. A request that carries an envelope is of the newer one; one that begins or
names a session is of the older one; what is neither gets the answer that tells its sender what to do.
"""

from trunkline.core.gateway import Gateway
from trunkline.front.answers import JSON_TYPE, Answer, Receive, Scope, Send
from trunkline.front.mcp.audience import Audience
from trunkline.front.mcp.desk import Desk, Visitor
from trunkline.front.mcp.envelope import Posted, Routing, RpcFailure, identity_in, read
from trunkline.front.mcp.legacy import LegacyFront
from trunkline.front.mcp.modern import ModernFront, status_of
from trunkline.front.mcp.reply import Reply, pump
from trunkline.front.mcp.sessions import Session, Sessions
from trunkline.front.watch import Watch
from trunkline.model import Principal
from trunkline.wire import eras, jsonrpc

PATH = "/mcp"
_SERVERS = "/mcp/servers/"
_JSON, _EVENTS = b"application/json", b"text/event-stream"


def view_of(path: str) -> tuple[bool, str | None]:
    """Whether the path is an address of this front, and which server's if it is one server's."""
    if path == PATH:
        return True, None
    if path.startswith(_SERVERS):
        name = path[len(_SERVERS) :]
        return bool(name) and "/" not in name, name
    return False, None


class McpHttp:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        desk = Desk(gateway)
        self._audience = Audience(gateway)
        self._modern = ModernFront(gateway, desk, self._audience)
        self._legacy = LegacyFront(gateway, desk, self._audience)
        self.sessions = Sessions(
            most=gateway.settings.max_client_sessions,
            idle_seconds=gateway.settings.client_session_idle,
            on_closed=self._on_session_closed,
        )

    async def serve(
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
        """Raises `ClientGone`, and `TrunklineError` for what is refused at the door."""
        if view is not None:
            self._gateway.get_server(view)
        routing = Routing(scope["headers"])
        visitor = Visitor(principal, view, request_id)
        method = scope["method"]
        if method == "POST":
            await self._post(visitor, routing, receive, send, body, content_type)
        elif method == "GET" and routing.session is not None:
            await self._get(visitor, routing, receive, send)
        elif method == "DELETE" and routing.session is not None:
            session = self._session(visitor, routing.session)
            self.sessions.close(session)
            await _send(send, Answer(204, b""))
        else:
            failure = RpcFailure(jsonrpc.INVALID_REQUEST, "This address takes POST", status=405)
            await _refuse(send, None, failure, extra=((b"allow", b"POST"),))

    async def _post(
        self,
        visitor: Visitor,
        routing: Routing,
        receive: Receive,
        send: Send,
        body: bytes,
        content_type: bytes | None,
    ) -> None:
        identity: jsonrpc.RpcId | None = None
        try:
            if not _is_json(content_type):
                raise RpcFailure(
                    jsonrpc.INVALID_REQUEST,
                    "The body must be sent as Content-Type: application/json",
                    status=415,
                )
            if not routing.accepts(_JSON) and not routing.accepts(_EVENTS):
                raise RpcFailure(
                    jsonrpc.INVALID_REQUEST,
                    "The request must accept application/json and text/event-stream",
                    status=406,
                )
            posted = read(body)
            identity = posted.id if posted.method is not None else None
            streams = routing.accepts(_EVENTS)
            if eras.VERSION_KEY in posted.meta:
                reply = Reply(send, streams=streams)
                try:
                    await self._modern.serve(visitor, posted, routing, reply, receive)
                except BaseException:
                    reply.abandon()
                    raise
            else:
                await self._post_legacy(visitor, posted, routing, send, streams)
        except RpcFailure as failure:
            if identity is None:
                identity = identity_in(body)
            await _refuse(send, identity, failure)

    async def _post_legacy(
        self, visitor: Visitor, posted: Posted, routing: Routing, send: Send, streams: bool
    ) -> None:
        if posted.method == "initialize" and posted.id is not None and routing.session is None:
            await self._open(visitor, posted, posted.id, send)
            return
        if routing.session is None:
            raise _stray(routing, posted)
        if routing.version is not None and routing.version not in eras.LEGACY_VERSIONS:
            raise RpcFailure(
                jsonrpc.INVALID_REQUEST,
                f"Unsupported MCP-Protocol-Version in a session: {routing.version[:40]}",
                status=400,
            )
        session = self._session(visitor, routing.session)
        reply = Reply(send, streams=streams and posted.id is not None, make_channel=session.new_stream)
        try:
            await self._legacy.take(session, posted, reply, visitor.request_id)
        except BaseException:
            reply.abandon()
            raise

    async def _open(self, visitor: Visitor, posted: Posted, identity: jsonrpc.RpcId, send: Send) -> None:
        session, result = self._legacy.initialize(visitor.principal, visitor.view, posted)
        self.sessions.open(session)
        self._audience.add(session.ear)
        headers = ((b"mcp-session-id", session.id.encode()),)
        await _send(send, Answer(200, jsonrpc.encode_result(identity, result), headers))

    def _session(self, visitor: Visitor, session_id: str) -> Session:
        session = self.sessions.find(session_id, visitor.principal, visitor.view)
        if session is None:
            raise RpcFailure(
                jsonrpc.INVALID_REQUEST, "There is no such session (any more): initialize again", status=404
            )
        return session

    async def _get(self, visitor: Visitor, routing: Routing, receive: Receive, send: Send) -> None:
        """The stream of what belongs to no request, or another one taken up where it broke off."""
        try:
            session = self._session(visitor, routing.session or "")
            if not routing.accepts(_EVENTS):
                raise RpcFailure(
                    jsonrpc.INVALID_REQUEST, "This stream needs Accept: text/event-stream", status=406
                )
        except RpcFailure as failure:
            await _refuse(send, None, failure)
            return
        channel, after, first = session.general, None, b": listening\n\n"
        if routing.last_event_id:
            found = session.stream_of(routing.last_event_id.decode("latin-1"))
            if found is None or found[0].exhausted(found[1]):
                await _refuse(send, None, _nothing_more(), extra=((b"allow", b"POST"),))
                return
            channel, after = found
            first = channel.place(after)
        reader = object()
        channel.take_over(reader, after)
        try:
            with Watch(receive):
                await pump(send, channel, reader, first=first)
        finally:
            if channel.reader is reader:
                channel.take_over(None)

    def _on_session_closed(self, session: Session) -> None:
        self._gateway.in_background(self._audience.remove(session.ear))

    def stop(self) -> None:
        """No more questions and news: what waits for them ends. Calls under way are still answered."""
        self._modern.close()
        self._audience.close()

    def close(self) -> None:
        """All streams end, so that the server below can."""
        self.stop()
        self.sessions.close_all()


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


def _is_json(content_type: bytes | None) -> bool:
    return content_type is not None and content_type.partition(b";")[0].strip().lower() == _JSON


async def _refuse(
    send: Send,
    identity: jsonrpc.RpcId | None,
    failure: RpcFailure,
    extra: tuple[tuple[bytes, bytes], ...] = (),
) -> None:
    headers = list(extra)
    if failure.retry_after is not None:
        headers.append((b"retry-after", b"%d" % failure.retry_after))
    body = jsonrpc.encode_error(identity, failure.code, failure.message, failure.data)
    await _send(send, Answer(status_of(failure), body, tuple(headers)))


async def _send(send: Send, answer: Answer) -> None:
    headers = [*answer.headers, (b"content-length", b"%d" % len(answer.body))]
    if answer.body:
        headers.append(JSON_TYPE)
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})
