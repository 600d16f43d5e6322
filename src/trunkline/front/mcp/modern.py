"""The newer era over HTTP: every request stands for itself, and any process may answer it.

A request carries its own envelope, mirrored in headers; a closed stream takes it back. A server that asks
in the middle of a call makes the call wait in `parking.py`, which is the only state there is.
"""

import asyncio
import contextlib
from typing import Any

import msgspec

from trunkline.core.gateway import Gateway
from trunkline.errors import Declined
from trunkline.front.exchange import Exchange
from trunkline.front.mcp import notices
from trunkline.front.mcp.audience import Audience
from trunkline.front.mcp.desk import Desk, Visitor
from trunkline.front.mcp.envelope import (
    Posted,
    Routing,
    RpcFailure,
    check_mirrored,
    check_parameters,
    log_level,
    object_of,
    text_of,
)
from trunkline.front.mcp.listening import Listening
from trunkline.front.mcp.parking import PREFIX, Parked, Parking, digest_of
from trunkline.front.mcp.reply import Reply
from trunkline.wire import eras, jsonrpc, translate

MAY_ASK = frozenset({"tools/call", "prompts/get", "resources/read"})
_CONNECTION_KEYS = frozenset(
    {eras.VERSION_KEY, eras.CLIENT_INFO_KEY, eras.CAPABILITIES_KEY, eras.LOG_LEVEL_KEY, "progressToken"}
)
_EMPTY_OBJECT = b"{}"
_RESPONSES = "inputResponses"
_STATE = "requestState"


class ModernClient:
    """The client behind one request; the far end of `Counterpart`."""

    modern = True

    def __init__(self, posted: Posted, reply: Reply) -> None:
        meta = posted.meta
        if eras.CAPABILITIES_KEY not in meta:
            raise RpcFailure(jsonrpc.INVALID_PARAMS, f"_meta has no {eras.CAPABILITIES_KEY}")
        self.capabilities = bytes(meta[eras.CAPABILITIES_KEY])
        if self.capabilities[:1] != b"{":
            raise RpcFailure(jsonrpc.INVALID_PARAMS, f"{eras.CAPABILITIES_KEY} must be an object")
        self.info = bytes(meta.get(eras.CLIENT_INFO_KEY, b""))
        self.log_level: str | None = None
        if eras.LOG_LEVEL_KEY in meta:
            self.log_level = log_level(text_of(meta[eras.LOG_LEVEL_KEY], eras.LOG_LEVEL_KEY))
        travelling = {key: bytes(raw) for key, raw in meta.items() if key not in _CONNECTION_KEYS}
        self.meta = translate.joined(travelling)[1:-1] if travelling else b""
        self.parked: Parked | None = None
        self.lacked: bytes | None = None
        """What it would have had to declare to be asked what a server wanted to ask."""
        self._token = posted.progress_token
        self._reply = reply
        self._declared: dict[str, Any] | None = None

    @property
    def declared(self) -> dict[str, Any]:
        if self._declared is None:
            raw = msgspec.Raw(self.capabilities)
            self._declared = object_of(raw, eras.CAPABILITIES_KEY)
        return self._declared

    @property
    def may_be_asked(self) -> bool:
        return self.capabilities != _EMPTY_OBJECT and any(name in self.declared for name in eras.RELAYED)

    def move_to(self, later: "ModernClient") -> None:
        """Its request was repeated: what is said from now on belongs to the repeated one."""
        self._token = later._token
        self._reply = later._reply
        self.log_level = later.log_level

    def on_progress(self, params: bytes) -> None:
        if self._token is not None:
            self._reply.say(notices.progress(params, self._token))

    def on_log(self, params: bytes) -> None:
        level = self.log_level
        if level is not None and not eras.more_talkative(eras.log_level_of(params), level):
            self._reply.say(jsonrpc.encode_notification("notifications/message", params))

    async def ask(self, method: str, params: bytes) -> bytes:
        if self.parked is None or not translate.can_answer(self.declared, method, params):
            self.lacked = translate.required_capabilities(method, params)
            raise Declined(jsonrpc.INVALID_REQUEST, f"The client does not support {method}")
        return await self.parked.ask(method, translate.question_for_modern(method, params))


class ModernFront:
    def __init__(self, gateway: Gateway, desk: Desk, audience: Audience) -> None:
        self._gateway = gateway
        self._desk = desk
        self._listening = Listening(gateway, audience)
        self._parking = Parking(gateway.settings.question_timeout)

    async def serve(
        self, visitor: Visitor, posted: Posted, routing: Routing, reply: Reply, exchange: Exchange
    ) -> None:
        """Answers one POST. Raises `RpcFailure` before anything was answered, and `ClientGone`."""
        check_mirrored(posted, routing)
        if posted.id is None or posted.method is None:
            await reply.finish(b"", 202)
            return
        client = ModernClient(posted, reply)
        try:
            with exchange.watched():
                message = jsonrpc.encode_result(
                    posted.id, await self._answer(visitor, posted, routing, client, reply)
                )
        except RpcFailure as failure:
            if not reply.streaming:
                raise
            message = jsonrpc.encode_error(posted.id, failure.code, failure.message, failure.data)
        await reply.finish(message)

    async def _answer(
        self, visitor: Visitor, posted: Posted, routing: Routing, client: ModernClient, reply: Reply
    ) -> bytes:
        method = posted.method or ""
        if method == "server/discover":
            return self._discover(visitor)
        if method == "subscriptions/listen":
            return await self._listening.serve(visitor, posted, client, reply)
        if method == "tools/call":
            self._check_parameters(visitor, posted, routing)
        if method in MAY_ASK:
            state = posted.params.get(_STATE)
            if state is not None and (token := _text_or_none(state)) is not None and token.startswith(PREFIX):
                return await self._resume(visitor, posted, client, token)
            if client.may_be_asked:
                return await self._parkable(visitor, posted, client)
        return await self._complete(visitor, posted, client)

    async def _complete(self, visitor: Visitor, posted: Posted, client: ModernClient) -> bytes:
        """What failed because the client could not be asked is said to have failed for that."""
        try:
            result = await self._desk.answer(visitor, posted, client)
        except RpcFailure as failure:
            raise (_lacking(client.lacked) if client.lacked else failure) from None
        if client.lacked and translate.is_error(result):
            raise _lacking(client.lacked)
        return result

    def _check_parameters(self, visitor: Visitor, posted: Posted, routing: Routing) -> None:
        tool = self._gateway.shelf(visitor.view).tools.get(posted.text("name"))
        if tool is not None and tool.header_parameters:
            arguments = bytes(posted.params.get("arguments", _EMPTY_OBJECT))
            check_parameters(tool.header_parameters, arguments, routing)

    def _discover(self, visitor: Visitor) -> bytes:
        shown = notices.introduction(self._gateway, visitor.view)
        return msgspec.json.encode(
            {
                "resultType": translate.COMPLETE,
                "supportedVersions": [eras.MODERN],
                "capabilities": shown.capabilities,
                **({"instructions": shown.instructions} if shown.instructions else {}),
                "ttlMs": 0,
                "cacheScope": "private",
                "_meta": {eras.SERVER_INFO_KEY: eras.CLIENT_INFO},
            }
        )

    # Calls in which the client may be asked

    async def _parkable(self, visitor: Visitor, posted: Posted, client: ModernClient) -> bytes:
        parked = client.parked = Parked(visitor.principal.key_id, _digest(visitor, posted))
        parked.client = client
        parked.work = asyncio.ensure_future(self._complete(visitor, posted, client))
        return await self._until_asked(parked)

    async def _until_asked(self, parked: Parked) -> bytes:
        try:
            result = await parked.outcome()
        except asyncio.CancelledError:
            if parked.work is not None:
                parked.work.cancel()
                await asyncio.gather(parked.work, return_exceptions=True)
            raise
        return self._parking.keep(parked) if result is None else result

    async def _resume(self, visitor: Visitor, posted: Posted, client: ModernClient, token: str) -> bytes:
        parked = self._parking.take(token, visitor.principal.key_id, _digest(visitor, posted))
        if parked is None:
            raise RpcFailure(
                jsonrpc.INVALID_PARAMS,
                "This requestState is not valid: its call has ended, was resumed before or waited too long. "
                "Whether the call had an effect is not known; make it anew without requestState",
            )
        if parked.client is not None:
            parked.client.move_to(client)
        with contextlib.suppress(msgspec.DecodeError):
            given = msgspec.json.decode(posted.params.get(_RESPONSES, b"{}"), type=dict[str, msgspec.Raw])
            parked.answer({key: bytes(raw) for key, raw in given.items()})
        return await self._until_asked(parked)

    def close(self) -> None:
        self._parking.close()


def _lacking(required: bytes) -> RpcFailure:
    message = "The server has to ask the client something that the client does not support"
    return RpcFailure(eras.MISSING_CAPABILITY, message, required)


def _text_or_none(raw: msgspec.Raw) -> str | None:
    try:
        return msgspec.json.decode(raw, type=str)
    except msgspec.DecodeError:
        return None


def _digest(visitor: Visitor, posted: Posted) -> bytes:
    """Of what must be the same when a request is repeated."""
    members = {
        key: bytes(raw) for key, raw in posted.params.items() if key not in ("_meta", _RESPONSES, _STATE)
    }
    return digest_of(posted.method or "", visitor.view or "", translate.joined(dict(sorted(members.items()))))
