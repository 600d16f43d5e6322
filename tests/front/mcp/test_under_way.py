"""Word that a request is not wanted: before it, in its course, after it, and for several of one id."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from trunkline.front.mcp.under_way import EARLY_SECONDS, MOST_ANSWERED, MOST_EARLY, UnderWay


class Time:
    now = 1000.0


Waiting = Callable[[], "asyncio.Task[None]"]


@pytest.fixture
async def waiting() -> AsyncIterator[Waiting]:
    """Starts tasks that wait, and ends them."""
    tasks: list[asyncio.Task[None]] = []

    def start() -> "asyncio.Task[None]":
        tasks.append(asyncio.ensure_future(asyncio.sleep(60)))
        return tasks[-1]

    yield start
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def ended(*tasks: "asyncio.Task[None]") -> list[bool]:
    await asyncio.wait(tasks, timeout=0.05)
    return [task.cancelled() for task in tasks]


async def test_a_word_that_overtakes_its_request_is_remembered_once(waiting: Waiting) -> None:
    under_way = UnderWay()
    under_way.withdraw("7")
    assert under_way.begin(7, waiting())
    assert not under_way.begin("7", waiting())
    assert under_way.begin("7", waiting())
    assert len(under_way) == 2


async def test_it_is_remembered_for_a_moment(waiting: Waiting) -> None:
    time = Time()
    under_way = UnderWay(lambda: time.now)
    under_way.withdraw(1)
    under_way.withdraw(2)
    time.now += EARLY_SECONDS
    assert not under_way.begin(1, waiting())
    time.now += 0.1
    assert under_way.begin(2, waiting())


async def test_only_so_many_are_remembered(waiting: Waiting) -> None:
    under_way = UnderWay()
    for number in range(MOST_EARLY + 1):
        under_way.withdraw(number)
    assert under_way.begin(0, waiting())
    assert not under_way.begin(MOST_EARLY, waiting())


async def test_a_late_word_is_not_for_a_request_to_come(waiting: Waiting) -> None:
    """Clients give ids anew, and word that comes too late is usual."""
    under_way = UnderWay()
    first = waiting()
    assert under_way.begin(1, first)
    under_way.end(1, first)
    under_way.withdraw(1)
    assert under_way.begin(1, waiting())
    for number in range(2, MOST_ANSWERED + 3):
        task = waiting()
        under_way.begin(number, task)
        under_way.end(number, task)
    assert len(under_way) == 1


async def test_it_ends_what_is_under_way_and_nothing_else(waiting: Waiting) -> None:
    under_way = UnderWay()
    mine, other = waiting(), waiting()
    under_way.begin(1, mine)
    under_way.begin("1", other)
    under_way.withdraw(1)
    assert await ended(mine, other) == [True, False]
    assert under_way.was_withdrawn(mine)
    assert not under_way.was_withdrawn(other)
    under_way.end(1, mine)
    assert not under_way.was_withdrawn(mine)


async def test_of_several_with_one_id_all_are_meant(waiting: Waiting) -> None:
    under_way = UnderWay()
    first, second, third = waiting(), waiting(), waiting()
    for task in (first, second, third):
        assert under_way.begin(1, task)
    under_way.end(1, second)
    assert len(under_way) == 1
    under_way.withdraw(1)
    assert await ended(first, second, third) == [True, False, True]
    under_way.end(1, first)
    under_way.end(1, third)
    assert len(under_way) == 0
