"""The one ASGI app: everything a request must pass before somebody looks at what it wants.

In this order: request id, `Host` and `Origin`, whether the gateway serves at all, key, body. Then the hot
path or the admin API. Denied by default: without a key only the two health addresses answer, and say only
the status. Decided on `scope["path"]` alone, never on a URL put together from headers. It holds no route's
meaning: `tool_call.py` and `rest/` do; `server.py` runs it.
"""

import asyncio
import logging
import os
import re

from trunkline import telemetry
from trunkline.core.gateway import Gateway
from trunkline.errors import GatewayDisabled, ServerUnavailable, TrunklineError, Unauthorized
from trunkline.front import tool_call
from trunkline.front.answers import (
    JSON_TYPE,
    Answer,
    Message,
    Receive,
    Scope,
    Send,
    answer_to,
    encode,
    unexpected,
)
from trunkline.front.bodies import ClientGone, read_body, require_json, require_json_type
from trunkline.front.mcp import http
from trunkline.front.mcp.http import McpHttp
from trunkline.front.mcp.reception import Reception, view_of
from trunkline.front.mcp.sse import MESSAGES, STREAM, McpSse
from trunkline.front.origins import KnownHosts, plain_address
from trunkline.front.rest.access import PRINCIPAL
from trunkline.front.rest.api import build_rest
from trunkline.front.rest.shapes import STOPPING
from trunkline.model import Principal

log = logging.getLogger(__name__)

HEALTH_PATHS = frozenset({"/health", "/api/v1/aggregator/health"})
LONGEST_TOKEN = 1024
_SANE_ID = re.compile(rb"[A-Za-z0-9._:-]{1,128}")
_UUID_MARKS = 0xF << 76 | 0x3 << 62
_UUID_4 = 0x4 << 76 | 0x2 << 62
_READ_ALONE = frozenset({"GET", "HEAD"})
_CAREFUL = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))


def _new_id() -> bytes:
    """A random UUID (version 4) as text, without the object `uuid` makes on the way."""
    number = int.from_bytes(os.urandom(16)) & ~_UUID_MARKS | _UUID_4
    digits = b"%032x" % number
    return b"-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


class _Seen:
    """The headers that decide something, picked out in one pass."""

    __slots__ = ("authorizations", "content_length", "content_type", "hosts", "origins", "request_id")

    def __init__(self, headers: list[tuple[bytes, bytes]]) -> None:
        self.hosts: list[bytes] = []
        self.origins: list[bytes] = []
        self.authorizations: list[bytes] = []
        self.content_length: bytes | None = None
        self.content_type: bytes | None = None
        self.request_id: bytes | None = None
        for name, value in headers:
            if name == b"host":
                self.hosts.append(value)
            elif name == b"authorization":
                self.authorizations.append(value)
            elif name == b"content-length":
                self.content_length = value
            elif name == b"content-type":
                self.content_type = value
            elif name == b"origin":
                self.origins.append(value)
            elif name == b"x-request-id":
                self.request_id = value


class Front:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._settings = gateway.settings
        self._hosts = KnownHosts(gateway.settings.host, gateway.settings.allowed_hosts)
        self.rest = build_rest(gateway)
        self.reception = Reception(gateway)
        self.mcp = McpHttp(self.reception)
        sse = McpSse(self.reception)
        self._mcp_mounts = ((http.PATH, self.mcp.serve), (STREAM, sse.stream), (MESSAGES, sse.take))

    def stop(self) -> None:
        """The gateway is draining: give up what waits for a client or for news. Calls are still answered."""
        self.mcp.close()
        self.reception.audience.close()

    def close(self) -> None:
        """End what would not end by itself: open streams."""
        self.stop()
        self.reception.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._serve(scope, receive, send)
        elif scope["type"] == "lifespan":
            await _live(receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        seen = _Seen(scope["headers"])
        given = seen.request_id
        identity = given if given and _SANE_ID.fullmatch(given) else _new_id()
        telemetry.request_id.set(identity.decode())
        reply = _Reply(send, identity)
        try:
            await self._route(scope, seen, receive, reply)
        except ClientGone:
            return
        except TrunklineError as error:
            await reply.with_all_of(answer_to(error))
        except asyncio.CancelledError:
            if not self._gateway.draining:
                raise
            await reply.with_all_of(answer_to(ServerUnavailable("The gateway is stopping", retry_after=5)))
        except Exception:
            log.exception("Unexpected error at %s %s", scope["method"], scope["path"])
            await reply.with_all_of(unexpected(identity.decode()))

    async def _route(self, scope: Scope, seen: _Seen, receive: Receive, reply: "_Reply") -> None:
        path, server = scope["path"], scope.get("server")
        self._hosts.judge(
            seen.hosts,
            seen.origins,
            http10=scope.get("http_version") == "1.0",
            reached=server[0] if server else None,
        )
        probed = path in HEALTH_PATHS and scope["method"] in _READ_ALONE
        if not (self._settings.enabled or probed):
            raise GatewayDisabled(
                "This gateway is switched off: MCP_AGGREGATOR_ENABLED is false, and only health is served"
            )
        anonymous = probed and not seen.authorizations and self._settings.auth == "on"
        principal = None if anonymous else self._authenticate(scope, seen)
        body = await read_body(
            receive, seen.content_length, limit=self._settings.body_limit, seconds=self._settings.body_timeout
        )
        if principal is None:
            await reply.with_all_of(await self._liveness())
            return
        for root, serve in self._mcp_mounts:
            spoken_to, view = view_of(path, root)
            if spoken_to:
                await serve(
                    scope,
                    receive,
                    reply,
                    principal=principal,
                    view=view,
                    body=body,
                    content_type=seen.content_type,
                    request_id=reply.request_id.decode(),
                )
                return
        if body:
            require_json_type(seen.content_type)
        if path == tool_call.PATH and scope["method"] == "POST":
            answer = await tool_call.run_call(
                self._gateway, principal, body, reply.request_id.decode(), receive
            )
            await reply.with_all_of(Answer(200, answer))
            return
        if body:
            require_json(body)
        scope[PRINCIPAL] = principal
        await self.rest(scope, _Replay(body, receive), reply)

    def _authenticate(self, scope: Scope, seen: _Seen) -> Principal:
        client = scope.get("client")
        ip = plain_address(client[0]) if client else None
        if self._settings.auth == "off":
            return self._gateway.authenticate(None, ip)
        if len(seen.authorizations) > 1:
            raise Unauthorized("The request has more than one Authorization header")
        token = None
        if seen.authorizations:
            scheme, _, token = seen.authorizations[0].partition(b" ")
            token = token.strip()
            if scheme.lower() != b"bearer" or not 0 < len(token) <= LONGEST_TOKEN:
                raise Unauthorized("Send your key as `Authorization: Bearer KEY`")
        return self._gateway.authenticate(token, ip)

    async def _liveness(self) -> Answer:
        if self._gateway.draining:
            return Answer(503, encode({"status": STOPPING}))
        return Answer(200, encode({"status": (await self._gateway.health()).status}))


class _Reply:
    """`send` that stamps the request id on every answer, and never begins a second one."""

    __slots__ = ("_send", "_started", "request_id")

    def __init__(self, send: Send, request_id: bytes) -> None:
        self._send = send
        self._started = False
        self.request_id = request_id

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._started = True
            headers = [*message["headers"], (b"x-request-id", self.request_id), *_CAREFUL]
            message = {**message, "headers": headers}
        await self._send(message)

    async def with_all_of(self, answer: Answer) -> None:
        if self._started:
            return
        self._started = True
        headers = [
            JSON_TYPE,
            (b"content-length", b"%d" % len(answer.body)),
            (b"x-request-id", self.request_id),
            *answer.headers,
        ]
        await self._send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await self._send({"type": "http.response.body", "body": answer.body})


class _Replay:
    """`receive` for a body that was already read; after it, what the client does next."""

    __slots__ = ("_body", "_receive")

    def __init__(self, body: bytes, receive: Receive) -> None:
        self._body: bytes | None = body
        self._receive = receive

    async def __call__(self) -> Message:
        if self._body is None:
            return await self._receive()
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}


async def _live(receive: Receive, send: Send) -> None:
    """The gateway is opened and closed around the server, so there is nothing to do here but to agree."""
    while True:
        message = await receive()
        await send({"type": message["type"] + ".complete"})
        if message["type"] == "lifespan.shutdown":
            return
