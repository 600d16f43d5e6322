"""Runs the front: one socket, one event loop, one gateway, from the first byte to an orderly end.

The first SIGTERM or SIGINT drains (new calls are refused with Retry-After, those in flight finish) and ends
with exit code 0; a second one forces. `cli` calls `run`; who has an event loop already calls `serve`.
"""

import asyncio
import contextlib
import dataclasses
import errno
import logging
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from typing import Any

import uvloop

from trunkline.core.gateway import Gateway
from trunkline.errors import StartRefused
from trunkline.front.client_connection import ClientConnection
from trunkline.front.connections import Connections, Patience
from trunkline.front.entrance import Front
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
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(serve(settings, open_gateway, on_listening))


def new_event_loop() -> asyncio.AbstractEventLoop:
    """The one a gateway is meant to run in."""
    return uvloop.new_event_loop()


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
                connections = Connections(_patience(patience or Patience(), settings))
                server = await asyncio.get_running_loop().create_server(
                    lambda: ClientConnection(front, connections), sock=listener, backlog=BACKLOG
                )
                try:
                    if on_listening is not None:
                        on_listening(address_of(listener))
                    await stop.asked.wait()
                    front.stop()
                    await _drain(gateway, stop)
                finally:
                    server.close()
                    front.close()
                    await _first_of(
                        asyncio.ensure_future(connections.finish(LINGER)),
                        asyncio.ensure_future(stop.forced.wait()),
                    )
        except asyncio.CancelledError:
            if not stop.asked_while_opening:
                raise
    return FORCED if stop.forced.is_set() else 0


def _patience(patience: Patience, settings: Settings) -> Patience:
    return dataclasses.replace(patience, body_seconds=settings.body_timeout, body_bytes=settings.body_limit)


async def _drain(gateway: Gateway, stop: "_Stop") -> None:
    """While it lasts the front still answers: those who call now are told when to come back."""
    log.info("Stopping: waiting for calls in flight")
    await _first_of(asyncio.ensure_future(gateway.drain()), asyncio.ensure_future(stop.forced.wait()))


async def _first_of(*futures: asyncio.Future[Any]) -> None:
    """Returns when one is done; the others are cancelled."""
    try:
        await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for future in futures:
            future.cancel()


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
