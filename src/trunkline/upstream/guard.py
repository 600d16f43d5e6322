"""The guard: a small process that starts every STDIO server for the gateway and lets none outlive it.

Run as a program by `spawner.py`, once for a whole gateway; standard library only, one thread. It adopts
orphans (Linux subreaper), so a server's grandchildren stay in its reach whatever they do to their session
or their parent. When the gateway's end of the socket closes, in order or by SIGKILL, it ends everything
and itself. It knows nothing of MCP: it never sees a byte of the pipes it hands on. Where there is neither
subreaper nor /proc (macOS) its reach is a server's process group.
"""

import ctypes
import errno
import json
import os
import resource
import selectors
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, NoReturn

MARKER = "TRUNKLINE_CHILD"
"""Every server is started with this variable and hands it down: it tells whose an orphan is."""

FDS_OF_A_START = 3
"""Standard input, output and error, sent along with the order to start."""

_HEADER = struct.Struct(">I")
_ERRNO = struct.Struct("i")

_SET_PDEATHSIG = 1
_SET_CHILD_SUBREAPER = 36
_TERM_GRACE = 0.5
_GIVE_UP = 5.0
"""What SIGKILL does not end in this time (an uninterruptible wait, another user's process) is given up."""
_TICK = 0.01
_QUIET_LOOKS = 2
"""Reading /proc is no snapshot: a process can change its parent under the reader and be overlooked once."""
_HAS_PROC = os.path.exists("/proc/self/stat")


def frame(message: Mapping[str, Any]) -> bytes:
    body = json.dumps(message).encode("ascii")
    return _HEADER.pack(len(body)) + body


def take_frames(buffer: bytearray) -> list[dict[str, Any]]:
    """Remove and return the messages that are complete."""
    messages = []
    while len(buffer) >= _HEADER.size:
        end = _HEADER.size + _HEADER.unpack_from(buffer)[0]
        if len(buffer) < end:
            break
        messages.append(json.loads(buffer[_HEADER.size : end]))
        del buffer[:end]
    return messages


class Process(NamedTuple):
    pid: int
    parent: int
    session: int


def living() -> dict[int, Process]:
    """Every process that is no zombie, by pid."""
    found = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/stat", "rb") as file:
                state, parent, _group, session = file.read().rpartition(b")")[2].split(None, 4)[:4]
        except (OSError, ValueError):
            continue
        if state not in (b"Z", b"X"):
            found[int(entry)] = Process(int(entry), int(parent), int(session))
    return found


def mark_of(pid: int) -> str | None:
    """The value of the marker in a process's environment, where it can be read."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            variables = file.read().split(b"\0")
    except OSError:
        return None
    prefix = MARKER.encode() + b"="
    found = next((line for line in variables if line.startswith(prefix)), None)
    return found[len(prefix) :].decode("ascii", "replace") if found else None


def kill(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return


def kill_marked(token: str) -> None:
    """For the gateway, when its guard has died: end what that guard had started, as far as it is marked."""
    if not _HAS_PROC:
        return
    give_up = time.monotonic() + _GIVE_UP
    while time.monotonic() < give_up:
        marked = [pid for pid in living() if (mark_of(pid) or "").startswith(token + "/")]
        if not marked:
            return
        for pid in marked:
            kill(pid, signal.SIGKILL)
        time.sleep(_TICK)


def _prctl() -> Callable[..., int] | None:
    if not sys.platform.startswith("linux"):
        return None
    found: Callable[..., int] = ctypes.CDLL(None).prctl
    return found


class _Held:
    """A server the guard has started."""

    def __init__(self, identity: int, pid: int, report: int) -> None:
        self.identity = identity
        self.pid: int | None = pid
        """None once it has been reaped: the number may then belong to somebody else."""
        self.group = pid
        self.report: int | None = report
        """Where the child says why it could not become the program; closed by becoming it."""
        self.refused = False
        self.give_up: float | None = None
        """Set while it is being swept."""
        self.quiet_looks = 0


class Guard:
    def __init__(self, link: socket.socket, token: str) -> None:
        self._link = link
        self._token = token
        self._inbound = bytearray()
        self._received: list[int] = []
        self._held: dict[int, _Held] = {}
        self._next_tick = 0.0
        self._pid = os.getpid()
        self._prctl = _prctl()
        self._adopts = self._prctl is not None and self._prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
        self._selector = selectors.DefaultSelector()
        self._woken, wake = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._selector.register(self._woken, selectors.EVENT_READ, self._drain_wakeups)
        self._selector.register(link, selectors.EVENT_READ, self._read_orders)

    def serve(self) -> None:
        """Until the gateway's end of the socket is closed."""
        try:
            while True:
                sweeping = any(held.give_up is not None for held in self._held.values())
                for key, _ in self._selector.select(_TICK if sweeping else None):
                    key.data()
                self._reap()
                if sweeping and time.monotonic() >= self._next_tick:
                    self._sweep_on()
                    self._next_tick = time.monotonic() + _TICK
        except (EOFError, ConnectionError):
            return
        except Exception as error:
            self._tell(event="failed", reason=repr(error))
            raise
        finally:
            self._end_everything()

    # Orders

    def _drain_wakeups(self) -> None:
        os.read(self._woken, 4096)

    def _read_orders(self) -> None:
        cloexec = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
        data, fds, flags, _ = socket.recv_fds(self._link, 65536, 4 * FDS_OF_A_START, cloexec)
        if flags & socket.MSG_CTRUNC:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        self._received += fds
        if not data:
            raise EOFError
        self._inbound += data
        for order in take_frames(self._inbound):
            self._obey(order)

    def _obey(self, order: dict[str, Any]) -> None:
        identity = order["id"]
        if order["do"] == "start":
            # Descriptors arrive no later than the last byte of their order, and in the order of orders.
            fds, self._received = self._received[:FDS_OF_A_START], self._received[FDS_OF_A_START:]
            self._start(identity, order["argv"], order["env"], fds)
        elif (held := self._held.get(identity)) is None:
            if order["do"] == "sweep":
                self._tell(id=identity, event="swept", left=0)
        elif order["do"] == "signal":
            self._strike(held, order["signal"])
        else:
            held.give_up = time.monotonic() + _GIVE_UP

    def _tell(self, **message: Any) -> None:
        self._link.sendall(frame(message))

    # Starting

    def _start(self, identity: int, argv: list[str], env: dict[str, str], fds: list[int]) -> None:
        marked = {**env, MARKER: f"{self._token}/{identity}"}
        report, told = os.pipe()
        try:
            pid = os.fork()
        except OSError as error:
            os.close(report)
            self._tell(id=identity, event="refused", errno=error.errno)
        else:
            if pid == 0:
                self._become(argv, marked, fds, told)
            self._held[identity] = held = _Held(identity, pid, report)
            self._selector.register(report, selectors.EVENT_READ, lambda: self._started(held))
        for fd in (*fds, told):
            os.close(fd)

    def _become(self, argv: list[str], env: dict[str, str], fds: list[int], told: int) -> NoReturn:
        """In the child: turn into the program, or say why not."""
        try:
            os.setsid()
            if self._prctl is not None:
                self._prctl(_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
                if os.getppid() != self._pid:
                    os._exit(127)
            for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            for target, fd in enumerate(fds):
                os.dup2(fd, target)
            last = FDS_OF_A_START
            if told != last:
                os.dup2(told, last, inheritable=False)
            told = last
            os.closerange(last + 1, os.sysconf("SC_OPEN_MAX"))
            os.execve(argv[0], argv, env)  # noqa: S606 (the gateway has judged the command line)
        except OSError as error:
            os.write(told, _ERRNO.pack(error.errno or errno.EINVAL))
        except BaseException:
            os.write(told, _ERRNO.pack(errno.EINVAL))
        finally:
            os._exit(127)

    def _started(self, held: _Held) -> None:
        """The report has come, or ended without a word because the child has become the program."""
        if held.report is None:
            return
        reason = os.read(held.report, _ERRNO.size)
        self._selector.unregister(held.report)
        os.close(held.report)
        held.report = None
        if reason:
            held.refused = True
            self._tell(id=held.identity, event="refused", errno=_ERRNO.unpack(reason)[0])
        else:
            self._tell(id=held.identity, event="started", pid=held.pid)

    # Ending

    def _reap(self) -> None:
        """Collect everything that has ended: servers, and the orphans that were adopted."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            held = next((held for held in self._held.values() if held.pid == pid), None)
            if held is not None:
                self._ended(held, os.waitstatus_to_exitcode(status))

    def _ended(self, held: _Held, status: int) -> None:
        self._started(held)
        held.pid = None
        if held.refused:
            del self._held[held.identity]
            if held.give_up is not None:
                self._tell(id=held.identity, event="swept", left=0)
        else:
            self._tell(id=held.identity, event="exited", status=status)

    def _strike(self, held: _Held, number: int) -> None:
        """Signal the server and everything that came of it."""
        if held.pid is not None or not _HAS_PROC:
            _kill_group(held.group, number)
        for pid in self._belongings().get(held.identity, ()):
            kill(pid, number)

    def _sweep_on(self) -> None:
        """One more stroke at every server being swept; those of which nothing is left are done."""
        belongings = self._belongings()
        now = time.monotonic()
        for held in [held for held in self._held.values() if held.give_up is not None]:
            if held.pid is not None or not _HAS_PROC:
                reached = _kill_group(held.group, signal.SIGKILL)
            else:
                reached = False
            pids = belongings.get(held.identity, set())
            if len(self._held) == 1:
                pids = pids.union(*belongings.values())
            for pid in pids:
                kill(pid, signal.SIGKILL)
            held.quiet_looks = 0 if pids or reached or held.pid is not None else held.quiet_looks + 1
            if held.quiet_looks >= _QUIET_LOOKS or now > (held.give_up or 0):
                del self._held[held.identity]
                self._tell(id=held.identity, event="swept", left=len(pids))

    def _belongings(self) -> dict[int | None, set[int]]:
        """Living processes by the server they came of; under None the orphans nothing tells apart."""
        if not _HAS_PROC:
            return {}
        processes = living()
        children: dict[int, list[Process]] = {}
        for process in processes.values():
            children.setdefault(process.parent, []).append(process)
        roots = list(children.get(self._pid, ()))
        if not self._adopts:
            roots += [process for process in processes.values() if process.parent != self._pid]
        by_pid = {held.pid: held.identity for held in self._held.values()}
        by_session = {held.group: held.identity for held in self._held.values()}
        found: dict[int | None, set[int]] = {}
        for root in roots:
            owner = by_pid.get(root.pid) or self._marked(root.pid) or by_session.get(root.session)
            if owner is None and root.parent != self._pid:
                continue
            found.setdefault(owner, set()).update(_tree(root.pid, children))
        return found

    def _marked(self, pid: int) -> int | None:
        token, _, identity = (mark_of(pid) or "").partition("/")
        if token != self._token or not identity.isdigit() or int(identity) not in self._held:
            return None
        return int(identity)

    def _end_everything(self) -> None:
        """TERM, a moment, then KILL until nothing is left."""
        began = time.monotonic()
        number: int = signal.SIGTERM
        quiet_looks = 0
        while quiet_looks < _QUIET_LOOKS and time.monotonic() < began + _GIVE_UP:
            quiet_looks = 0 if self._strike_all(number) else quiet_looks + 1
            time.sleep(_TICK)
            number = signal.SIGKILL if time.monotonic() > began + _TERM_GRACE else 0

    def _strike_all(self, number: int) -> bool:
        """Signal all there is; whether there was anything."""
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            if self._adopts:
                return False
        if not _HAS_PROC:
            return any([_kill_group(held.group, number) for held in self._held.values()])  # noqa: C419 (all)
        pids: set[int] = set().union(*self._belongings().values())
        for pid in pids:
            kill(pid, number)
        return bool(pids)


def _tree(root: int, children: Mapping[int, Iterable[Process]]) -> set[int]:
    found: set[int] = set()
    pending = [root]
    while pending:
        pid = pending.pop()
        if pid not in found:
            found.add(pid)
            pending += [child.pid for child in children.get(pid, ())]
    return found


def _kill_group(group: int, number: int) -> bool:
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def main() -> None:
    link = socket.socket(fileno=int(sys.argv[1]))
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    Guard(link, sys.argv[2]).serve()


if __name__ == "__main__":
    main()
