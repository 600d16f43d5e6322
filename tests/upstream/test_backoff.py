"""Proves the schedule of reconnecting: quick, then patient, never all at once, never given up."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.upstream.backoff import CONNECT_PAUSES, RECONNECT_CEILINGS, Backoff

INTERVAL = 30.0


class Edge(random.Random):
    """Draws always the same place between the lowest and the highest value."""

    def __init__(self, place: float) -> None:
        super().__init__()
        self._place = place

    def uniform(self, a: float, b: float) -> float:
        return a + (b - a) * self._place


def pauses(count: int, rng: random.Random) -> list[float]:
    backoff = Backoff(INTERVAL, rng)
    return [backoff.next_pause() for _ in range(count)]


def test_one_connect_is_tried_again_after_one_two_and_four_seconds() -> None:
    """R-12"""
    assert CONNECT_PAUSES == (1.0, 2.0, 4.0)


def test_five_attempts_grow_to_eight_seconds_then_one_comes_in_ten_intervals() -> None:
    """R-12: the slow probe never ends."""
    assert pauses(9, Edge(1.0)) == pytest.approx([1, 2, 4, 8, 8, 330, 330, 330, 330])
    assert pauses(7, Edge(0.5)) == pytest.approx([0.5, 1, 2, 4, 4, 300, 300])


def test_the_jitter_is_full_and_the_probe_keeps_its_distance() -> None:
    """R-12: the next attempt can come at once; a server that stays away is never asked in a hurry."""
    assert pauses(7, Edge(0.0)) == pytest.approx([0, 0, 0, 0, 0, 270, 270])


@given(st.integers(), st.floats(0.1, 3600), st.integers(1, 60))
def test_no_pause_leaves_its_bounds(seed: int, interval: float, count: int) -> None:
    """R-12"""
    backoff = Backoff(interval, random.Random(seed))
    for attempt in range(count):
        pause = backoff.next_pause()
        if attempt < len(RECONNECT_CEILINGS):
            assert 0 <= pause <= RECONNECT_CEILINGS[attempt]
        else:
            assert 8.99 * interval <= pause <= 11.01 * interval


def test_fifty_servers_lost_at_once_do_not_come_back_at_once() -> None:
    """R-12: two generators of their own never draw alike."""
    first = [Backoff(INTERVAL).next_pause() for _ in range(50)]
    assert len(set(first)) == 50
    assert max(first) - min(first) > 0.5


def test_a_reset_begins_the_schedule_anew() -> None:
    """R-12"""
    backoff = Backoff(INTERVAL, Edge(1.0))
    for _ in range(20):
        backoff.next_pause()
    backoff.reset()
    assert [backoff.next_pause() for _ in range(5)] == [1, 2, 4, 8, 8]


def test_there_is_hope_until_the_last_quick_attempt_was_drawn() -> None:
    """R-15: callers wait only while the server may be back within seconds."""
    backoff = Backoff(INTERVAL)
    seen = []
    for _ in range(6):
        seen.append(backoff.hopeful)
        backoff.next_pause()
    assert seen == [True] * 5 + [False]
    backoff.reset()
    assert backoff.hopeful
