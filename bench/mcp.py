"""What MCP costs through the gateway's `/mcp`, in both eras, against neighbours measured in the same run.

Four parts, each of which can be left out: `calls` compares a tool call with the same one made straight to
the upstream and through the floor; `list` a list of 1,000 tools of 10 servers with that of one server;
`start` is how soon it answers and what it weighs, `growth` what it weighs after long use. The gateway is
started as a user starts it, with keys, audit and metrics on. Run it with `scripts/bench mcp`.
"""

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import msgspec

from bench.crowd import abandon, settle_in
from bench.gateway import START_SECONDS, Gateway
from bench.goals import (
    ABANDONED_GROWTH_MB,
    CALLS_GROWTH_MB,
    SESSIONS_MB,
    Started,
    judge_added,
    judge_idle,
    judge_lists,
    judge_start,
)
from bench.load import Mode, Plan, repeat
from bench.processes import BenchError, Running, usage
from bench.report import DIRECT, FLOOR, GATEWAY, Report, Sample, Verdict, render, report
from bench.stage import (
    SERVER,
    Facts,
    Stage,
    Target,
    callers_of,
    facts,
    from_one,
    glance,
    tell,
    terminable,
    turned,
    until_listed,
    window_seconds,
)

ERAS: dict[str, Mode] = {"2025-11-25": "mcp-legacy", "2026-07-28": "mcp-modern"}
PARTS = ("calls", "list", "start", "growth")
CPU_GOAL = 1.5
TOOL = f"{SERVER}__echo"

LISTED, UPSTREAMS = 1000, 10
SESSIONS = 64
STARTS = 5
_WARM_CALLS = 5_000
_GROWTH_CALLERS = 16
_QUIET_SECONDS = 0.5
_QUIET_CPU = 0.02
_MOST_SETTLING = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    only: tuple[str, ...]
    eras: tuple[str, ...]
    rounds: int
    seconds: float
    callers: tuple[int, ...]
    tools: int
    calls: int
    sessions: int
    json: Path | None
    strict: bool


class Part(msgspec.Struct, kw_only=True):
    """What one part found: what is printed, and what is kept."""

    title: str
    text: str = ""
    verdicts: list[Verdict]
    samples: list[Sample] = []
    report: Report | None = None


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """What `--json` writes."""

    facts: Facts
    parts: list[Part]


# Calls


def measure_calls(stage: Stage, options: Options) -> list[Part]:
    floor, gateway = stage.floor(options.tools), stage.gateway({SERVER: options.tools})

    def targets(mode: Mode) -> list[Target]:
        direct, url = stage.upstream.pid, stage.endpoint(options.tools)
        return [
            Target(name=DIRECT, url=url, mode=mode, tool="echo", pid=direct),
            Target(name=FLOOR, url=floor.address() + "/mcp", mode=mode, tool=TOOL, pid=floor.pid),
            _through(gateway, mode),
        ]

    samples: dict[str, list[Sample]] = {era: [] for era in options.eras}
    for number in range(1, options.rounds + 1):
        for callers in options.callers:
            for era in options.eras:
                for target in turned(targets(ERAS[era]), number):
                    sample = stage.take(target, callers, number, options.seconds)
                    samples[era].append(sample)
                    seen = glance(sample.measurement)
                    tell(f"round {number}, {callers} callers, {era}, {target.name}: {seen}")
    return [_calls_of(era, found) for era, found in samples.items()]


def _calls_of(era: str, samples: list[Sample]) -> Part:
    made = report(samples, cpu_goal=CPU_GOAL)
    return Part(
        title=f"tools/call, {era}", text=render(made), verdicts=made.verdicts, samples=samples, report=made
    )


def _through(gateway: Gateway, mode: Mode, *, listed: int = 0) -> Target:
    return Target(
        name=GATEWAY,
        url=gateway.url + "/mcp",
        mode=mode,
        tool=TOOL,
        pid=gateway.process.pid,
        token_file=gateway.key_file,
        listed=listed,
    )


# Lists


def measure_lists(stage: Stage, options: Options) -> list[Part]:
    servers = {f"{SERVER}-{number}": LISTED // UPSTREAMS for number in range(UPSTREAMS)}
    gateway = stage.gateway(servers, "gateway-of-many")
    direct = stage.endpoint(LISTED)
    samples: dict[str, list[Sample]] = {era: [] for era in options.eras}
    for number in range(1, options.rounds + 1):
        for era, mode in ((era, ERAS[era]) for era in options.eras):
            pair = [
                Target(
                    name=DIRECT, url=direct, mode=mode, tool="echo", pid=stage.upstream.pid, listed=LISTED
                ),
                _through(gateway, mode, listed=LISTED),
            ]
            for target in turned(pair, number):
                sample = stage.take(target, 1, number, options.seconds)
                samples[era].append(sample)
                tell(f"round {number}, list, {era}, {target.name}: {glance(sample.measurement)}")
    return [_lists_of(samples)]


def _lists_of(samples: dict[str, list[Sample]]) -> Part:
    ratios: dict[str, list[float]] = {}
    lines = []
    for era, found in samples.items():
        p50 = {(sample.round, sample.target): sample.measurement.p50_ms for sample in found}
        rounds = sorted({number for number, _ in p50})
        ratios[era] = [p50[number, GATEWAY] / p50[number, DIRECT] for number in rounds]
        each = (
            f"{name} p50 {median(p50[number, name] for number in rounds):.2f} ms"
            for name in (DIRECT, GATEWAY)
        )
        lines.append(f"{era}: {', '.join(each)}")
    every = [sample for found in samples.values() for sample in found]
    asked = sum(sample.messages.get("tools/list", 0) for sample in every if sample.target == GATEWAY)
    wrong = sum(sample.measurement.wrong for sample in every)
    return Part(
        title=f"tools/list of {LISTED:,} tools, {UPSTREAMS} servers against one, 1 caller",
        text="\n".join(lines),
        verdicts=judge_lists(ratios, asked, wrong),
        samples=every,
    )


# The start, and what it weighs


def measure_start(stage: Stage, options: Options) -> list[Part]:
    first: list[Started] = []
    again: list[Started] = []
    for number in range(STARTS):
        folder = stage.folder / f"started-{number}"
        folder.mkdir()
        first.append(_started(stage, folder, _answers_at_all, _register))
        again.append(_started(stage, folder, _answers_a_call, None))
        tell(f"start {number + 1}: {first[-1]} in an empty folder, {again[-1]} to a call")
    gateway = stage.gateway({SERVER: options.tools}, "gateway-at-rest")
    plan = _plan(gateway, "mcp-legacy")
    asyncio.run(repeat(plan, 1))
    idle = resting_mb(gateway.process)
    with_sessions = asyncio.run(_with_sessions(plan, gateway.process))
    tell(f"idle {idle:.1f} MB, with {SESSIONS} sessions {with_sessions:.1f} MB")
    verdicts = [
        judge_start("first start ever, to the first good answer", first),
        judge_start("start with a server, to the first good call", again),
        judge_idle(idle),
        judge_added(f"RSS of {SESSIONS} sessions", idle, with_sessions, SESSIONS_MB),
    ]
    return [Part(title="start and memory", verdicts=verdicts)]


def _started(
    stage: Stage,
    folder: Path,
    answers: Callable[[Plan], object],
    then: Callable[[Stage, Gateway], None] | None,
) -> Started:
    """From the process's start, on any core, until `answers` does; stopped again after `then`."""
    with ExitStack() as stack:
        began = time.monotonic()
        gateway = Gateway(stack, folder, core=None)
        plan = _plan(gateway, "mcp-legacy")

        def answered() -> str | None:
            try:
                answers(plan)
            except BenchError:
                return None
            return "yes"

        gateway.process.wait_for(answered, "a good answer", START_SECONDS)
        started = Started(time.monotonic() - began, usage(gateway.process.pid).cpu_seconds)
        if then is not None:
            then(stage, gateway)
        return started


def _answers_at_all(plan: Plan) -> None:
    """Raises `BenchError` when it does not."""
    asyncio.run(repeat(plan, 0))


def _answers_a_call(plan: Plan) -> None:
    found = asyncio.run(repeat(plan, 1))
    if found.wrong:
        raise BenchError("; ".join(found.complaints))


def _register(stage: Stage, gateway: Gateway) -> None:
    gateway.register(SERVER, "HTTP", {"base_url": stage.endpoint(20)})
    until_listed(gateway, SERVER, 20)


async def _with_sessions(plan: Plan, process: Running) -> float:
    callers = await settle_in(plan, SESSIONS)
    try:
        return await asyncio.to_thread(resting_mb, process)
    finally:
        for caller in callers:
            caller.close()


def resting_mb(process: Running) -> float:
    """Its memory once it has nothing to do any more: audit records are written behind."""
    deadline = time.monotonic() + _MOST_SETTLING
    before = usage(process.pid)
    while time.monotonic() < deadline:
        time.sleep(_QUIET_SECONDS)
        now = usage(process.pid)
        if now.cpu_seconds - before.cpu_seconds < _QUIET_CPU:
            return now.rss_bytes / 1e6
        before = now
    return before.rss_bytes / 1e6


# Long use


def measure_growth(stage: Stage, options: Options) -> list[Part]:
    gateway = stage.gateway({SERVER: options.tools}, "gateway-in-long-use")
    plans = [_plan(gateway, ERAS[era], callers=_GROWTH_CALLERS) for era in options.eras]
    for plan in plans:
        asyncio.run(repeat(plan, _WARM_CALLS))
    fresh = resting_mb(gateway.process)
    done = [asyncio.run(repeat(plan, options.calls // len(plans))) for plan in plans]
    used = resting_mb(gateway.process)
    tell(f"{sum(each.calls for each in done):,} calls: {fresh:.1f} to {used:.1f} MB")
    asyncio.run(abandon(_plan(gateway, "mcp-legacy"), options.sessions))
    left = resting_mb(gateway.process)
    tell(f"{options.sessions:,} abandoned sessions: {used:.1f} to {left:.1f} MB")
    wrong = sum(each.wrong for each in done)
    verdicts = [
        judge_added(f"RSS growth over {options.calls:,} calls", fresh, used, CALLS_GROWTH_MB, wrong),
        judge_added(
            f"RSS growth over {options.sessions:,} abandoned sessions", used, left, ABANDONED_GROWTH_MB
        ),
    ]
    return [Part(title="growth", verdicts=verdicts)]


def _plan(gateway: Gateway, mode: Mode, *, callers: int = 1) -> Plan:
    token = gateway.key_file.read_text().strip()
    return Plan(url=gateway.url + "/mcp", mode=mode, tool=TOOL, callers=callers, seconds=0, token=token)


# The command


_MEASURE = {"calls": measure_calls, "list": measure_lists, "start": measure_start, "growth": measure_growth}


def run(options: Options) -> Kept:
    load_before = os.getloadavg()[0]
    parts: list[Part] = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="trunkline-bench-")))
        for name in options.only:
            with ExitStack() as own:
                (folder / name).mkdir()
                stage = Stage(folder / name, own)
                parts += _MEASURE[name](stage, options)
    circumstances = facts(
        stage, load_before=load_before, rounds=options.rounds, seconds=options.seconds, tools=options.tools
    )
    return Kept(facts=circumstances, parts=parts)


def read_options(arguments: Sequence[str] | None = None) -> Options:
    parser = argparse.ArgumentParser(
        prog="scripts/bench mcp", description="What MCP costs through the gateway, in both eras."
    )
    parser.add_argument("--only", type=_some_of(PARTS), default=PARTS, help=f"of {','.join(PARTS)}")
    parser.add_argument(
        "--eras", type=_some_of(tuple(ERAS)), default=tuple(ERAS), help="of " + ",".join(ERAS)
    )
    parser.add_argument("--rounds", type=from_one, default=3)
    parser.add_argument("--seconds", type=window_seconds, default=2.0, help="length of each measured window")
    parser.add_argument("--callers", type=callers_of, default=(1, 16, 64), help="for example 1,16,64")
    parser.add_argument("--tools", type=from_one, default=20, help="tools the upstream has, at most 1000")
    parser.add_argument("--calls", type=_count, default=100_000, help="of growth")
    parser.add_argument("--sessions", type=_count, default=10_000, help="abandoned ones, of growth")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write everything to FILE")
    parser.add_argument("--strict", action="store_true", help="exit with 1 when a goal is missed")
    return Options(**vars(parser.parse_args(arguments)))


def _count(text: str) -> int:
    value = int(text)
    if not 1 <= value <= 10_000_000:
        raise argparse.ArgumentTypeError("must be a whole number from 1 to 10000000")
    return value


def _some_of(names: tuple[str, ...]) -> Callable[[str], tuple[str, ...]]:
    def read(text: str) -> tuple[str, ...]:
        asked = set(text.split(","))
        if not asked <= set(names):
            raise argparse.ArgumentTypeError(f"must be some of {', '.join(names)}, separated by commas")
        return tuple(name for name in names if name in asked)

    return read


def show(parts: Sequence[Part]) -> str:
    """The parts as text for a terminal."""
    shown = []
    for part in parts:
        # A report of calls says its verdicts itself.
        verdicts = [] if part.report is not None else [str(verdict) for verdict in part.verdicts]
        shown.append("\n".join([f"== {part.title}", *([part.text] if part.text else []), *verdicts]))
    return "\n\n".join(shown)


def main() -> None:
    options = read_options()
    began = time.monotonic()
    try:
        with terminable():
            kept = run(options)
    except BenchError as error:
        raise SystemExit(f"bench: {error}") from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    if options.json is not None:
        options.json.write_bytes(msgspec.json.format(msgspec.json.encode(kept), indent=2) + b"\n")
    print(f"{kept.facts}, {time.monotonic() - began:.0f} s in all\n")
    print(show(kept.parts))
    if options.strict and not all(verdict.met for part in kept.parts for verdict in part.verdicts):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
