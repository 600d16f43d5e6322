"""What one tool call costs through the gateway, against two neighbours measured in the same run.

The same call is made straight to a neutral upstream (`direct`), through the least an ASGI gateway can do
(`floor`), and through `POST /api/v1/tools/call` of a gateway started as a user starts it, with keys, audit
and metrics on. Rounds are interleaved; what is measured has one core, load and upstream have another.
Run it with `scripts/bench route`. Parts: `upstream.py`, `floor.py`, `load.py`; `report.py` judges.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import msgspec

from bench.processes import BenchError
from bench.report import DIRECT, FLOOR, GATEWAY, Report, Sample, render, report
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
    window_seconds,
)

TARGETS = (DIRECT, FLOOR, GATEWAY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    targets: tuple[str, ...]
    rounds: int
    seconds: float
    callers: tuple[int, ...]
    tools: int
    json: Path | None
    strict: bool


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """What `--json` writes."""

    facts: Facts
    report: Report
    samples: list[Sample]


def start(stage: Stage, options: Options) -> list[Target]:
    """Everything that is asked for, up and answering."""
    return [_START[name](stage, options.tools) for name in options.targets]


def _direct(stage: Stage, tools: int) -> Target:
    url, pid = stage.endpoint(tools), stage.upstream.pid
    return Target(name=DIRECT, url=url, mode="mcp-modern", tool="echo", pid=pid)


def _floor(stage: Stage, tools: int) -> Target:
    floor = stage.floor(tools)
    url = floor.address() + "/api/v1/tools/call"
    return Target(name=FLOOR, url=url, mode="rest", tool=f"{SERVER}.echo", pid=floor.pid)


def _gateway(stage: Stage, tools: int) -> Target:
    gateway = stage.gateway({SERVER: tools})
    return Target(
        name=GATEWAY,
        url=gateway.url + "/api/v1/tools/call",
        mode="rest",
        tool=f"{SERVER}.echo",
        pid=gateway.process.pid,
        token_file=gateway.key_file,
    )


_START = {DIRECT: _direct, FLOOR: _floor, GATEWAY: _gateway}


def measure(stage: Stage, targets: Sequence[Target], options: Options) -> list[Sample]:
    """Every target under every load in every round; neighbours in time are what is compared."""
    samples = []
    for number in range(1, options.rounds + 1):
        for callers in options.callers:
            for target in turned(targets, number):
                sample = stage.take(target, callers, number, options.seconds)
                samples.append(sample)
                tell(f"round {number}, {callers} callers, {target.name}: {glance(sample.measurement)}")
    return samples


def run(options: Options) -> Kept:
    load_before = os.getloadavg()[0]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="trunkline-bench-")))
        stage = Stage(folder, stack)
        samples = measure(stage, start(stage, options), options)
    return Kept(
        facts=facts(
            stage,
            load_before=load_before,
            rounds=options.rounds,
            seconds=options.seconds,
            tools=options.tools,
        ),
        report=report(samples),
        samples=samples,
    )


def read_options(arguments: Sequence[str] | None = None) -> Options:
    parser = argparse.ArgumentParser(
        prog="scripts/bench route", description="What a tool call costs through the gateway."
    )
    parser.add_argument("--rounds", type=from_one, default=3)
    parser.add_argument("--seconds", type=window_seconds, default=2.0, help="length of each measured window")
    parser.add_argument("--callers", type=callers_of, default=(1, 16, 64), help="for example 1,16,64")
    parser.add_argument("--targets", type=_targets, default=TARGETS, help="of direct,floor,gateway")
    parser.add_argument("--tools", type=from_one, default=20, help="tools the upstream has, at most 1000")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write everything to FILE")
    parser.add_argument("--strict", action="store_true", help="exit with 1 when a goal is missed")
    return Options(**vars(parser.parse_args(arguments)))


def _targets(text: str) -> tuple[str, ...]:
    asked = set(text.split(","))
    if not asked <= set(TARGETS):
        raise argparse.ArgumentTypeError("must be some of direct, floor and gateway, separated by commas")
    return tuple(name for name in TARGETS if name in asked)


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
    print(render(kept.report))
    if options.strict and not all(verdict.met for verdict in kept.report.verdicts):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
