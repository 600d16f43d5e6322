"""The older era: a client opens a session, and is asked and told things on its streams.

What a message of such a session means is here, whatever carried it; `http.py` and `sse.py` carry. A client
that goes away takes nothing back: only `notifications/cancelled` ends a call.
"""

import asyncio
import secrets

import msgspec

from trunkline.core.gateway import Gateway
from trunkline.errors import Declined
from trunkline.front.mcp import notices
from trunkline.front.mcp.audience import Audience
from trunkline.front.mcp.desk import Desk, Visitor, require_call, resource_not_found
from trunkline.front.mcp.envelope import Posted, RpcFailure, log_level, object_of
from trunkline.front.mcp.reply import Answering
from trunkline.front.mcp.sessions import Session
from trunkline.wire import eras, jsonrpc, translate

_FORMS_SINCE = "2025-06-18"
_URLS_SINCE = "2025-11-25"


class LegacyClient:
    """The client of a session behind one of its requests; the far end of `Counterpart`."""

    modern = False

    def __init__(self, session: Session, posted: Posted, reply: Answering) -> None:
        self._session = session
        self._reply = reply
        self._token = posted.progress_token
        travelling = {key: bytes(raw) for key, raw in posted.meta.items() if key != "progressToken"}
        self.meta = translate.joined(travelling)[1:-1] if travelling else b""
        self.capabilities = session.capabilities if reply.streams else b"{}"
        self.info = session.info
        self.log_level = session.log_level or "info"

    def on_progress(self, params: bytes) -> None:
        if self._token is not None:
            self._reply.say(notices.progress(params, self._token))

    def on_log(self, params: bytes) -> None:
        level = self._session.log_level
        if level is None or not eras.more_talkative(eras.log_level_of(params), level):
            self._reply.say(jsonrpc.encode_notification("notifications/message", params))

    async def ask(self, method: str, params: bytes) -> bytes:
        session = self._session
        able = self._reply.streams and translate.can_answer(session.declared, method, params)
        if method == "elicitation/create":
            part = translate.needs_of(method, params)[1]
            able = able and session.version >= (_URLS_SINCE if part == "url" else _FORMS_SINCE)
        if not able:
            raise Declined(jsonrpc.METHOD_NOT_FOUND, f"The client does not support {method}")
        put = translate.question_for_legacy(method, params, secrets.token_urlsafe(12))
        if method == "elicitation/create" and (visit := eras.elicitation_id(put)) is not None:
            session.ear.expect(visit)
        return await session.ask(method, put, self._reply.say)


class LegacyFront:
    def __init__(self, gateway: Gateway, desk: Desk, audience: Audience) -> None:
        self._gateway = gateway
        self._desk = desk
        self._audience = audience

    def initialize(self, session: Session, posted: Posted) -> bytes:
        """The client introduces itself; the result it is answered with."""
        if session.introduced:
            raise RpcFailure(jsonrpc.INVALID_REQUEST, "This session is initialized already")
        wanted = posted.text("protocolVersion")
        version = wanted if wanted in eras.LEGACY_VERSIONS else eras.LATEST_LEGACY
        declared = object_of(posted.params.get("capabilities"), "capabilities")
        session.introduce(version, declared, bytes(posted.params.get("clientInfo", b"")))
        shown = notices.introduction(self._gateway, session.view)
        result = {
            "protocolVersion": version,
            "capabilities": {
                name: value for name, value in shown.capabilities.items() if name != "extensions"
            },
            "serverInfo": eras.CLIENT_INFO,
            **({"instructions": shown.instructions} if shown.instructions else {}),
        }
        return msgspec.json.encode(result)

    async def take(self, session: Session, posted: Posted, reply: Answering, request_id: str) -> None:
        """One message of a session's. A request is answered on `reply`. Raises `RpcFailure`."""
        if posted.method is None:
            session.on_response(posted)
        elif posted.id is None:
            self._on_notification(session, posted)
        else:
            await self._answer(session, posted, posted.id, reply, request_id)
            return
        await reply.finish(b"", 202)

    async def _answer(
        self, session: Session, posted: Posted, identity: jsonrpc.RpcId, reply: Answering, request_id: str
    ) -> None:
        task = asyncio.current_task()
        if task is None:
            raise AssertionError("a request is answered by a task")
        if not session.under_way.begin(identity, task):
            await reply.finish(None)
            return
        message: bytes | None
        try:
            result = await self._result(session, posted, reply, request_id)
            message = jsonrpc.encode_result(identity, result)
        except RpcFailure as failure:
            if failure.code == translate.URL_ELICITATION_REQUIRED:
                for visit in translate.visits_of_error(failure.data or b""):
                    session.ear.expect(visit)
            if failure.status is not None and not reply.streaming:
                raise
            message = jsonrpc.encode_error(identity, failure.code, failure.message, failure.data)
        except asyncio.CancelledError:
            if not session.under_way.was_withdrawn(task):
                raise
            task.uncancel()
            message = None
        finally:
            session.under_way.end(identity, task)
        await reply.finish(message)

    async def _result(self, session: Session, posted: Posted, reply: Answering, request_id: str) -> bytes:
        visitor = Visitor(session.principal, session.view, request_id)
        match posted.method:
            case "initialize":
                return self.initialize(session, posted)
            case "ping":
                return b"{}"
            case _ if not session.introduced:
                raise RpcFailure(jsonrpc.INVALID_REQUEST, "A session begins with initialize")
            case "logging/setLevel":
                session.log_level = log_level(posted.text("level"))
                return b"{}"
            case "resources/subscribe":
                uri = posted.text("uri")
                require_call(session.principal, "resources/subscribe")
                if not await self._audience.subscribe(session.ear, uri):
                    raise resource_not_found(uri, modern=False)
                return b"{}"
            case "resources/unsubscribe":
                await self._audience.unsubscribe(session.ear, posted.text("uri"))
                return b"{}"
        return await self._desk.answer(visitor, posted, LegacyClient(session, posted, reply))

    def _on_notification(self, session: Session, posted: Posted) -> None:
        if posted.method == "notifications/cancelled":
            identity = eras.cancelled_id(translate.joined({k: bytes(v) for k, v in posted.params.items()}))
            if identity is not None:
                session.under_way.withdraw(identity)
