"""Proves that what nobody waits for is stored all the same: in order, over an outage, within bounds."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator

import pytest

from tests.core.conftest import until
from tests.samples import new_record
from trunkline.core import journal as journal_module
from trunkline.core.journal import Journal
from trunkline.ports import AuditFilter
from trunkline.store.sql import SqlStore


@pytest.fixture
def dropped() -> list[int]:
    """How many records were said to be lost, each time."""
    return []


@pytest.fixture
async def journal(
    sqlite: SqlStore, dropped: list[int], monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Journal]:
    """Not started yet; a settle is as patient as a busy machine needs."""
    monkeypatch.setattr(journal_module, "RETRY_SECONDS", 10)
    made = Journal(sqlite, on_audit_dropped=dropped.append)
    yield made
    await made.close()


async def events(store: SqlStore) -> list[str]:
    """The oldest first."""
    records, _ = await store.read_audit(AuditFilter(limit=1000))
    return [record.event for record in reversed(records)]


def write(journal: Journal, *numbers: int) -> None:
    """All of one moment, so that only the order they are stored in tells them apart."""
    for number in numbers:
        journal.audit(new_record(f"e{number}"))


async def test_settling_waits_until_all_of_it_is_stored(sqlite: SqlStore, journal: Journal) -> None:
    """R-51: a read after a settle sees what was written before it."""
    journal.start()
    write(journal, *range(450))
    await asyncio.wait_for(journal.settle(), 10)
    assert await events(sqlite) == [f"e{number}" for number in range(450)]


async def test_writes_keep_their_order(sqlite: SqlStore, journal: Journal) -> None:
    """R-14: the last status written is the last one stored."""
    journal.start()
    for number in range(50):
        journal.write(lambda number=number: sqlite.set_mark("status", str(number)))  # type: ignore[misc]
    await journal.settle()
    assert await sqlite.get_mark("status") == "49"


async def test_an_outage_loses_nothing_and_mixes_nothing_up(
    sqlite: SqlStore, journal: Journal, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-51: the database is closed behind the journal's back and comes back later."""
    monkeypatch.setattr(journal_module, "RETRY_SECONDS", 0.02)
    journal.start()
    write(journal, 0)
    await journal.settle()
    await sqlite.close()
    with caplog.at_level(logging.WARNING):
        write(journal, *range(1, 300))
        await until(lambda: caplog.text.count("the database is away") == 2)
        journal.write(lambda: sqlite.set_mark("status", "after"))
        await until(lambda: "300 records wait" in caplog.text)
    await sqlite.open()
    monkeypatch.setattr(journal_module, "RETRY_SECONDS", 10)
    await journal.settle()
    assert await events(sqlite) == [f"e{number}" for number in range(300)]
    assert await sqlite.get_mark("status") == "after"


async def test_settling_does_not_wait_for_a_database_that_is_away(
    sqlite: SqlStore, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "RETRY_SECONDS", 0.1)
    journal.start()
    await sqlite.close()
    write(journal, 1)
    await asyncio.wait_for(journal.settle(), 5)
    await sqlite.open()


async def test_over_the_bound_the_oldest_are_lost_and_counted(
    sqlite: SqlStore, journal: Journal, dropped: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-51: memory is bounded, and the loss is told in a metric."""
    monkeypatch.setattr(journal_module, "MOST_WAITING", 10)
    write(journal, *range(25))
    assert sum(dropped) == 15
    journal.start()
    await journal.settle()
    assert await events(sqlite) == [f"e{number}" for number in range(15, 25)]


async def test_a_write_that_cannot_be_stored_is_left_out_alone(
    sqlite: SqlStore, journal: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    """What the database refuses must not stop what comes after it."""
    journal.start()

    async def impossible() -> None:
        raise ValueError("no such server")

    journal.write(lambda: sqlite.set_mark("before", "stored"))
    journal.write(impossible)
    journal.write(lambda: sqlite.set_mark("after", "stored"))
    with caplog.at_level(logging.ERROR):
        await journal.settle()
    assert [await sqlite.get_mark(name) for name in ("before", "after")] == ["stored", "stored"]
    assert "left out" in caplog.text


async def test_closing_stores_what_waits(sqlite: SqlStore, journal: Journal) -> None:
    """R-51"""
    journal.start()
    write(journal, *range(300))
    journal.write(lambda: sqlite.set_mark("status", "last"))
    await asyncio.wait_for(journal.close(), 10)
    assert await events(sqlite) == [f"e{number}" for number in range(300)]
    assert await sqlite.get_mark("status") == "last"


async def test_closing_takes_bounded_time_and_says_what_was_lost(
    sqlite: SqlStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """R-51"""
    monkeypatch.setattr(journal_module, "CLOSING_SECONDS", 0.2)
    journal = Journal(sqlite, on_audit_dropped=lambda count: None)
    journal.start()
    await sqlite.close()
    write(journal, 1, 2, 3)
    started = time.monotonic()
    with caplog.at_level(logging.ERROR):
        await journal.close()
    assert time.monotonic() - started < 3
    assert "last 3 records" in caplog.text
