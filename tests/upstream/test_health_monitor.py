"""Proves what a health check means, whatever came before it."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.samples import NOON
from trunkline.model import Health, ServerStatus
from trunkline.upstream.health_monitor import Check, observe

S = ServerStatus
WELL = Check(healthy=True, failed=False, took_ms=4.5)
ILL = Check(healthy=False, failed=True, note="its health address answered 503")
SILENT = Check(healthy=False, failed=False, note="its health address answered 404")


def observed(*checks: Check) -> tuple[Health, list[ServerStatus | None]]:
    health, statuses = Health(), list[ServerStatus | None]()
    for number, check in enumerate(checks):
        health, status = observe(health, check, NOON + timedelta(seconds=30 * number))
        statuses.append(status)
    return health, statuses


def test_one_two_and_three_failures() -> None:
    """R-32: CONNECTED with a warning, DEGRADED, ERROR; further failures change nothing."""
    health, statuses = observed(ILL, ILL, ILL, ILL)
    assert statuses == [S.CONNECTED, S.DEGRADED, S.ERROR, S.ERROR]
    assert health == Health(4, NOON + timedelta(seconds=90), None, "its health address answered 503")


@pytest.mark.parametrize("failures", range(6))
def test_a_success_wipes_the_failures_out(failures: int) -> None:
    """R-32"""
    health, statuses = observed(*[ILL] * failures, WELL)
    assert statuses[-1] is S.CONNECTED
    assert health == Health(0, NOON + timedelta(seconds=30 * failures), 4.5, None)


@pytest.mark.parametrize("failures", range(4))
def test_what_says_nothing_counts_neither_way(failures: int) -> None:
    """R-31: a 4xx, or a busy server; but it was looked at, and that is noted (R-32)."""
    before, _ = observed(*[ILL] * failures)
    after, statuses = observed(*[ILL] * failures, SILENT)
    assert statuses[-1] is None
    assert (after.consecutive_failures, after.last_error) == (failures, before.last_error)
    assert after.last_check == NOON + timedelta(seconds=30 * failures)


def test_silence_between_failures_does_not_break_their_row() -> None:
    """R-32"""
    assert observed(ILL, SILENT, ILL, SILENT, ILL)[1] == [S.CONNECTED, None, S.DEGRADED, None, S.ERROR]


@given(st.lists(st.sampled_from([WELL, ILL, SILENT]), max_size=30))
def test_the_status_follows_from_the_failures_since_the_last_success(checks: list[Check]) -> None:
    """R-32"""
    health, statuses = observed(*checks)
    row = 0
    for check, status in zip(checks, statuses, strict=True):
        row = 0 if check is WELL else row + (check is ILL)
        expected = S.ERROR if row >= 3 else S.DEGRADED if row == 2 else S.CONNECTED
        assert status is (None if check is SILENT else expected)
    assert health.consecutive_failures == row
    assert (health.last_check is None) == (checks == [])
