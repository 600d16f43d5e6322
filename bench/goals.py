"""Verdicts on what is no comparison of calls: lists, the start, memory. Pure; `report.py` judges calls."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import NamedTuple

from bench.report import Verdict

LIST_RATIO = 2.0
START_SECONDS = 1.5
IDLE_MB = 80.0
SESSIONS_MB = 10.0
CALLS_GROWTH_MB = 5.0
ABANDONED_GROWTH_MB = 10.0


def judge_lists(ratios: Mapping[str, Sequence[float]], asked_upstream: int, wrong: int) -> list[Verdict]:
    """`ratios` by era: the gateway's p50 to that of one server with as many tools, a number a round."""
    verdicts = [
        Verdict(
            goal=f"tools/list, {era} <= {LIST_RATIO:g}x direct",
            met=median(found) <= LIST_RATIO,
            found=f"{median(found):.2f}x ({min(found):.2f} to {max(found):.2f})",
        )
        for era, found in ratios.items()
    ]
    return [
        *verdicts,
        Verdict(
            goal="lists come from the catalogue",
            met=asked_upstream == 0,
            found=f"{asked_upstream} messages tools/list upstream",
        ),
        Verdict(goal="every list is whole", met=wrong == 0, found=f"{wrong} wrong"),
    ]


class Started(NamedTuple):
    seconds: float
    cpu_seconds: float

    def __str__(self) -> str:
        return f"{self.seconds:.2f} s"


def judge_start(what: str, starts: Sequence[Started]) -> Verdict:
    """The processor time, which a busy machine does not change, is told and not judged."""
    seconds = [start.seconds for start in starts]
    cpu = median(start.cpu_seconds for start in starts)
    return Verdict(
        goal=f"{what} <= {START_SECONDS:g} s",
        met=median(seconds) <= START_SECONDS,
        found=f"{median(seconds):.2f} s ({min(seconds):.2f} to {max(seconds):.2f}, {len(starts)} starts), "
        f"CPU {cpu:.2f} s",
    )


def judge_idle(rss_mb: float) -> Verdict:
    return Verdict(
        goal=f"RSS idle <= {IDLE_MB:g} MB",
        met=rss_mb <= IDLE_MB,
        found=f"{rss_mb:.1f} MB",
    )


def judge_added(goal: str, before_mb: float, after_mb: float, most_mb: float, wrong: int = 0) -> Verdict:
    """Memory that came in addition; answers that were not right count as failure too."""
    added = after_mb - before_mb
    mistakes = f", {wrong} answers wrong" if wrong else ""
    return Verdict(
        goal=f"{goal} < {most_mb:g} MB",
        met=added < most_mb and not wrong,
        found=f"{added:+.1f} MB, {before_mb:.1f} to {after_mb:.1f}{mistakes}",
    )
