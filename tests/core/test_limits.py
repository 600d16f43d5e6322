"""How much a key may ask at once and in a minute."""

import pytest

from tests.core.clock import FakeClock
from trunkline.core.limits import Limits
from trunkline.errors import RateLimited, TooManyCalls


def limits(clock: FakeClock, *, most_calls: int = 2, per_minute: int = 0) -> Limits:
    return Limits(clock=clock, most_calls=most_calls, per_minute=per_minute)


def test_a_key_has_so_many_calls_and_no_other_key_pays_for_it() -> None:
    judged = limits(FakeClock())
    judged.enter("a")
    judged.enter("a")
    with pytest.raises(TooManyCalls) as refused:
        judged.enter("a")
    assert (refused.value.status, refused.value.retry_after) == (503, 1)
    judged.enter("b")
    judged.leave("a")
    judged.enter("a")


def test_a_refused_call_counts_for_nothing() -> None:
    judged = limits(FakeClock(), most_calls=1)
    judged.enter("a")
    for _ in range(3):
        with pytest.raises(TooManyCalls):
            judged.enter("a")
    judged.leave("a")
    judged.enter("a")


def test_calls_of_a_minute_come_back_with_time() -> None:
    clock = FakeClock()
    judged = limits(clock, most_calls=1000, per_minute=60)
    for _ in range(60):
        judged.enter("a")
    with pytest.raises(RateLimited) as refused:
        judged.enter("a")
    assert (refused.value.status, refused.value.retry_after) == (429, 1)
    judged.enter("b")
    clock.advance(1.0)
    judged.enter("a")
    with pytest.raises(RateLimited):
        judged.enter("a")
