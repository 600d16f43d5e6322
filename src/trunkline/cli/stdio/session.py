"""The session a client of the older era has on stdio, kept up over whatever sessions the gateway gives.

The client opens one session and believes in it for its life. When the gateway forgets it (it was started
anew), another is opened by the client's own `initialize` and brought to where the first one was. A call is
never repeated for that: its client is told, and decides.
"""

import asyncio
import contextlib
import logging
import random
from collections.abc import Mapping
from typing import Any

from trunkline.cli.stdio.link import Link, unheard
from trunkline.errors import NotSent, UpstreamError
from trunkline.front.mcp.envelope import Posted
from trunkline.upstream.listening import NotOffered, keep_listening
from trunkline.upstream.passage import Passed
from trunkline.wire import eras, jsonrpc, translate

log = logging.getLogger(__name__)

LEAVE_SECONDS = 1.0
_NOT_OFFERED = (400, 405, 501)
_CHANGED = ("tools", "prompts", "resources")


class GatewaySession:
    """One that the gateway gave."""

    def __init__(self, session_id: str, version: str) -> None:
        self.headers = {"Mcp-Session-Id": session_id, "MCP-Protocol-Version": version}
        self.last_event_id: str | None = None


class StdioSession:
    def __init__(self, link: Link) -> None:
        self._link = link
        self._current: GatewaySession | None = None
        self._opening = asyncio.Lock()
        self._greeting = b""
        """The params of the client's `initialize`."""
        self._greeted = False
        self._said: dict[tuple[str, bytes], bytes] = {}
        """What a new session has to be told again: (method, subject) → params."""
        self._listening: asyncio.Task[None] | None = None
        self._rng = random.Random()  # noqa: S311 - spreads reconnects, guards nothing
        self._renewals = 0

    @property
    def open(self) -> bool:
        return self._current is not None

    async def ask(self, posted: Posted, identity: jsonrpc.RpcId, line: bytes) -> bytes | None:
        """The answer to a request, unless it was said already. Raises `UpstreamError`."""
        if posted.method == "initialize" and self._current is None:
            async with self._opening:
                return await self._initialize(posted, identity, line)
        session = await self._settled()
        passed, answer = await self._link.ask(identity, line, session.headers if session else {})
        if session is not None and _forgotten(passed):
            await self._renew(session)
            if posted.method == "tools/call":
                said = "The gateway was started anew and had not taken this call: call again"
                return jsonrpc.encode_error(identity, jsonrpc.INTERNAL_ERROR, said)
            _, answer = await self._link.ask(identity, line, await self._headers())
        self._remember(posted)
        return answer

    async def tell(self, posted: Posted, line: bytes) -> None:
        """A notification, or a response. Raises `UpstreamError`."""
        session = await self._settled()
        if session is None:
            return
        self._greeted = self._greeted or posted.method == "notifications/initialized"
        passed = await self._link.post(line, session.headers, unheard)
        if _forgotten(passed):
            await self._renew(session)  # and what it was about went with the session

    async def _settled(self) -> GatewaySession | None:
        """What the client says while its session is being opened waits for it."""
        async with self._opening:
            return self._current

    async def _headers(self) -> Mapping[str, str]:
        session = await self._settled()
        return session.headers if session else {}

    async def _initialize(self, posted: Posted, identity: jsonrpc.RpcId, line: bytes) -> bytes | None:
        passed, answer = await self._link.ask(identity, line, {})
        if (session := _given(passed)) is not None:
            self._current = session
            self._greeting = translate.joined({name: bytes(raw) for name, raw in posted.params.items()})
            self._listening = asyncio.create_task(keep_listening(self._listen, self._rng))
        return answer

    async def _renew(self, forgotten: GatewaySession) -> None:
        """Raises `UpstreamError`."""
        async with self._opening:
            if self._current is not forgotten:
                return
            self._renewals += 1
            identity = f"trunkline-again-{self._renewals}"
            greeting = jsonrpc.encode_request(identity, "initialize", self._greeting)
            passed = await self._link.post(greeting, {}, unheard)
            session = _given(passed)
            if session is None:
                raise NotSent(f"the gateway gives no new session (it answered {passed.status})")
            if self._greeted:
                note = jsonrpc.encode_notification("notifications/initialized")
                await self._link.post(note, session.headers, unheard)
            for number, ((method, _), params) in enumerate(self._said.items()):
                again = jsonrpc.encode_request(f"{identity}-{number}", method, params)
                await self._link.post(again, session.headers, unheard)
            self._current = session
        log.info("The gateway had forgotten the session; another one is open")
        if self._greeted:
            for kind in _CHANGED:  # what changed in between was not heard
                await self._link.say(jsonrpc.encode_notification(f"notifications/{kind}/list_changed"))

    def _remember(self, posted: Posted) -> None:
        """What a session holds for its client."""
        params = translate.joined({name: bytes(raw) for name, raw in posted.params.items()})
        subject = bytes(posted.params.get("uri", b""))
        match posted.method:
            case "logging/setLevel" | "resources/subscribe" as method:
                self._said[method, subject] = params
            case "resources/unsubscribe":
                self._said.pop(("resources/subscribe", subject), None)

    # What the gateway says unasked

    async def _listen(self) -> float:
        session = await self._settled()
        if session is None:
            raise NotOffered

        async def hear(data: bytes, event_id: str | None) -> None:
            session.last_event_id = event_id or session.last_event_id
            await self._link.say(data)

        headers = dict(session.headers)
        if session.last_event_id is not None:
            headers["Last-Event-ID"] = session.last_event_id
        passed = await self._link.listen(headers, hear)
        if _forgotten(passed):
            await self._renew(session)
            return 0.0
        if passed.status in _NOT_OFFERED:
            raise NotOffered
        return passed.pause

    async def close(self) -> None:
        """In good order: the gateway is told, if it can be told soon."""
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)
        if self._current is not None:
            with contextlib.suppress(UpstreamError, TimeoutError):
                async with asyncio.timeout(LEAVE_SECONDS):
                    await self._link.leave(self._current.headers)


def _given(passed: Passed) -> GatewaySession | None:
    """The session an answer to `initialize` brought."""
    if passed.status != 200 or passed.session_id is None:
        return None
    try:
        message = jsonrpc.decode(passed.body)
    except jsonrpc.Malformed:
        return None
    if not isinstance(message, jsonrpc.Response):
        return None
    introduction = eras.read_initialization(message.result)
    return GatewaySession(passed.session_id, introduction.version) if introduction else None


def _forgotten(passed: Passed) -> bool:
    """A 404 in JSON-RPC is about the session; one without it is about the address."""
    if passed.status != 404:
        return False
    try:
        message: Any = jsonrpc.decode(passed.body)
    except jsonrpc.Malformed:
        return False
    return isinstance(message, jsonrpc.ErrorResponse)
