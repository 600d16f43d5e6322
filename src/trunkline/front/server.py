"""Runs the front: one socket, one event loop, one gateway, from the first byte to an orderly end.

The first SIGTERM or SIGINT drains (new calls are refused with Retry-After, those in flight finish) and ends
with exit code 0; a second one forces. `cli` calls `run`; who has an event loop already calls `serve`.
"""

import asyncio
import contextlib
import errno
import logging
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from typing import Any

import uvicorn

from trunkline.core.gateway import Gateway
from trunkline.errors import StartRefused
from trunkline.front.asgi import Front
from trunkline.front.connections import Patience, PatientConnection
from trunkline.front.origins import bracketed
from trunkline.settings import Settings

log = logging.getLogger(__name__)

OpenGateway = Callable[[Settings], AbstractAsyncContextManager[Gateway]]
OnListening = Callable[[str], None]

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
LINGER = 1
"""Seconds that answers still being written get after the calls have ended."""
BACKLOG = 2048
FORCED = 1
"""Exit code when a second signal cut the end short."""

_LOOPBACK_OF = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def run(settings: Settings, open_gateway: OpenGateway, on_listening: OnListening | None = None) -> int:
    """Serve until told to stop; the exit code. Raises `StartRefused`."""
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(serve(settings, open_gateway, on_listening))


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Makes the event loop a gateway is meant to run in."""
    return _config(Patience()).get_loop_factory()


async def serve(
    settings: Settings,
    open_gateway: OpenGateway,
    on_listening: OnListening | None = None,
    *,
    patience: Patience | None = None,
) -> int:
    """The same in a running event loop, whose signal handlers it takes while it serves.

    `on_listening` hears the address clients can use, with the real port.
    """
    with listen(settings.host, settings.port) as listener, _Stop().on_signals() as stop:
        try:
            async with open_gateway(settings) as gateway:
                stop.opened(gateway.end_children)
                front = Front(gateway)
                server = _Server(_config(patience or Patience(), front))
                serving = asyncio.ensure_future(server.serve(sockets=[listener]))
                try:
                    await server.listening(serving)
                    if on_listening is not None:
                        on_listening(address_of(listener))
                    await stop.asked_or(serving)
                    front.stop()
                    await _drain(gateway, stop)
                finally:
                    front.close()
                    await server.finish(serving, stop)
        except asyncio.CancelledError:
            if not stop.asked_while_opening:
                raise
    return FORCED if stop.forced.is_set() else 0


async def _drain(gateway: Gateway, stop: "_Stop") -> None:
    """While it lasts the front still answers: those who call now are told when to come back."""
    log.info("Stopping: waiting for calls in flight")
    forced, draining = asyncio.ensure_future(stop.forced.wait()), asyncio.ensure_future(gateway.drain())
    try:
        await _first_of(draining, forced)
    finally:
        forced.cancel()
        draining.cancel()


async def _first_of(*futures: asyncio.Future[Any]) -> None:
    await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)


class _Stop:
    """Counts the signals: the first asks, the second forces, a third is left to the system."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.forced = asyncio.Event()
        self.asked_while_opening = False
        self._opening = asyncio.current_task()
        self._on_forced: Callable[[], None] | None = None

    @contextlib.contextmanager
    def on_signals(self) -> Iterator["_Stop"]:
        loop = asyncio.get_running_loop()
        for number in STOP_SIGNALS:
            loop.add_signal_handler(number, self._heard)
        try:
            yield self
        finally:
            for number in STOP_SIGNALS:
                loop.remove_signal_handler(number)

    def opened(self, on_forced: Callable[[], None]) -> None:
        self._opening = None
        self._on_forced = on_forced

    async def asked_or(self, serving: asyncio.Future[None]) -> None:
        asked = asyncio.ensure_future(self.asked.wait())
        await _first_of(asked, serving)
        asked.cancel()

    def _heard(self) -> None:
        if not self.asked.is_set():
            self.asked.set()
            if self._opening is not None:
                self.asked_while_opening = True
                self._opening.cancel()
            return
        self.forced.set()
        if self._on_forced is not None:
            self._on_forced()
        loop = asyncio.get_running_loop()
        for number in STOP_SIGNALS:
            loop.remove_signal_handler(number)


class _Server(uvicorn.Server):
    """uvicorn's server without its signal handling, which would end the process by the signal."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._ready = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready.set()

    async def finish(self, serving: asyncio.Future[None], stop: "_Stop") -> None:
        """Close what is open; answers still being written get a moment, unless the end is forced."""
        self.should_exit = True
        forced = asyncio.ensure_future(stop.forced.wait())
        await _first_of(serving, forced)
        self.force_exit = stop.forced.is_set()
        forced.cancel()
        await serving
        if self.force_exit and self.started:
            await (
                self.lifespan.shutdown()
            )  # left out by uvicorn then: it would be cancelled, with a traceback

    async def listening(self, serving: asyncio.Future[None]) -> None:
        ready = asyncio.ensure_future(self._ready.wait())
        await _first_of(ready, serving)
        ready.cancel()


def _config(patience: Patience, app: Front | None = None) -> uvicorn.Config:
    protocol = type("PatientConnection", (PatientConnection,), {"patience": patience})
    return uvicorn.Config(
        app or "",
        loop="asyncio" if sys.platform == "win32" else "uvloop",
        http=protocol,
        ws="none",
        lifespan="on",
        log_config=None,
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,  # a header that any client can send is no address for the audit
        timeout_keep_alive=int(patience.idle_seconds),
        timeout_graceful_shutdown=LINGER,
        backlog=BACKLOG,
    )


def listen(host: str, port: int) -> socket.socket:
    """The socket, taken before anything else is opened. Raises `StartRefused`."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError:
        raise StartRefused(
            f"The host {host!r} is not known: choose an address of this machine with --host"
        ) from None
    family, kind, protocol, _, address = min(found, key=lambda entry: entry[0] != socket.AF_INET)
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise StartRefused(_why(host, port, error)) from None
    return listener


def _why(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"Port {port} on {host} is in use: stop what listens there, or choose another port with --port "
            "or MCP_AGGREGATOR_PORT (0 takes a free one)"
        )
    if error.errno == errno.EACCES:
        return f"Port {port} may not be opened by this user: choose one above 1023 with --port"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"{host} is not an address of this machine: choose one with --host"
    return f"Cannot listen on {host} port {port}: {error.strerror}"


def address_of(listener: socket.socket) -> str:
    """As a client on this machine can use it."""
    host, port = listener.getsockname()[:2]
    return f"http://{bracketed(_LOOPBACK_OF.get(host, host))}:{port}"
