"""The gateway's side of the guard: starts it when the first STDIO server needs it, and speaks with it.

One `Spawner` serves a whole gateway. It hands pipes and a command line to the guard and tells a `Child`
what became of it. When the guard itself is gone every child of its counts as ended, and the next start
makes a new guard. It knows processes, no protocol; `stdio.py` owns the pipes.
"""

import asyncio
import logging
import os
import secrets
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from trunkline.upstream import guard

log = logging.getLogger(__name__)

_START_BOUND = 10.0
_SWEEP_BOUND = 10.0
_GUARD_END_BOUND = 7.0
_FOR_THE_LOADER = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")


class GuardLost(Exception):
    """The guard could not be started, is gone, or does not answer."""


class Child:
    """A server's process, as long as anything of it may be left."""

    def __init__(self, link: "_Link", identity: int) -> None:
        loop = asyncio.get_running_loop()
        self._link = link
        self._identity = identity
        self.started: asyncio.Future[int | OSError | GuardLost] = loop.create_future()
        self.exited: asyncio.Future[int | None] = loop.create_future()
        """The exit status (negative: the signal), or None when its guard went away and took it along."""
        self.swept: asyncio.Future[int] = loop.create_future()

    async def wait_started(self) -> None:
        """Raises `OSError` when the program cannot be started, `GuardLost` when that is not its fault."""
        try:
            async with asyncio.timeout(_START_BOUND):
                outcome = await asyncio.shield(self.started)
        except TimeoutError:
            raise GuardLost(f"The process guard did not answer within {_START_BOUND:g} s") from None
        if isinstance(outcome, Exception):
            raise outcome

    def signal(self, number: int) -> None:
        """To the process and everything that came of it."""
        self._link.send({"do": "signal", "id": self._identity, "signal": number})

    async def sweep(self) -> None:
        """SIGKILL what is left, and return when nothing is."""
        self._link.send({"do": "sweep", "id": self._identity})
        try:
            async with asyncio.timeout(_SWEEP_BOUND):
                left = await asyncio.shield(self.swept)
        except TimeoutError:
            log.warning("The process guard did not answer a sweep within %g s", _SWEEP_BOUND)
        else:
            if left:
                log.warning("%d processes of an STDIO server could not be ended", left)


class Spawner:
    def __init__(self) -> None:
        self._link: _Link | None = None
        self._count = 0
        self._ending = False

    def start(self, argv: Sequence[str], env: Mapping[str, str], fds: Sequence[int]) -> Child:
        """Order `argv[0]`, an absolute path, started on these descriptors, taken over in every case.

        Raises `GuardLost`; what becomes of the order is told by the child.
        """
        try:
            link = self._living_link()
        except GuardLost:
            for fd in fds:
                os.close(fd)
            raise
        self._count += 1
        child = link.adopt(self._count)
        link.send({"do": "start", "id": self._count, "argv": list(argv), "env": dict(env)}, fds)
        return child

    def _living_link(self) -> "_Link":
        if self._ending:
            raise GuardLost("The gateway is ending")
        if self._link is None or self._link.lost:
            try:
                self._link = _Link()
            except OSError as error:
                raise GuardLost(f"The process guard could not be started: {error.strerror}") from error
        return self._link

    @property
    def guard_pid(self) -> int | None:
        """For whoever looks after the processes of the gateway."""
        return self._link.pid if self._link is not None and not self._link.lost else None

    def end_children(self) -> None:
        """SIGKILL every server, and start none any more."""
        self._ending = True
        if self._link is not None:
            self._link.end_children()

    async def close(self) -> None:
        """End the guard, and with it every server that is left."""
        link, self._link = self._link, None
        if link is not None:
            await link.close()


class _Link:
    """One guard's life."""

    def __init__(self) -> None:
        self.lost = False
        self._children: dict[int, Child] = {}
        self._outbound: deque[tuple[memoryview, tuple[int, ...]]] = deque()
        self._inbound = bytearray()
        self._writing = False
        self._token = secrets.token_hex(8)
        self._loop = asyncio.get_running_loop()
        self._last_rites: asyncio.Task[None] | None = None
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.setblocking(False)
        try:
            self._process = _start_guard(theirs.fileno(), self._token)
        except OSError:
            self._socket.close()
            raise
        finally:
            theirs.close()
        self._loop.add_reader(self._socket.fileno(), self._readable)

    @property
    def pid(self) -> int:
        return self._process.pid

    def adopt(self, identity: int) -> Child:
        child = self._children[identity] = Child(self, identity)
        return child

    def send(self, message: Mapping[str, Any], fds: Sequence[int] = ()) -> None:
        """In order and never waiting: what the socket does not take yet goes when it does."""
        if self.lost:
            for fd in fds:
                os.close(fd)
            return
        self._outbound.append((memoryview(guard.frame(message)), tuple(fds)))
        if not self._writing:
            self._flush()

    def end_children(self) -> None:
        for identity in list(self._children):
            self.send({"do": "sweep", "id": identity})

    def _flush(self) -> None:
        while self._outbound:
            data, fds = self._outbound[0]
            try:
                sent = socket.send_fds(self._socket, [data], fds) if fds else self._socket.send(data)
            except BlockingIOError:
                break
            except OSError:
                self._lose()
                return
            for fd in fds:
                os.close(fd)
            if sent < len(data):
                self._outbound[0] = (data[sent:], ())
            else:
                self._outbound.popleft()
        self._watch_writable(bool(self._outbound))

    def _watch_writable(self, wanted: bool) -> None:
        if wanted and not self._writing:
            self._loop.add_writer(self._socket.fileno(), self._flush)
        elif self._writing and not wanted:
            self._loop.remove_writer(self._socket.fileno())
        self._writing = wanted

    def _readable(self) -> None:
        try:
            data = self._socket.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._lose()
            return
        self._inbound += data
        for message in guard.take_frames(self._inbound):
            self._hear(message)

    def _hear(self, message: Mapping[str, Any]) -> None:
        event = message["event"]
        if event == "failed":
            log.error("The process guard failed: %s", message["reason"])
            return
        child = self._children.get(message["id"])
        if child is None:
            return
        if event == "started":
            child.started.set_result(message["pid"])
        elif event == "refused":
            del self._children[message["id"]]
            child.started.set_result(OSError(message["errno"], os.strerror(message["errno"])))
            child.exited.set_result(None)
            child.swept.set_result(0)
        elif event == "exited":
            child.exited.set_result(message["status"])
        elif event == "swept":
            del self._children[message["id"]]
            child.swept.set_result(message["left"])

    def _lose(self) -> None:
        """The guard is gone, whoever ended it; the kernel has killed what it started itself."""
        if self.lost:
            return
        self.lost = True
        self._loop.remove_reader(self._socket.fileno())
        self._watch_writable(False)
        self._socket.close()
        for _, fds in self._outbound:
            for fd in fds:
                os.close(fd)
        self._outbound.clear()
        self._last_rites = self._loop.create_task(self._bury())

    async def _bury(self) -> None:
        children, self._children = list(self._children.values()), {}
        for child in children:
            if not child.started.done():
                child.started.set_result(GuardLost("The process guard is gone"))
            if not child.exited.done():
                child.exited.set_result(None)
        await asyncio.to_thread(self._bury_in_thread)
        for child in children:
            if not child.swept.done():
                child.swept.set_result(0)

    def _bury_in_thread(self) -> None:
        try:
            self._process.wait(_GUARD_END_BOUND)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        guard.kill_marked(self._token)

    async def close(self) -> None:
        self._lose()
        if self._last_rites is not None:
            await asyncio.shield(self._last_rites)


def _start_guard(link: int, token: str) -> subprocess.Popen[bytes]:
    """Without the gateway's environment, which holds secrets, and in a session no terminal signals."""
    return subprocess.Popen(  # noqa: S603 (our own file, run by our own interpreter)
        [sys.executable, "-I", "-S", "-X", "utf8", guard.__file__, str(link), token],
        env={name: os.environ[name] for name in _FOR_THE_LOADER if name in os.environ},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=(link,),
        start_new_session=True,
    )
