"""What the samples of a run say: medians, ratios within a round, and a verdict on each goal.

Pure. Absolute numbers belong to one machine in one hour; the ratios are taken between neighbours of the
same round and are what the goals speak of. `route.py` takes the samples and prints what is made here.
"""

from collections.abc import Callable, Iterable, Sequence
from statistics import median

import msgspec

from bench.load import Measurement

DIRECT, FLOOR, GATEWAY = "direct", "floor", "gateway"

CPU_GOAL = 3.0
ADDED_P50_GOAL_MS = 1.0
_BACKGROUND_SECONDS = 10.0
"""Messages that are no calls (health checks) may come at most this often, and once besides."""


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One target under one load in one round."""

    round: int
    target: str
    callers: int
    measurement: Measurement
    messages: dict[str, int]
    """What came to the upstream meanwhile, by method."""
    connections: int
    """New connections to the upstream meanwhile that carried a message."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One target under one load: medians over the rounds, totals for what is counted."""

    target: str
    callers: int
    per_second: float
    p50_ms: float
    p99_ms: float
    server_cpu_ms: float
    server_rss_mb: float
    calls_upstream_per_call: float
    other_messages: int
    """Of the background: a gateway checks its servers' health also while its neighbours are measured."""
    connections_per_call: float
    wrong: int


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """The gateway against its neighbours under one load; each list has a number a round."""

    callers: int
    cpu_to_floor: list[float]
    rate_to_floor: list[float]
    cpu_to_direct: list[float]
    rate_to_direct: list[float]
    added_p50_ms: list[float]
    floor_added_p50_ms: list[float]


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    goal: str
    met: bool
    found: str

    def __str__(self) -> str:
        return f"{self.goal}: {'yes' if self.met else 'NO'} ({self.found})"


class Report(msgspec.Struct, frozen=True, kw_only=True):
    rows: list[Row]
    comparisons: list[Comparison]
    verdicts: list[Verdict]


def report(samples: Sequence[Sample], *, cpu_goal: float = CPU_GOAL) -> Report:
    comparisons = compare(samples)
    verdicts = judge(samples, comparisons, cpu_goal)
    return Report(rows=summarise(samples), comparisons=comparisons, verdicts=verdicts)


def summarise(samples: Sequence[Sample]) -> list[Row]:
    keys = dict.fromkeys((sample.callers, sample.target) for sample in samples)
    return [
        _row([sample for sample in samples if (sample.callers, sample.target) == key]) for key in sorted(keys)
    ]


def _row(samples: Sequence[Sample]) -> Row:
    def middle(read: Callable[[Measurement], float]) -> float:
        return median(read(sample.measurement) for sample in samples)

    calls = sum(sample.measurement.all_calls for sample in samples)
    return Row(
        target=samples[0].target,
        callers=samples[0].callers,
        per_second=middle(lambda seen: seen.per_second),
        p50_ms=middle(lambda seen: seen.p50_ms),
        p99_ms=middle(lambda seen: seen.p99_ms),
        server_cpu_ms=middle(lambda seen: seen.server_cpu_ms),
        server_rss_mb=middle(lambda seen: seen.server_rss_mb),
        calls_upstream_per_call=sum(map(_arrived, samples)) / calls,
        other_messages=sum(map(_others, samples)),
        connections_per_call=sum(sample.connections for sample in samples) / calls,
        wrong=sum(sample.measurement.wrong for sample in samples),
    )


def _arrived(sample: Sample) -> int:
    return sample.messages.get("tools/call", 0)


def _others(sample: Sample) -> int:
    return sum(sample.messages.values()) - _arrived(sample)


def compare(samples: Sequence[Sample]) -> list[Comparison]:
    """One comparison for each number of callers that has all three targets."""
    found = {(sample.callers, sample.round, sample.target): sample.measurement for sample in samples}
    comparisons = []
    for callers in sorted({sample.callers for sample in samples}):
        rounds = [
            (found[callers, number, DIRECT], found[callers, number, FLOOR], found[callers, number, GATEWAY])
            for number in sorted({sample.round for sample in samples})
            if all((callers, number, target) in found for target in (DIRECT, FLOOR, GATEWAY))
        ]
        if rounds:
            comparisons.append(_comparison(callers, rounds))
    return comparisons


def _comparison(callers: int, rounds: Iterable[tuple[Measurement, Measurement, Measurement]]) -> Comparison:
    made = Comparison(
        callers=callers,
        cpu_to_floor=[],
        rate_to_floor=[],
        cpu_to_direct=[],
        rate_to_direct=[],
        added_p50_ms=[],
        floor_added_p50_ms=[],
    )
    for direct, floor, gateway in rounds:
        made.cpu_to_floor.append(gateway.server_cpu_ms / floor.server_cpu_ms)
        made.rate_to_floor.append(gateway.per_second / floor.per_second)
        made.cpu_to_direct.append(gateway.server_cpu_ms / direct.server_cpu_ms)
        made.rate_to_direct.append(gateway.per_second / direct.per_second)
        made.added_p50_ms.append(gateway.p50_ms - direct.p50_ms)
        made.floor_added_p50_ms.append(floor.p50_ms - direct.p50_ms)
    return made


def judge(
    samples: Sequence[Sample], comparisons: Sequence[Comparison], cpu_goal: float = CPU_GOAL
) -> list[Verdict]:
    verdicts = []
    if comparisons:
        verdicts += [_judge_cpu(comparisons, cpu_goal), _judge_latency(comparisons[0])]
    through = [sample for sample in samples if sample.target == GATEWAY]
    if through:
        verdicts += [_judge_messages(through), _judge_connections(through), *_judge_steadiness(through)]
    verdicts.append(_judge_answers(samples))
    return verdicts


def _judge_cpu(comparisons: Sequence[Comparison], goal: float) -> Verdict:
    middles = {comparison.callers: median(comparison.cpu_to_floor) for comparison in comparisons}
    worst = max(middles.values())
    each = ", ".join(f"{middle:.1f}x at {callers}" for callers, middle in middles.items())
    return Verdict(
        goal=f"CPU <= {goal:g}x the floor", met=worst <= goal, found=f"{worst:.1f}x; callers: {each}"
    )


def _judge_latency(comparison: Comparison) -> Verdict:
    added, floor = median(comparison.added_p50_ms), median(comparison.floor_added_p50_ms)
    callers = f"{comparison.callers} caller{'s' if comparison.callers > 1 else ''}"
    return Verdict(
        goal=f"added p50 over direct <= {ADDED_P50_GOAL_MS:g} ms at {callers}",
        met=added <= ADDED_P50_GOAL_MS,
        found=f"{added:.2f} ms; the floor adds {floor:.2f} ms",
    )


def _judge_messages(samples: Sequence[Sample]) -> Verdict:
    calls = sum(sample.measurement.all_calls for sample in samples)
    arrived = sum(map(_arrived, samples))
    others = sum(map(_others, samples))
    elapsed = sum(sample.measurement.elapsed for sample in samples)
    allowed = len(samples) + elapsed / _BACKGROUND_SECONDS
    return Verdict(
        goal="upstream messages per call = 1",
        met=arrived == calls and others <= allowed,
        found=f"{arrived} for {calls} calls, and {others} of the background",
    )


def _judge_connections(samples: Sequence[Sample]) -> Verdict:
    worst = max(sample.connections - sample.callers for sample in samples)
    calls = sum(sample.measurement.all_calls for sample in samples)
    return Verdict(
        goal="upstream connections are kept",
        met=worst <= 1,
        found=f"{sum(sample.connections for sample in samples)} new ones in {calls} calls",
    )


def _judge_steadiness(samples: Sequence[Sample]) -> list[Verdict]:
    """Where the windows were counted: a pool fills up to its callers, and a health check's."""
    counted = [
        (sample, sample.measurement.window_connections)
        for sample in samples
        if sample.measurement.window_connections is not None
    ]
    if not counted:
        return []
    new = sum(found for _, found in counted)
    calls = sum(sample.measurement.calls for sample, _ in counted)
    late = sum(found for sample, found in counted if sample.connections <= sample.callers + _others(sample))
    note = f", {late} of them as a pool first reached its callers" if late else ""
    return [
        Verdict(
            goal="no new upstream connection in the steady state",
            met=new == late,
            found=f"{new} in {calls} calls{note}",
        )
    ]


def _judge_answers(samples: Sequence[Sample]) -> Verdict:
    calls = sum(sample.measurement.all_calls for sample in samples)
    wrong = sum(sample.measurement.wrong for sample in samples)
    complaints = [text for sample in samples for text in sample.measurement.complaints]
    first = f", first: {complaints[0]}" if complaints else ""
    return Verdict(goal="every answer is right", met=wrong == 0, found=f"{wrong} wrong of {calls}{first}")


_HEADINGS = (
    "callers",
    "target",
    "req/s",
    "p50 ms",
    "p99 ms",
    "CPU ms/call",
    "RSS MB",
    "sent up/call",
    "other msgs",
    "new conns/call",
)


def render(made: Report) -> str:
    """The report as text for a terminal."""
    lines = _aligned([_HEADINGS, *(_cells(row) for row in made.rows)])
    if made.comparisons:
        lines += ["", "gateway against its neighbours of the same round: median (lowest to highest)"]
        lines += [_sentence(comparison) for comparison in made.comparisons]
    return "\n".join([*lines, "", *(str(verdict) for verdict in made.verdicts)])


def _cells(row: Row) -> tuple[str, ...]:
    return (
        str(row.callers),
        row.target,
        f"{row.per_second:,.0f}",
        f"{row.p50_ms:.2f}",
        f"{row.p99_ms:.2f}",
        f"{row.server_cpu_ms:.3f}",
        f"{row.server_rss_mb:.0f}",
        f"{row.calls_upstream_per_call:.4f}",
        str(row.other_messages),
        f"{row.connections_per_call:.5f}",
    )


def _aligned(table: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(cells[column]) for cells in table) for column in range(len(table[0]))]
    return [
        "  ".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True)) for cells in table
    ]


def _sentence(comparison: Comparison) -> str:
    return (
        f"  {comparison.callers:>3} callers: CPU {_spread(comparison.cpu_to_floor, '.2f')}x the floor, "
        f"req/s {_spread(comparison.rate_to_floor, '.2f')}x the floor; "
        f"CPU {_spread(comparison.cpu_to_direct, '.0f')}x direct, "
        f"req/s {_spread(comparison.rate_to_direct, '.2f')}x direct, "
        f"p50 +{_spread(comparison.added_p50_ms, '.2f')} ms over direct"
    )


def _spread(values: Sequence[float], form: str) -> str:
    return f"{median(values):{form}} ({min(values):{form}} to {max(values):{form}})"
