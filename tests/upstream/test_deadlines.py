"""Deadlines that move, one timer for all of them."""

import asyncio

import pytest

from trunkline.upstream.deadlines import Deadlines


async def work(deadlines: Deadlines, seconds: float, *, cap: float = 60.0, needs: float = 60.0) -> str:
    """How it ended: done, over, or cancelled by somebody else (then it raises)."""
    deadline = deadlines.begin(seconds, cap)
    try:
        await asyncio.sleep(needs)
    except asyncio.CancelledError:
        if not deadline.took_effect():
            raise
        return "over"
    finally:
        deadlines.end(deadline)
    return "done"


async def test_each_request_has_its_own_time() -> None:
    """The one begun last is over first; the one that is quick is not touched."""
    deadlines = Deadlines()
    began = deadlines.now()
    ends: list[tuple[str, float]] = []

    async def noted(name: str, seconds: float, needs: float) -> None:
        ends.append((f"{name} {await work(deadlines, seconds, needs=needs)}", deadlines.now() - began))

    async with asyncio.timeout(5):
        await asyncio.gather(noted("slow", 0.3, 60), noted("quick", 0.3, 0.05), noted("short", 0.1, 60))
    assert [name for name, _ in ends] == ["quick done", "short over", "slow over"]
    assert all(abs(at - due) < 0.1 for (_, at), due in zip(ends, (0.05, 0.1, 0.3), strict=True))
    deadlines.close()


async def test_a_cancellation_from_elsewhere_stays_one() -> None:
    deadlines = Deadlines()
    task = asyncio.create_task(work(deadlines, 60))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    deadlines.close()


async def test_who_is_cancelled_while_the_time_runs_out_stays_cancelled() -> None:
    """Both at once: the outer cancellation must not be swallowed."""
    deadlines = Deadlines()
    made = []

    async def both() -> str:
        deadline = deadlines.begin(60, 60)
        made.append(deadline)
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            if not deadline.took_effect():
                raise
            return "over"
        finally:
            deadlines.end(deadline)
        return "done"

    task = asyncio.create_task(both())
    await asyncio.sleep(0)
    made[0]._strike()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    deadlines.close()


async def test_progress_moves_it_on_up_to_the_cap_and_a_question_holds_it() -> None:
    deadlines = Deadlines()
    moved = []

    async def moving() -> float:
        deadline = deadlines.begin(0.15, 0.5)
        moved.append(deadline)
        began = deadlines.now()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            assert deadline.took_effect()
        finally:
            deadlines.end(deadline)
        return deadlines.now() - began

    task = asyncio.create_task(moving())
    for _ in range(12):
        await asyncio.sleep(0.05)
        moved[0].extend()
    assert 0.45 < await asyncio.wait_for(task, 5) < 0.8

    moved.clear()
    task = asyncio.create_task(moving())
    await asyncio.sleep(0)
    moved[0].hold()
    await asyncio.sleep(0.3)
    assert not task.done()  # a person is thinking
    moved[0].release()
    assert 0.35 < await asyncio.wait_for(task, 5) < 0.6
    deadlines.close()


async def test_after_its_end_nothing_that_comes_late_does_anything() -> None:
    deadlines = Deadlines()
    deadline = deadlines.begin(0.01, 60)
    deadlines.end(deadline)
    deadline.expire()
    deadline.extend()
    await asyncio.sleep(0.05)
    assert not deadline.expired
    deadlines.close()


async def test_who_gives_itself_up_on_its_way_out_is_not_struck() -> None:
    deadlines = Deadlines()
    deadline = deadlines.begin(60, 60)
    deadline.expire()
    deadlines.end(deadline)
    await asyncio.sleep(0.01)
    assert not deadline.expired
    deadlines.close()


async def test_a_thousand_requests_make_one_timer() -> None:
    deadlines = Deadlines()
    tasks = [asyncio.create_task(work(deadlines, 10 + number)) for number in range(1000)]
    await asyncio.sleep(0)
    timer = deadlines._timer
    tasks.append(asyncio.create_task(work(deadlines, 5000)))
    await asyncio.sleep(0)
    assert deadlines._timer is timer
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    deadlines.close()
