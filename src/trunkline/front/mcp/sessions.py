"""Sessions of the older era: what a client said of itself, what it is owed, and which streams it reads.

A session belongs to the key it was opened with and to one address. It is forgotten when nobody used it for
a while, or when too many are open; then its client is told so by a 404 and opens another.
"""

import asyncio
import itertools
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

from trunkline.errors import Declined
from trunkline.front.mcp.audience import Ear
from trunkline.front.mcp.channel import Channel
from trunkline.front.mcp.envelope import Posted
from trunkline.front.mcp.notices import LISTEN_NAMES, marked_plain
from trunkline.front.mcp.under_way import UnderWay
from trunkline.model import Principal
from trunkline.wire import jsonrpc, translate
from trunkline.wire.jsonrpc import RpcId

STREAMS_KEPT = 16
SWEEP_SECONDS = 30.0


class Session:
    def __init__(
        self,
        principal: Principal,
        view: str | None,
        general: Channel | None = None,
        *,
        patience: float,
    ) -> None:
        """`patience`: seconds its client has to answer a question."""
        self.id = secrets.token_urlsafe(24)
        self.principal = principal
        self.view = view
        self._patience = patience
        self.version = ""
        self.declared: Mapping[str, Any] = {}
        self.capabilities = b"{}"
        self.info = b""
        self.log_level: str | None = None
        self.last_used = time.monotonic()
        self.under_way = UnderWay()
        self.general = general or Channel("g", replayable=True)
        """What belongs to no request; read by the client's GET."""
        self.ear = Ear(view, set(LISTEN_NAMES), self._tell)
        self._asked: dict[RpcId, asyncio.Future[bytes]] = {}
        self._numbers = itertools.count(1)
        self._streams: OrderedDict[str, Channel] = OrderedDict()

    @property
    def introduced(self) -> bool:
        return bool(self.version)

    def introduce(self, version: str, declared: Mapping[str, Any], info: bytes) -> None:
        """What its client says of itself, once."""
        self.version = version
        self.declared = declared
        self.capabilities = translate.capabilities_for_modern(declared, version)
        self.info = info

    def _tell(self, method: str, members: bytes) -> None:
        self.general.put(marked_plain(method, members))

    def new_stream(self) -> Channel:
        """For one POST; kept for a while so that its client can come back to it."""
        name = f"s{next(self._numbers)}"
        channel = self._streams[name] = Channel(name, replayable=True)
        while len(self._streams) > STREAMS_KEPT:
            finished = next((key for key, each in self._streams.items() if each.closed), None)
            if finished is None:
                break
            del self._streams[finished]
        return channel

    def stream_of(self, event_id: str) -> tuple[Channel, int] | None:
        """The stream an event was on, and its number there."""
        name, _, number = event_id.rpartition("-")
        if not (number.isascii() and number.isdigit() and len(number) < 10):
            return None
        channel = self.general if name == "g" else self._streams.get(name)
        return (channel, int(number)) if channel is not None else None

    async def ask(self, method: str, params: bytes, say: Callable[[bytes], None]) -> bytes:
        """Put a question on a stream and wait for the POST that answers it. Raises `Declined`."""
        identity = f"trunkline-{next(self._numbers)}"
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._asked[identity] = answer
        say(jsonrpc.encode_request(identity, method, params))
        try:
            async with asyncio.timeout(self._patience):
                return await answer
        except (TimeoutError, asyncio.CancelledError) as over:
            cancelled = b'{"requestId":%b,"reason":"nobody waits for the answer any more"}'
            say(jsonrpc.encode_notification("notifications/cancelled", cancelled % jsonrpc.quote(identity)))
            if isinstance(over, asyncio.CancelledError):
                raise
            said = f"The client did not answer {method} within {self._patience:g} s"
            raise Declined(jsonrpc.INTERNAL_ERROR, said) from None
        finally:
            del self._asked[identity]

    def on_response(self, posted: Posted) -> None:
        answer = self._asked.get(posted.id) if posted.id is not None else None
        if answer is None or answer.done():
            return
        if posted.error:
            message = jsonrpc.decode(b'{"jsonrpc":"2.0","id":0,"error":%b}' % posted.error)
            if isinstance(message, jsonrpc.ErrorResponse):
                answer.set_exception(Declined(message.code, message.message))
            return
        answer.set_result(posted.result)

    def close(self) -> None:
        self.ear.tell = _unheard  # or the two would keep each other until a full garbage collection
        self.general.close()
        for channel in self._streams.values():
            channel.close()
        for answer in self._asked.values():
            if not answer.done():
                answer.set_exception(Declined(jsonrpc.INTERNAL_ERROR, "The client's session has ended"))


def _unheard(method: str, members: bytes) -> None:
    """A closed session hears nothing more."""


class Sessions:
    def __init__(self, *, most: int, idle_seconds: float, on_closed: Callable[[Session], None]) -> None:
        self._most = most
        self._idle = idle_seconds
        self._on_closed = on_closed
        self._sessions: dict[str, Session] = {}
        self._sweep: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, session: Session) -> None:
        while len(self._sessions) >= self._most:
            self.close(min(self._sessions.values(), key=lambda each: each.last_used))
        self._sessions[session.id] = session
        if self._sweep is None:
            self._sweep_later()

    def find(self, session_id: str, principal: Principal, view: str | None) -> Session | None:
        """For its owner alone, at its address alone."""
        session = self._sessions.get(session_id)
        if session is None or session.principal.key_id != principal.key_id or session.view != view:
            return None
        session.last_used = time.monotonic()
        return session

    def close(self, session: Session) -> None:
        if self._sessions.pop(session.id, None) is not None:
            session.close()
            self._on_closed(session)

    def close_all(self) -> None:
        if self._sweep is not None:
            self._sweep.cancel()
        for session in list(self._sessions.values()):
            self.close(session)

    def _sweep_later(self) -> None:
        pause = min(SWEEP_SECONDS, self._idle / 2)
        self._sweep = asyncio.get_running_loop().call_later(pause, self._sweep_now)

    def _sweep_now(self) -> None:
        latest = time.monotonic() - self._idle
        for session in list(self._sessions.values()):
            if session.last_used < latest and not session.under_way and session.general.reader is None:
                self.close(session)
        self._sweep = None
        if self._sessions:
            self._sweep_later()
