"""One connection to one server: finds out its era, shakes hands, sends requests, minds their deadlines.

A `Connection` is opened and closed by one owner task (its upkeep in `session_manager.py`); requests may
come from any task. The wire below it carries bytes; what a failed request means for its caller is decided
above, in the router. Every request has the gateway's own key, so that answers and progress never cross.
"""

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from trunkline.errors import Lost, NotSent, ProtocolViolation, RpcError, UpstreamError, UpstreamTimeout
from trunkline.model import Era, Tool
from trunkline.telemetry import Flood
from trunkline.upstream.wires import Exchange, Wire
from trunkline.wire import eras, jsonrpc
from trunkline.wire.eras import Introduction
from trunkline.wire.jsonrpc import RpcId

log = logging.getLogger(__name__)

PROBE_SECONDS = 5.0
"""How long a server may ponder `server/discover` before it counts as one that does not know it."""
MOST_ANSWERS_UNDER_WAY = 64

_CHANGES = {
    "notifications/tools/list_changed",
    "notifications/prompts/list_changed",
    "notifications/resources/list_changed",
}


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait for what, in seconds."""

    connect: float
    request: float
    """Without a sign of progress."""
    request_cap: float


class _Progress(msgspec.Struct):
    progressToken: int | str | None = None  # noqa: N815 - the protocol's spelling


_progress = msgspec.json.Decoder(_Progress)


class Connection:
    def __init__(
        self,
        *,
        server_id: str,
        name: str,
        wire: Wire,
        patience: Patience,
        on_lists_changed: Callable[[], None],
        on_noise: Callable[[], None],
    ) -> None:
        self.server_id = server_id
        self.name = name
        self._wire = wire
        self._patience = patience
        self._on_lists_changed = on_lists_changed
        self._on_noise = on_noise
        self._introduction: Introduction | None = None
        self._keys = itertools.count(1)
        self._running: dict[int, _Deadline] = {}
        self._calls = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._end: asyncio.Future[UpstreamError] = asyncio.get_running_loop().create_future()
        self._ending: UpstreamError | None = None
        self._answers: set[asyncio.Task[None]] = set()
        self._noise_log = Flood()
        self.calls_served = 0

    # Life

    async def open(self, known_era: Era | None) -> Introduction:
        """Connect and shake hands. Raises `UpstreamError`; the caller closes in any case."""
        try:
            async with asyncio.timeout(self._patience.connect):
                await self._wire.open(self)
                introduction = await self._introduce(known_era)
                await self._wire.introduced(introduction)
                if not introduction.modern:
                    await self._wire.notify("notifications/initialized")
        except TimeoutError:
            reason = f"no answer to the handshake within {self._patience.connect:g} s"
            raise UpstreamTimeout(self._with_epitaph(reason), phase="handshake") from None
        except UpstreamError as error:
            error.reason = self._with_epitaph(error.reason)
            raise
        self._introduction = introduction
        return introduction

    async def _introduce(self, known_era: Era | None) -> Introduction:
        if known_era is Era.LEGACY:
            try:
                return await self._initialize()
            except (RpcError, ProtocolViolation):
                log.info("%s no longer answers initialize; probing its era again", self.name)
        try:
            return await self._discover()
        except (RpcError, ProtocolViolation, UpstreamTimeout, NotSent, Lost) as error:
            self._check_alive()
            if isinstance(error, NotSent) and error.phase == "connect":
                raise
        return await self._initialize()

    async def _discover(self) -> Introduction:
        """Any answer that is not proof of the modern era leads to the session era's handshake."""
        seconds = min(PROBE_SECONDS, self._patience.connect / 3)
        try:
            result = await self._ask("server/discover", b"", seconds=seconds, modern=True)
        except RpcError as error:
            answer = jsonrpc.ErrorResponse(None, error.rpc_code, error.message, error.data)
            if not eras.proves_modern(answer):
                raise
            return Introduction(eras.MODERN, {}, None)
        introduction = eras.read_discovery(result)
        if introduction is None:
            raise ProtocolViolation("no modern revision in its answer to server/discover", phase="handshake")
        return introduction

    async def _initialize(self) -> Introduction:
        result = await self._ask(
            "initialize", eras.initialize_params(), seconds=self._patience.connect, modern=False
        )
        introduction = eras.read_initialization(result)
        if introduction is None:
            raise ProtocolViolation(
                "its answer to initialize names no protocol revision that Trunkline speaks", phase="handshake"
            )
        return introduction

    async def wait_lost(self) -> UpstreamError:
        """Returns when the connection is of no more use, with the reason."""
        return await asyncio.shield(self._end)

    def fail(self, error: UpstreamError) -> None:
        """Give the connection up: whoever waits on it is answered now, its owner closes it."""
        if self._ending is not None:
            return
        self._ending = error
        if not self._end.done():
            self._end.set_result(error)
        for deadline in list(self._running.values()):
            deadline.expire()

    async def close(self) -> None:
        self.fail(Lost("the connection was closed"))
        for task in list(self._answers):
            task.cancel()
        await self._wire.close()

    @property
    def alive(self) -> bool:
        return self._ending is None and self._introduction is not None

    @property
    def era(self) -> Era:
        return Era.MODERN if self.introduction.modern else Era.LEGACY

    @property
    def introduction(self) -> Introduction:
        if self._introduction is None:
            raise NotSent("the handshake is not done", phase="handshake")
        return self._introduction

    @property
    def in_flight(self) -> int:
        """Tool calls under way."""
        return self._calls

    @property
    def busy(self) -> bool:
        """Whether silence is no sign of death: it has calls to work on, and spoke not too long ago."""
        silent = asyncio.get_running_loop().time() - self._wire.last_heard
        return self._calls > 0 and silent <= self._patience.request

    async def wait_idle(self) -> None:
        """Returns when no tool call is under way."""
        await self._idle.wait()

    def _check_alive(self) -> None:
        if self._ending is not None:
            raise self._ending

    def _with_epitaph(self, reason: str) -> str:
        epitaph = self._wire.epitaph()
        return f"{reason} ({epitaph})" if epitaph and epitaph not in reason else reason

    # Requests

    async def call_tool(self, tool: Tool, arguments: bytes) -> bytes:
        """The raw result. Raises `UpstreamError`."""
        key = next(self._keys)
        modern = self.introduction.modern
        params = b'{"name":%b,"arguments":%b,"_meta":%b}' % (
            jsonrpc.quote(tool.original_name),
            arguments,
            eras.request_meta(modern=modern, progress_token=key),
        )
        headers: dict[str, str] = {}
        if modern:
            headers = eras.modern_headers("tools/call", tool.original_name)
            if tool.header_parameters:
                headers |= eras.parameter_headers(tool.header_parameters, eras.decoded_arguments(arguments))
        self._calls += 1
        self._idle.clear()
        try:
            result = await self._run(Exchange(key, "tools/call", params, headers), self._patience.request)
        finally:
            self._calls -= 1
            if not self._calls:
                self._idle.set()
        self.calls_served += 1
        return result

    async def request(self, method: str, params: bytes = b"", *, seconds: float | None = None) -> bytes:
        """Any other request of our own. `params` must not carry a `_meta`."""
        return await self._ask(
            method, params, seconds=seconds or self._patience.request, modern=self.introduction.modern
        )

    async def ping(self, seconds: float) -> None:
        """A sign of life. An error from the server is one too: it answered."""
        method = "server/discover" if self.introduction.modern else "ping"
        with contextlib.suppress(RpcError):
            await self.request(method, seconds=seconds)

    async def _ask(self, method: str, params: bytes, *, seconds: float, modern: bool) -> bytes:
        exchange = Exchange(
            next(self._keys),
            method,
            eras.with_meta(params, eras.request_meta(modern=modern)),
            eras.modern_headers(method, None) if modern else {},
        )
        return await self._run(exchange, seconds)

    async def _run(self, exchange: Exchange, seconds: float) -> bytes:
        if self._ending is not None:
            raise NotSent(self._ending.reason)
        deadline = _Deadline(seconds, self._patience.request_cap)
        self._running[exchange.key] = deadline
        try:
            async with deadline.scope:
                return await self._wire.exchange(exchange)
        except TimeoutError:
            if self._ending is not None:
                raise (Lost if exchange.sent else NotSent)(self._ending.reason) from None
            await self._withdraw(exchange, "timed out")
            raise UpstreamTimeout(f"no answer within {deadline.waited():.3g} s") from None
        except asyncio.CancelledError:
            await self._withdraw(exchange, "the caller went away")
            raise
        finally:
            del self._running[exchange.key]

    async def _withdraw(self, exchange: Exchange, reason: str) -> None:
        if exchange.sent and self._ending is None and exchange.method != "initialize":
            await asyncio.shield(self._wire.cancel(exchange, reason))

    # What the server sends unasked

    def on_request(self, identity: RpcId, method: str, params: bytes, asked_by: int | None) -> None:
        if method == "ping":
            message = jsonrpc.encode_result(identity, b"{}")
        else:
            message = jsonrpc.encode_error(
                identity, jsonrpc.METHOD_NOT_FOUND, f"Trunkline does not answer {method}"
            )
        if len(self._answers) >= MOST_ANSWERS_UNDER_WAY:
            self.on_noise("more requests than can be answered")
            return
        task = asyncio.get_running_loop().create_task(self._answer(message))
        self._answers.add(task)
        task.add_done_callback(self._answers.discard)

    async def _answer(self, message: bytes) -> None:
        with contextlib.suppress(UpstreamError):
            await self._wire.answer(message)

    def on_notification(self, method: str, params: bytes, asked_by: int | None) -> None:
        if method == "notifications/progress":
            with contextlib.suppress(msgspec.DecodeError, RecursionError):
                token = _progress.decode(params).progressToken
                deadline = self._running.get(token) if isinstance(token, int) else None
                if deadline is not None:
                    deadline.extend()
        elif method in _CHANGES:
            self._on_lists_changed()

    def on_noise(self, reason: str) -> None:
        self._on_noise()
        if self._noise_log.passes():
            held = f" ({self._noise_log.held_back} more before)" if self._noise_log.held_back else ""
            self._noise_log.held_back = 0
            log.warning("%s: %s%s", self.name, reason, held, extra={"server": self.name})

    def on_lost(self, error: UpstreamError) -> None:
        error.reason = self._with_epitaph(error.reason)
        self.fail(error)


class _Deadline:
    """A time limit that progress moves on, up to a cap, and that can be brought forward to now."""

    def __init__(self, seconds: float, cap: float) -> None:
        now = asyncio.get_running_loop().time()
        self._started = now
        self._seconds = seconds
        self._latest = now + max(cap, seconds)
        self.expired = False
        self.scope = asyncio.timeout_at(now + seconds)

    def extend(self) -> None:
        if not self.scope.expired():
            now = asyncio.get_running_loop().time()
            self.scope.reschedule(min(now + self._seconds, self._latest))

    def expire(self) -> None:
        if not self.scope.expired():
            self.scope.reschedule(asyncio.get_running_loop().time())

    def waited(self) -> float:
        return asyncio.get_running_loop().time() - self._started
