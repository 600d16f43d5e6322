"""One connection to one server: finds out its era, shakes hands, sends requests, minds their deadlines.

A `Connection` is opened and closed by one owner task (its upkeep in `session_manager.py`); requests may
come from any task. The wire below it carries bytes; what a failed request means for its caller is decided
above, in the router. Every request has the gateway's own key, so that answers and progress never cross.
"""

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from trunkline.errors import Lost, NotSent, ProtocolViolation, RpcError, UpstreamError, UpstreamTimeout
from trunkline.model import Counterpart, Era, Errand
from trunkline.telemetry import Flood
from trunkline.upstream.deadlines import Deadlines
from trunkline.upstream.listening import ACKNOWLEDGED, CHANGES, Subscription
from trunkline.upstream.running import QUESTIONS, Hear, Running, answer_to
from trunkline.upstream.wires import Exchange, Wire
from trunkline.wire import eras, jsonrpc, tasks
from trunkline.wire.eras import Introduction
from trunkline.wire.jsonrpc import RpcId

log = logging.getLogger(__name__)

PROBE_SECONDS = 5.0
"""How long a server may ponder `server/discover` before it counts as one that does not know it."""
MOST_ANSWERS_UNDER_WAY = 64

LISTEN = "subscriptions/listen"
FOR_EVER = 1e9
SUBSCRIBE_SECONDS = 5.0

_CHANGES = frozenset(notification for _, notification in CHANGES.values())
_SUBSCRIBED = frozenset({ACKNOWLEDGED, tasks.TOLD})


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait for what, in seconds."""

    connect: float
    request: float
    """Without a sign of progress."""
    request_cap: float


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
        on_told: Callable[[str, bytes], None],
    ) -> None:
        self.server_id = server_id
        self.name = name
        self._wire = wire
        self._patience = patience
        self._on_lists_changed = on_lists_changed
        self._on_noise = on_noise
        self._on_told = on_told
        self._introduction: Introduction | None = None
        self._keys = itertools.count(1)
        self._running: dict[int, Running] = {}
        self._deadlines = Deadlines()
        self._alone = asyncio.Lock()
        self._one_at_a_time = False
        """Where a server's questions do not say in which call it asks, there is only ever one call."""
        self._log_level: str | None = None
        self._subscription: Subscription | None = None
        self._listening: asyncio.Task[None] | None = None
        self._calls = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._end: asyncio.Future[UpstreamError] = asyncio.get_running_loop().create_future()
        self._ending: UpstreamError | None = None
        self._answers: dict[RpcId | None, asyncio.Task[bytes]] = {}
        self._sending: set[asyncio.Task[None]] = set()
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
        if introduction.modern:
            kinds = [kind for kind in CHANGES if _tells_changes(introduction, kind)]
            self._subscription = Subscription(kinds, on_missed=self._on_lists_changed)
            keeping = self._subscription.keep(self._listen)
            self._listening = asyncio.get_running_loop().create_task(keeping, name=f"{self.name} listening")
        return introduction

    async def _listen(self, params: bytes) -> bytes:
        """A request that stays open; what it is for comes as notifications."""
        return await self._ask(LISTEN, params, seconds=FOR_EVER, modern=True)

    async def subscribe(self, uri: str) -> None:
        """Hear when a resource changes. Raises `UpstreamError`."""
        if self._subscription is not None:
            await self._subscription.add(uri, SUBSCRIBE_SECONDS)
        else:
            await self.request("resources/subscribe", b'{"uri":%b}' % jsonrpc.quote(uri))

    async def unsubscribe(self, uri: str) -> None:
        if self._subscription is not None:
            await self._subscription.remove(uri)
        else:
            await self.request("resources/unsubscribe", b'{"uri":%b}' % jsonrpc.quote(uri))

    async def hear_tasks(self, task_ids: Iterable[str], client: Counterpart, hear: Hear) -> None:
        """A subscription of the newer era for one client, apart from ours; returns when the server ends it.

        Raises `UpstreamError`.
        """
        exchange = Exchange(
            next(self._keys),
            LISTEN,
            eras.with_meta(tasks.wanted(task_ids), eras.listening_meta(client)),
            eras.modern_headers(LISTEN, None),
        )
        await self._run(exchange, FOR_EVER, hear=hear)

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
        for running in list(self._running.values()):
            running.deadline.expire()

    async def close(self) -> None:
        self.fail(Lost("the connection was closed"))
        tasks = [*self._answers.values(), *self._sending, *([self._listening] if self._listening else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._wire.close()
        self._deadlines.close()

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

    async def carry(self, errand: Errand) -> bytes:
        """Do a client's errand: the raw result. Raises `UpstreamError`."""
        self.begin_call()
        try:
            if self._one_at_a_time:
                async with self._alone:
                    result = await self._carry(errand)
            else:
                result = await self._carry(errand)
        finally:
            self.end_call()
        self.calls_served += 1
        return result

    def begin_call(self) -> None:
        """One more tool call is under way, until `end_call`; also while nothing is asked in its course."""
        self._calls += 1
        self._idle.clear()

    def end_call(self) -> None:
        self._calls -= 1
        if not self._calls:
            self._idle.set()

    @property
    def longest_call(self) -> float:
        """Seconds after which a call is given up, whatever its server says meanwhile."""
        return self._patience.request_cap

    async def _carry(self, errand: Errand) -> bytes:
        key = next(self._keys)
        modern, client = self.introduction.modern, errand.counterpart
        if client is None:
            meta = eras.request_meta(modern=modern, progress_token=key)
        else:
            meta = eras.relayed_meta(client, modern=modern, progress_token=key)
            if not modern:
                await self._speak_up(client.log_level)
        given = [errand.params, errand.answers if modern else b"", b'"_meta":' + meta]
        params = b"{%b}" % b",".join(filter(None, given))
        headers: dict[str, str] = {}
        if modern:
            headers = eras.modern_headers(errand.method, errand.subject)
            if errand.mirrored:
                headers |= eras.parameter_headers(errand.mirrored, eras.decoded_arguments(errand.arguments))
        return await self._run(Exchange(key, errand.method, params, headers), self._patience.request, client)

    async def _speak_up(self, level: str | None) -> None:
        """A server of the session era has one log level for all: the most talkative that anybody wants."""
        if level is None or "logging" not in self.introduction.capabilities:
            return
        if self._log_level is None or eras.more_talkative(level, self._log_level):
            self._log_level = level
            with contextlib.suppress(UpstreamError):
                await self.request("logging/setLevel", b'{"level":%b}' % jsonrpc.quote(level), seconds=5)

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

    async def _run(
        self,
        exchange: Exchange,
        seconds: float,
        client: Counterpart | None = None,
        hear: Hear | None = None,
    ) -> bytes:
        if self._ending is not None:
            raise NotSent(self._ending.reason)
        deadline = self._deadlines.begin(seconds, self._patience.request_cap)
        running = self._running[exchange.key] = Running(deadline, client, hear)
        try:
            return await self._wire.exchange(exchange)
        except asyncio.CancelledError:
            self._deadlines.end(deadline)
            if not deadline.took_effect():
                await self._withdraw(exchange, "the caller went away")
                raise
            if self._ending is not None:
                raise (Lost if exchange.sent else NotSent)(self._ending.reason) from None
            await self._withdraw(exchange, "timed out")
            raise UpstreamTimeout(f"no answer within {deadline.waited():.3g} s") from None
        finally:
            self._deadlines.end(deadline)
            del self._running[exchange.key]
            if running.questions:
                running.end()

    async def _withdraw(self, exchange: Exchange, reason: str) -> None:
        if exchange.sent and self._ending is None and exchange.method != "initialize":
            await asyncio.shield(self._wire.cancel(exchange, reason))

    # What the server sends unasked

    def on_request(self, identity: RpcId, method: str, params: bytes, asked_by: int | None) -> None:
        if len(self._answers) >= MOST_ANSWERS_UNDER_WAY:
            self.on_noise("more requests than can be answered")
            return
        running = self._whose(asked_by) if method in QUESTIONS else None
        if method in QUESTIONS and asked_by is None and not self._one_at_a_time:
            self._one_at_a_time = True
            log.info("%s asks without saying in which call: its calls now run one at a time", self.name)
        task = asyncio.get_running_loop().create_task(answer_to(identity, method, params, running))
        self._answers[identity] = task
        task.add_done_callback(lambda done: self._send_answer(identity, done))
        if running is not None:
            running.questions.add(task)

    def _whose(self, asked_by: int | None) -> Running | None:
        """The request in whose course the server says something; where it does not say, the only one."""
        if asked_by is not None:
            return self._running.get(asked_by)
        relayed = [running for running in self._running.values() if running.client is not None]
        return relayed[0] if len(relayed) == 1 else None

    def _send_answer(self, identity: RpcId, done: asyncio.Task[bytes]) -> None:
        if self._answers.get(identity) is done:
            del self._answers[identity]
        if not done.cancelled() and self._ending is None:
            sending = asyncio.get_running_loop().create_task(self._answer(done.result()))
            self._sending.add(sending)
            sending.add_done_callback(self._sending.discard)

    async def _answer(self, message: bytes) -> None:
        with contextlib.suppress(UpstreamError):
            await self._wire.answer(message)

    def on_notification(self, method: str, params: bytes, asked_by: int | None) -> None:
        if method == "notifications/progress":
            token = eras.progress_token(params)
            running = self._running.get(token) if isinstance(token, int) else None
            if running is not None:
                running.on_progress(params)
        elif method == "notifications/message":
            spoken_in = self._whose(asked_by)
            if spoken_in is not None and spoken_in.client is not None:
                spoken_in.client.on_log(params)
        elif method == "notifications/cancelled":
            question = self._answers.get(eras.cancelled_id(params))
            if question is not None:
                question.cancel()
        elif method in _CHANGES:
            self._on_lists_changed()
        elif method in _SUBSCRIBED:
            self._on_subscribed(method, params, asked_by)
        elif method in eras.TOLD:
            self._on_told(method, params)

    def _on_subscribed(self, method: str, params: bytes, asked_by: int | None) -> None:
        """Where the wire does not know to which subscription it belongs, the notification says so."""
        key = asked_by if asked_by is not None else eras.subscription_of(params)
        running = self._running.get(key) if isinstance(key, int) else None
        if running is not None and running.hear is not None:
            running.hear(method, params)
        elif method == ACKNOWLEDGED and self._subscription is not None:
            self._subscription.on_acknowledged()

    def on_noise(self, reason: str) -> None:
        self._on_noise()
        if self._noise_log.passes():
            held = f" ({self._noise_log.held_back} more before)" if self._noise_log.held_back else ""
            self._noise_log.held_back = 0
            log.warning("%s: %s%s", self.name, reason, held, extra={"server": self.name})

    def on_lost(self, error: UpstreamError) -> None:
        error.reason = self._with_epitaph(error.reason)
        self.fail(error)


def _tells_changes(introduction: Introduction, kind: str) -> bool:
    capability = introduction.capabilities.get(kind)
    return isinstance(capability, dict) and capability.get("listChanged") is True
