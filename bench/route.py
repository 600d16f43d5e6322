"""What one tool call costs through the gateway, against two neighbours measured in the same run.

The same call is made straight to a neutral upstream (`direct`), through the least an ASGI gateway can do
(`floor`), and through `POST /api/v1/tools/call` of a gateway started as a user starts it, with keys, audit
and metrics on. Rounds are interleaved; what is measured has one core, load and upstream have another.
Run it with `scripts/bench route`. Parts: `upstream.py`, `floor.py`, `load.py`; `report.py` judges.
"""

import argparse
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import msgspec

from bench.gateway import SERVERS, START_SECONDS, Gateway
from bench.load import Measurement, Mode
from bench.processes import BenchError, Running, running, settle, two_cores
from bench.report import DIRECT, FLOOR, GATEWAY, Report, Sample, render, report
from bench.upstream import Stats

TARGETS = (DIRECT, FLOOR, GATEWAY)
_WARMUP = 0.5
_SERVER = "bench"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    targets: tuple[str, ...]
    rounds: int
    seconds: float
    callers: tuple[int, ...]
    tools: int
    json: Path | None
    strict: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    name: str
    url: str
    mode: Mode
    tool: str
    pid: int
    token_file: Path | None = None


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


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """What `--json` writes."""

    facts: Facts
    report: Report
    samples: list[Sample]


class Bench:
    """The processes of one run and the folder they live in."""

    def __init__(self, options: Options, folder: Path, stack: ExitStack) -> None:
        self._options = options
        self._folder = folder
        self._stack = stack
        cores = two_cores()
        self.pinned = cores is not None
        self._measured_core = cores[0] if cores else None
        self._load_core = cores[1] if cores else None
        self._upstream_url = ""

    def start(self) -> list[Target]:
        """Everything that is asked for, up and answering."""
        upstream = self._run("upstream", "bench.upstream", core=self._load_core)
        self._upstream_url = upstream.address()
        targets = []
        for name in self._options.targets:
            if name == DIRECT:
                targets.append(self._direct(upstream))
            elif name == FLOOR:
                targets.append(self._start_floor())
            else:
                targets.append(self._start_gateway())
        return targets

    def take(self, target: Target, callers: int, number: int) -> Sample:
        before = self._stats()
        measurement = self._load(target, callers)
        after = self._stats()
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

    @property
    def _endpoint(self) -> str:
        return f"{self._upstream_url}/t{self._options.tools}/mcp"

    def _direct(self, upstream: Running) -> Target:
        return Target(name=DIRECT, url=self._endpoint, mode="mcp-modern", tool="echo", pid=upstream.pid)

    def _start_floor(self) -> Target:
        floor = self._run(FLOOR, "bench.floor", "--upstream", self._endpoint, core=self._measured_core)
        url = floor.address() + "/api/v1/tools/call"
        return Target(name=FLOOR, url=url, mode="rest", tool=f"{_SERVER}.echo", pid=floor.pid)

    def _start_gateway(self) -> Target:
        gateway = Gateway(self._stack, self._folder, core=self._measured_core)
        gateway.register(_SERVER, "HTTP", {"base_url": self._endpoint})

        def connected() -> str | None:
            server = gateway.ask("GET", f"{SERVERS}/{_SERVER}")
            if server["status"] == "ERROR":
                raise BenchError(f"the gateway cannot reach the upstream: {server['error_message']}")
            ready = server["status"] == "CONNECTED" and server["tool_count"] == self._options.tools
            return "connected" if ready else None

        gateway.process.wait_for(connected, "the upstream as connected", START_SECONDS)
        return Target(
            name=GATEWAY,
            url=gateway.url + "/api/v1/tools/call",
            mode="rest",
            tool=f"{_SERVER}.echo",
            pid=gateway.process.pid,
            token_file=gateway.key_file,
        )

    def _run(self, name: str, *arguments: str, core: int | None) -> Running:
        return self._stack.enter_context(running(name, arguments, folder=self._folder, core=core))

    def _stats(self) -> Stats:
        with urllib.request.urlopen(self._upstream_url + "/stats", timeout=10) as answer:
            return msgspec.json.decode(answer.read(), type=Stats)

    def _load(self, target: Target, callers: int) -> Measurement:
        command = [sys.executable, "-m", "bench.load", "--url", target.url, "--mode", target.mode]
        command += ["--tool", target.tool, "--callers", str(callers), "--server-pid", str(target.pid)]
        command += ["--seconds", str(self._options.seconds), "--warmup", str(_WARMUP)]
        if target.token_file is not None:
            command += ["--token-file", str(target.token_file)]
        ended = subprocess.run(
            command,
            capture_output=True,
            timeout=self._options.seconds + 90,
            check=False,
            preexec_fn=settle(self._load_core),
        )
        if ended.returncode != 0:
            raise BenchError(f"{target.name}, {callers} callers: {ended.stderr.decode().strip()}")
        return msgspec.json.decode(ended.stdout, type=Measurement)


def measure(bench: Bench, targets: Sequence[Target], options: Options) -> list[Sample]:
    """Every target under every load in every round; neighbours in time are what is compared."""
    samples = []
    for number in range(1, options.rounds + 1):
        turned = [*targets[number % len(targets) :], *targets[: number % len(targets)]]
        for callers in options.callers:
            for target in turned:
                sample = bench.take(target, callers, number)
                samples.append(sample)
                _tell(f"round {number}, {callers} callers, {target.name}: {_glance(sample.measurement)}")
    return samples


def _glance(seen: Measurement) -> str:
    return f"{seen.per_second:,.0f} req/s, p50 {seen.p50_ms:.2f} ms, CPU {seen.server_cpu_ms:.3f} ms"


def run(options: Options) -> Kept:
    load_before = os.getloadavg()[0]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="trunkline-bench-")))
        bench = Bench(options, folder, stack)
        samples = measure(bench, bench.start(), options)
    facts = Facts(
        python=platform.python_version(),
        system=f"{platform.system()} {platform.machine()}",
        cores=os.cpu_count() or 1,
        pinned=bench.pinned,
        load_before=load_before,
        load_after=os.getloadavg()[0],
        rounds=options.rounds,
        seconds=options.seconds,
        tools=options.tools,
    )
    return Kept(facts=facts, report=report(samples), samples=samples)


def read_options(arguments: Sequence[str] | None = None) -> Options:
    parser = argparse.ArgumentParser(
        prog="scripts/bench route", description="What a tool call costs through the gateway."
    )
    parser.add_argument("--rounds", type=_from_one, default=3)
    parser.add_argument("--seconds", type=_seconds, default=2.0, help="length of each measured window")
    parser.add_argument("--callers", type=_callers, default=(1, 16, 64), help="for example 1,16,64")
    parser.add_argument("--targets", type=_targets, default=TARGETS, help="of direct,floor,gateway")
    parser.add_argument("--tools", type=_from_one, default=20, help="tools the upstream has, at most 1000")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write everything to FILE")
    parser.add_argument("--strict", action="store_true", help="exit with 1 when a goal is missed")
    return Options(**vars(parser.parse_args(arguments)))


def _from_one(text: str) -> int:
    value = int(text)
    if not 1 <= value <= 1000:
        raise argparse.ArgumentTypeError("must be a whole number from 1 to 1000")
    return value


def _seconds(text: str) -> float:
    value = float(text)
    if not 0.1 <= value <= 60:
        raise argparse.ArgumentTypeError("must be from 0.1 to 60 seconds")
    return value


def _callers(text: str) -> tuple[int, ...]:
    return tuple(sorted({_from_one(part) for part in text.split(",")}))


def _targets(text: str) -> tuple[str, ...]:
    asked = set(text.split(","))
    if not asked <= set(TARGETS):
        raise argparse.ArgumentTypeError("must be some of direct, floor and gateway, separated by commas")
    return tuple(name for name in TARGETS if name in asked)


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


@contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM ends us as Ctrl-C does, so that what was started is stopped."""

    def end(_signal: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + signal.SIGTERM)

    previous = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def main() -> None:
    options = read_options()
    began = time.monotonic()
    try:
        with _terminable():
            kept = run(options)
    except BenchError as error:
        raise SystemExit(f"bench: {error}") from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    if options.json is not None:
        options.json.write_bytes(msgspec.json.format(msgspec.json.encode(kept), indent=2) + b"\n")
    facts = kept.facts
    print(
        f"{facts.cores} cores, {'pinned' if facts.pinned else 'not pinned'}, Python {facts.python}, "
        f"load {facts.load_before:.1f} before and {facts.load_after:.1f} after; "
        f"{facts.rounds} rounds, {facts.tools} tools, {time.monotonic() - began:.0f} s in all\n"
    )
    print(render(kept.report))
    if options.strict and not all(verdict.met for verdict in kept.report.verdicts):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
