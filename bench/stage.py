"""What every benchmark of calls stands on: an upstream that counts, targets, one measured window at a time.

What is measured has one core; load and upstream have another. Also the circumstances of a run and the
options that several commands share. `route.py` and `mcp.py` put their targets on it.
"""

import argparse
import os
import platform
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import msgspec

from bench.gateway import SERVERS, START_SECONDS, Gateway
from bench.load import Measurement, Mode
from bench.processes import BenchError, Running, running, settle, two_cores
from bench.report import Sample
from bench.upstream import Stats

SERVER = "bench"
_WARMUP = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    name: str
    url: str
    mode: Mode
    tool: str
    pid: int
    token_file: Path | None = None
    listed: int = 0


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """The circumstances, without which the numbers mean little."""

    python: str
    system: str
    cores: int
    pinned: bool
    load_before: float
    load_after: float
    rounds: int
    seconds: float
    tools: int

    def __str__(self) -> str:
        return (
            f"{self.cores} cores, {'pinned' if self.pinned else 'not pinned'}, Python {self.python}, "
            f"load {self.load_before:.1f} before and {self.load_after:.1f} after; "
            f"{self.rounds} rounds, {self.tools} tools"
        )


def facts(stage: "Stage", *, load_before: float, rounds: int, seconds: float, tools: int) -> Facts:
    return Facts(
        python=platform.python_version(),
        system=f"{platform.system()} {platform.machine()}",
        cores=os.cpu_count() or 1,
        pinned=stage.pinned,
        load_before=load_before,
        load_after=os.getloadavg()[0],
        rounds=rounds,
        seconds=seconds,
        tools=tools,
    )


class Stage:
    """The processes of one run and the folder they live in; its upstream is up."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self.stack = stack
        cores = two_cores()
        self.pinned = cores is not None
        self.measured_core = cores[0] if cores else None
        self._load_core = cores[1] if cores else None
        self.upstream = self._run("upstream", "bench.upstream", core=self._load_core)
        self.upstream_url = self.upstream.address()

    def endpoint(self, tools: int) -> str:
        """The upstream's MCP address with so many tools."""
        return f"{self.upstream_url}/t{tools}/mcp"

    def floor(self, tools: int) -> Running:
        return self._run("floor", "bench.floor", "--upstream", self.endpoint(tools), core=self.measured_core)

    def gateway(self, upstreams: Mapping[str, int], name: str = "gateway") -> Gateway:
        """With a server for each upstream, connected and listed: name → how many tools it has."""
        folder = self.folder / name
        folder.mkdir()
        gateway = Gateway(self.stack, folder, core=self.measured_core)
        for server, tools in upstreams.items():
            gateway.register(server, "HTTP", {"base_url": self.endpoint(tools)})
        for server, tools in upstreams.items():
            until_listed(gateway, server, tools)
        return gateway

    def take(self, target: Target, callers: int, number: int, seconds: float) -> Sample:
        before = self.stats()
        measurement = self._load(target, callers, seconds)
        after = self.stats()
        return Sample(
            round=number,
            target=target.name,
            callers=callers,
            measurement=measurement,
            messages={
                method: count - before.messages.get(method, 0)
                for method, count in after.messages.items()
                if count != before.messages.get(method, 0)
            },
            connections=after.connections - before.connections,
        )

    def stats(self) -> Stats:
        with urllib.request.urlopen(self.upstream_url + "/stats", timeout=10) as answer:
            return msgspec.json.decode(answer.read(), type=Stats)

    def _run(self, name: str, *arguments: str, core: int | None) -> Running:
        return self.stack.enter_context(running(name, arguments, folder=self.folder, core=core))

    def _load(self, target: Target, callers: int, seconds: float) -> Measurement:
        command = [sys.executable, "-m", "bench.load", "--url", target.url, "--mode", target.mode]
        command += ["--tool", target.tool, "--callers", str(callers), "--server-pid", str(target.pid)]
        command += ["--seconds", str(seconds), "--warmup", str(_WARMUP), "--list", str(target.listed)]
        command += ["--stats-url", self.upstream_url + "/stats"]
        if target.token_file is not None:
            command += ["--token-file", str(target.token_file)]
        ended = subprocess.run(
            command,
            capture_output=True,
            timeout=seconds + 90,
            check=False,
            preexec_fn=settle(self._load_core),
        )
        if ended.returncode != 0:
            raise BenchError(f"{target.name}, {callers} callers: {ended.stderr.decode().strip()}")
        return msgspec.json.decode(ended.stdout, type=Measurement)


def until_listed(gateway: Gateway, server: str, tools: int) -> None:
    def listed() -> str | None:
        found = gateway.ask("GET", f"{SERVERS}/{server}")
        if found["status"] == "ERROR":
            raise BenchError(f"the gateway cannot reach the upstream: {found['error_message']}")
        return "listed" if found["status"] == "CONNECTED" and found["tool_count"] == tools else None

    gateway.process.wait_for(listed, "the upstream as connected", START_SECONDS)


def glance(seen: Measurement) -> str:
    return f"{seen.per_second:,.0f} req/s, p50 {seen.p50_ms:.2f} ms, CPU {seen.server_cpu_ms:.3f} ms"


def tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def turned(targets: Sequence[Target], number: int) -> list[Target]:
    """In each round another one begins."""
    return [*targets[number % len(targets) :], *targets[: number % len(targets)]]


# Options


def from_one(text: str) -> int:
    value = int(text)
    if not 1 <= value <= 1000:
        raise argparse.ArgumentTypeError("must be a whole number from 1 to 1000")
    return value


def window_seconds(text: str) -> float:
    value = float(text)
    if not 0.1 <= value <= 60:
        raise argparse.ArgumentTypeError("must be from 0.1 to 60 seconds")
    return value


def callers_of(text: str) -> tuple[int, ...]:
    return tuple(sorted({from_one(part) for part in text.split(",")}))


@contextmanager
def terminable() -> Iterator[None]:
    """SIGTERM ends us as Ctrl-C does, so that what was started is stopped."""

    def end(_signal: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + signal.SIGTERM)

    previous = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
