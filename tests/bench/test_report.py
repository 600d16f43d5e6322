"""The arithmetic of the report: ratios are taken within a round, and each verdict can be missed."""

from bench.load import Measurement
from bench.report import DIRECT, FLOOR, GATEWAY, Sample, Verdict, render, report


def sample(
    target: str,
    *,
    number: int = 1,
    callers: int = 1,
    cpu: float = 0.1,
    p50: float = 0.5,
    calls: int = 1000,
    wrong: int = 0,
    messages: dict[str, int] | None = None,
    connections: int = 0,
    in_window: int | None = None,
) -> Sample:
    measurement = Measurement(
        calls=calls - 100,
        per_second=100 / cpu,
        p50_ms=p50,
        p99_ms=p50 * 2,
        server_cpu_ms=cpu,
        server_rss_mb=80,
        generator_cpu=0.3,
        elapsed=2.5,
        all_calls=calls,
        wrong=wrong,
        complaints={"a wrong answer: HTTP 200 {}": wrong} if wrong else {},
        window_connections=in_window,
    )
    return Sample(
        round=number,
        target=target,
        callers=callers,
        measurement=measurement,
        messages={"tools/call": calls} if messages is None else messages,
        connections=connections,
    )


def a_round(number: int, floor: float, gateway: float) -> list[Sample]:
    return [
        sample(DIRECT, number=number, p50=0.1),
        sample(FLOOR, number=number, cpu=floor, p50=0.5),
        sample(GATEWAY, number=number, cpu=gateway, p50=0.9),
    ]


def verdict(samples: list[Sample], goal: str) -> Verdict:
    return next(found for found in report(samples).verdicts if found.goal.startswith(goal))


def test_the_ratio_is_the_median_of_the_ratios_of_each_round() -> None:
    samples = a_round(1, 0.1, 0.2) + a_round(2, 1.0, 2.1) + a_round(3, 0.1, 0.5)
    assert str(verdict(samples, "CPU")) == "CPU <= 3x the floor: yes (2.1x; callers: 2.1x at 1)"
    assert str(verdict(samples, "added p50")) == (
        "added p50 over direct <= 1 ms at 1 caller: yes (0.80 ms; the floor adds 0.40 ms)"
    )


def test_the_worst_number_of_callers_decides() -> None:
    samples = a_round(1, 0.1, 0.2)
    samples += [sample(name, callers=16) for name in (DIRECT, FLOOR)] + [sample(GATEWAY, callers=16, cpu=0.4)]
    found = verdict(samples, "CPU")
    assert not found.met
    assert found.found == "4.0x; callers: 2.0x at 1, 4.0x at 16"


def test_one_message_too_many_or_too_few_is_noticed() -> None:
    goal = "upstream messages per call"
    assert verdict([sample(GATEWAY)], goal).met
    assert verdict([sample(GATEWAY, messages={"tools/call": 1000, "ping": 1})], goal).met
    assert not verdict([sample(GATEWAY, messages={"tools/call": 1001})], goal).met
    assert not verdict([sample(GATEWAY, messages={"tools/call": 999, "ping": 1})], goal).met
    assert not verdict([sample(GATEWAY, messages={"tools/call": 1000, "tools/list": 1000})], goal).met


def test_connections_beyond_a_filled_pool_are_noticed() -> None:
    assert verdict([sample(GATEWAY, callers=16, connections=16)], "upstream connections").met
    assert not verdict([sample(GATEWAY, callers=16, connections=40)], "upstream connections").met


def test_a_connection_made_in_the_window_is_forgiven_only_while_the_pool_fills() -> None:
    goal = "no new upstream connection"
    assert not any(found.goal.startswith(goal) for found in report([sample(GATEWAY)]).verdicts)
    assert verdict([sample(GATEWAY, callers=16, connections=16, in_window=0)], goal).met
    late = verdict([sample(GATEWAY, callers=16, connections=16, in_window=2)], goal)
    assert late.met
    assert "2 of them" in late.found
    assert not verdict([sample(GATEWAY, callers=16, connections=17, in_window=1)], goal).met
    beside = {"tools/call": 1000, "ping": 1}
    assert verdict([sample(GATEWAY, connections=2, in_window=1, messages=beside)], goal).met


def test_the_goal_of_a_benchmark_is_its_own() -> None:
    samples = a_round(1, 0.1, 0.2)
    found = report(samples, cpu_goal=1.5).verdicts[0]
    assert (found.goal, found.met) == ("CPU <= 1.5x the floor", False)


def test_the_ratios_to_direct_are_of_the_same_round() -> None:
    compared = report(a_round(1, 0.1, 0.2) + a_round(2, 0.1, 0.4)).comparisons[0]
    assert compared.cpu_to_direct == [2.0, 4.0]
    assert compared.rate_to_direct == [0.5, 0.25]


def test_a_wrong_answer_anywhere_is_a_missed_goal() -> None:
    found = verdict([sample(DIRECT, wrong=2), sample(FLOOR)], "every answer")
    assert not found.met
    assert found.found.startswith("2 wrong of 2000, first: a wrong answer")


def test_without_the_gateway_only_what_was_measured_is_said() -> None:
    made = report([sample(DIRECT), sample(FLOOR)])
    assert (made.comparisons, len(made.rows), len(made.verdicts)) == ([], 2, 1)
    assert "floor" in render(made)
