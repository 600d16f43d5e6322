"""Sessions of the older era in numbers: many at once that stay, and many that are never taken up again."""

import asyncio
import itertools
from collections.abc import Iterator
from contextlib import contextmanager

from bench.load import Caller, Plan
from bench.processes import BenchError

_AT_ONCE = 16


@contextmanager
def _told(plan: Plan) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise BenchError(f"cannot connect to {plan.url}: {error}") from None


async def settle_in(plan: Plan, sessions: int) -> list[Caller]:
    """Clients as they are: each with its session, its stream open and a call made. The caller closes them."""
    callers = [Caller(plan, number + 1) for number in range(sessions)]
    with _told(plan):
        for caller in callers:
            await caller.open()
            await caller.listen()
            if complaint := await caller.call():
                raise BenchError(complaint)
    return callers


async def abandon(plan: Plan, sessions: int) -> None:
    """Clients that shake hands and are not seen again; none says goodbye."""
    numbers = itertools.count(1)

    async def work() -> None:
        while (number := next(numbers)) <= sessions:
            caller = Caller(plan, number)
            try:
                await caller.open()
            finally:
                caller.close()

    with _told(plan):
        await asyncio.gather(*(work() for _ in range(_AT_ONCE)))
