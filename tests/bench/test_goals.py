"""Each verdict beside those on calls can be met and missed, and says what was found."""

import pytest

from bench.goals import Started, judge_added, judge_idle, judge_lists, judge_start


def test_the_median_of_the_rounds_decides_on_lists() -> None:
    met, missed, asked, whole = judge_lists({"old": [0.9, 1.2, 9.0], "new": [2.1, 1.0, 2.2]}, 0, 0)
    assert str(met) == "tools/list, old <= 2x direct: yes (1.20x (0.90 to 9.00))"
    assert not missed.met
    assert asked.met
    assert whole.met


def test_a_list_that_asked_upstream_or_was_not_whole_is_noticed() -> None:
    _, asked, whole = judge_lists({"old": [1.0]}, 1, 2)
    assert (asked.met, whole.met) == (False, False)
    assert whole.found == "2 wrong"


def test_the_median_of_the_starts_decides() -> None:
    found = judge_start("start", [Started(0.8, 0.7), Started(1.4, 0.9), Started(5.0, 0.8)])
    assert str(found) == "start <= 1.5 s: yes (1.40 s (0.80 to 5.00, 3 starts), CPU 0.80 s)"
    assert not judge_start("start", [Started(1.6, 1.0)]).met


@pytest.mark.parametrize(("rss", "met"), [(79.9, True), (80.1, False)])
def test_the_memory_at_rest(rss: float, met: bool) -> None:
    assert judge_idle(rss).met is met


def test_what_was_added_counts_not_what_was_there() -> None:
    assert str(judge_added("growth", 100.0, 104.0, 5.0)) == "growth < 5 MB: yes (+4.0 MB, 100.0 to 104.0)"
    assert judge_added("growth", 100.0, 95.0, 5.0).met
    assert not judge_added("growth", 100.0, 105.5, 5.0).met


def test_growth_with_wrong_answers_was_not_measured() -> None:
    found = judge_added("growth", 100.0, 100.0, 5.0, wrong=3)
    assert not found.met
    assert found.found.endswith("3 answers wrong")
