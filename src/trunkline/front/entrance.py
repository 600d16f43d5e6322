"""What every request must pass before somebody looks at what it wants, and where it goes then.

By its head, before its body is read: request id, `Host` and `Origin`, whether the gateway serves at all, and
the key. Then the hot paths (calls, MCP), or the admin API. Denied by default: without a key only the two
health addresses answer, and say only the status. Decided on the path alone, never on a URL put together from
headers. It holds no route's meaning: `tool_call.py`, `mcp/` and `rest/` do.
"""

import asyncio
import logging
import os
import re

from trunkline import telemetry
from trunkline.core.gateway import Gateway
from trunkline.errors import GatewayDisabled, ServerUnavailable, TrunklineError, Unauthorized
from trunkline.front import tool_call
from trunkline.front.answers import Answer, answer_to, encode, unexpected
from trunkline.front.bodies import require_json_type
from trunkline.front.exchange import ClientGone, Exchange
from trunkline.front.mcp import http
from trunkline.front.mcp.http import McpHttp
from trunkline.front.mcp.reception import Reception, view_of
from trunkline.front.mcp.sse import MESSAGES, STREAM, McpSse
from trunkline.front.origins import KnownHosts, plain_address
from trunkline.front.rest.admin import admin_api
from trunkline.front.rest.state import STOPPING, HealthAnswer
from trunkline.model import Principal

log = logging.getLogger(__name__)

HEALTH_PATHS = frozenset({"/health", "/api/v1/aggregator/health"})
LONGEST_TOKEN = 1024
_SANE_ID = re.compile(rb"[A-Za-z0-9._:-]{1,128}")
_READ_ALONE = frozenset({"GET", "HEAD"})


class RequestIds:
    """Random UUIDs (version 4) as text; the randomness is taken from the system for many at once."""

    _MARKS = 0xF << 76 | 0x3 << 62
    _VERSION_4 = 0x4 << 76 | 0x2 << 62
    _AT_ONCE = 256

    def __init__(self) -> None:
        self._random = b""
        self._taken = 0

    def new(self) -> bytes:
        if self._taken >= len(self._random):
            self._random, self._taken = os.urandom(16 * self._AT_ONCE), 0
        piece = self._random[self._taken : self._taken + 16]
        self._taken += 16
        digits = b"%032x" % (int.from_bytes(piece) & ~self._MARKS | self._VERSION_4)
        return b"-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


class Front:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._settings = gateway.settings
        self._hosts = KnownHosts(gateway.settings.host, gateway.settings.allowed_hosts)
        self._ids = RequestIds()
        self.rest = admin_api(gateway)
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

    # By its head

    def admit(self, exchange: Exchange) -> Answer | None:
        given = exchange.headers.get(b"x-request-id")
        exchange.request_id = given if given and _SANE_ID.fullmatch(given) else self._ids.new()
        try:
            self._judge(exchange)
        except TrunklineError as error:
            return answer_to(error)
        except Exception:
            return self._unexpected(exchange)
        return None

    def _judge(self, exchange: Exchange) -> None:
        headers = exchange.headers
        self._hosts.judge(
            headers.all(b"host"),
            headers.all(b"origin"),
            http10=exchange.http10,
            reached=exchange.local[0] if exchange.local else None,
        )
        probed = exchange.path in HEALTH_PATHS and exchange.method in _READ_ALONE
        if not (self._settings.enabled or probed):
            raise GatewayDisabled(
                "This gateway is switched off: MCP_AGGREGATOR_ENABLED is false, and only health is served"
            )
        authorizations = headers.all(b"authorization")
        if probed and not authorizations and self._settings.auth == "on":
            return
        exchange.principal = self._authenticate(exchange, authorizations)

    def _authenticate(self, exchange: Exchange, authorizations: list[bytes]) -> Principal:
        ip = plain_address(exchange.client[0]) if exchange.client else None
        if self._settings.auth == "off":
            return self._gateway.authenticate(None, ip)
        if len(authorizations) > 1:
            raise Unauthorized("The request has more than one Authorization header")
        token = None
        if authorizations:
            scheme, _, token = authorizations[0].partition(b" ")
            token = token.strip()
            if scheme.lower() != b"bearer" or not 0 < len(token) <= LONGEST_TOKEN:
                raise Unauthorized("Send your key as `Authorization: Bearer KEY`")
        return self._gateway.authenticate(token, ip)

    # When its body is there

    async def serve(self, exchange: Exchange) -> None:
        telemetry.request_id.set(exchange.request_id.decode())
        try:
            await self._route(exchange)
        except ClientGone:
            exchange.give_up()
        except TrunklineError as error:
            self._refuse(exchange, answer_to(error))
        except asyncio.CancelledError:
            if not self._gateway.draining:
                exchange.give_up()
                raise
            self._refuse(exchange, answer_to(ServerUnavailable("The gateway is stopping", retry_after=5)))
        except Exception:
            self._refuse(exchange, self._unexpected(exchange))

    def _refuse(self, exchange: Exchange, answer: Answer) -> None:
        if exchange.started:
            exchange.give_up()
        else:
            exchange.reply(answer)

    def _unexpected(self, exchange: Exchange) -> Answer:
        log.exception("Unexpected error at %s %s", exchange.method, exchange.path)
        return unexpected(exchange.request_id.decode())

    async def _route(self, exchange: Exchange) -> None:
        principal, path = exchange.principal, exchange.path
        if principal is None:
            exchange.reply(await self._liveness())
            return
        for root, serve in self._mcp_mounts:
            spoken_to, view = view_of(path, root)
            if spoken_to:
                await serve(exchange, principal, view)
                return
        if exchange.body:
            require_json_type(exchange.headers.get(b"content-type"))
        if path == tool_call.PATH and exchange.method == "POST":
            exchange.reply(Answer(200, await tool_call.run_call(self._gateway, principal, exchange)))
            return
        exchange.reply(await self.rest.answer(exchange, principal))

    async def _liveness(self) -> Answer:
        if self._gateway.draining:
            return Answer(503, encode(HealthAnswer(status=STOPPING)))
        return Answer(200, encode(HealthAnswer(status=(await self._gateway.health()).status)))
