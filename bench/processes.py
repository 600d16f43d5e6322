"""The processes of a benchmark: start, pin to a core, measure, and never leave one behind.

Each started process reports its address as its first line of output, and dies with the one that started
it where the system can do that (Linux). Knows nothing of what they run. Used by `load.py` and `route.py`.
"""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import psutil

_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG
_GRACE = 10.0


class BenchError(Exception):
    """The benchmark cannot go on; the text says why."""


class Usage(NamedTuple):
    cpu_seconds: float
    rss_bytes: int


def usage(pid: int) -> Usage:
    """Of a process and all that live under it."""
    cpu, rss = 0.0, 0
    with suppress(psutil.NoSuchProcess):
        root = psutil.Process(pid)
        for process in (root, *root.children(recursive=True)):
            with suppress(psutil.NoSuchProcess), process.oneshot():
                times = process.cpu_times()
                cpu += times.user + times.system
                rss += process.memory_info().rss
    return Usage(cpu, rss)


def two_cores() -> tuple[int, int] | None:
    """One core for what is measured and one for the rest; None where nothing can be pinned."""
    if sys.platform != "linux":
        return None
    allowed = sorted(os.sched_getaffinity(0))
    return (allowed[0], allowed[1]) if len(allowed) > 1 else None


def settle(core: int | None) -> Callable[[], None] | None:
    """What a new process does before it becomes the program: takes its core, ties its life to ours."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl
    place = {core} if core is not None else os.sched_getaffinity(0)

    def before_exec() -> None:
        os.sched_setaffinity(0, place)
        prctl(_DEATH_SIGNAL, signal.SIGTERM)

    return before_exec


class Running:
    """A started process, with what it wrote kept in files."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], out: Path, err: Path) -> None:
        self.name = name
        self._process = process
        self._out = out
        self._err = err

    @property
    def pid(self) -> int:
        return self._process.pid

    def address(self, seconds: float = 20.0) -> str:
        """The first line of its output, waited for."""

        def first_line() -> str | None:
            line, end, _ = self._out.read_text().partition("\n")
            return line if end else None

        return self.wait_for(first_line, "its address", seconds)

    def wait_for(self, look: Callable[[], str | None], what: str, seconds: float) -> str:
        """What `look` finds, as soon as it finds something, while the process lives."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise BenchError(
                    f"{self.name} ended with code {self._process.returncode}{self._last_words()}"
                )
            if found := look():
                return found
            time.sleep(0.02)
        raise BenchError(f"{self.name} did not show {what} within {seconds:g} s{self._last_words()}")

    def stop(self) -> None:
        """In good order, then by force."""
        if self._process.poll() is not None:
            return
        self._process.terminate()
        try:
            self._process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def _last_words(self) -> str:
        lines = self._err.read_text(errors="replace").strip().splitlines()[-8:]
        return "".join("\n  " + line for line in lines)


@contextmanager
def running(
    name: str,
    arguments: Sequence[str],
    *,
    folder: Path,
    core: int | None,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Running]:
    """`python -m …` in its own process group, stopped at the end whatever happens."""
    out, err = folder / f"{name}.out", folder / f"{name}.err"
    with out.open("wb") as out_file, err.open("wb") as err_file:
        process = subprocess.Popen(
            [sys.executable, "-m", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=out_file,
            stderr=err_file,
            env=environment,
            start_new_session=True,
            preexec_fn=settle(core),
        )
    started = Running(name, process, out, err)
    try:
        yield started
    finally:
        started.stop()
