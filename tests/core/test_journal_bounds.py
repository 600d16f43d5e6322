"""Proves that what waits for a database that is away is bounded, and which of it is given up first."""

import logging
from collections.abc import AsyncIterator

import pytest

from tests.core.conftest import House, until
from tests.core.peer import Peer
from trunkline.core import journal as journal_module
from trunkline.core.journal import Journal
from trunkline.store.sql import SqlStore


@pytest.fixture
async def journal(sqlite: SqlStore) -> AsyncIterator[Journal]:
    """Not started yet."""
    made = Journal(sqlite, on_audit_dropped=lambda count: None)
    yield made
    await made.close()


async def test_of_a_state_only_the_latest_waits(sqlite: SqlStore, journal: Journal) -> None:
    """A day without a database must not become a day of writes after it."""
    stored: list[str] = []

    async def store(value: str) -> None:
        stored.append(value)

    for number in range(1000):
        journal.write_state(("tools", number % 2), lambda number=number: store(str(number)))  # type: ignore[misc]
    journal.start()
    await journal.settle()
    assert stored == ["998", "999"]


async def test_a_state_that_changes_while_it_is_stored_is_stored_again(
    sqlite: SqlStore, journal: Journal
) -> None:
    async def first() -> None:
        journal.write_state("status", lambda: sqlite.set_mark("status", "second"))
        await sqlite.set_mark("status", "first")

    journal.write_state("status", first)
    journal.start()
    await journal.settle()
    assert await sqlite.get_mark("status") == "second"


async def test_over_the_bound_the_oldest_moves_are_left_out_and_counted(
    sqlite: SqlStore, journal: Journal, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """R-14: the last move is the one that says how a server is."""
    monkeypatch.setattr(journal_module, "MOST_WAITING", 10)
    with caplog.at_level(logging.ERROR):
        for number in range(25):
            journal.write(lambda number=number: sqlite.set_mark(f"m{number}", "stored"))  # type: ignore[misc]
    assert "1 status moves will be missing" in caplog.text
    journal.start()
    await journal.settle()
    marks = [await sqlite.get_mark(f"m{number}") for number in range(25)]
    assert marks == [None] * 15 + ["stored"] * 10


async def test_health_checks_of_an_outage_are_stored_once_and_none_is_forgotten(
    house: House, peer: Peer, monkeypatch: pytest.MonkeyPatch, sqlite: SqlStore
) -> None:
    """R-32: a server that was checked in an earlier round only keeps that time."""
    registry, store = house.gateway._registry, house.gateway._store
    await house.connected("alpha", peer.config)
    await house.register("beta", peer.config, auto_connect=False)
    ids = {name: house.server(name).id for name in ("alpha", "beta")}
    written: list[int] = []
    record = store.record_health

    async def counting(checks: dict[str, object]) -> None:
        written.append(len(checks))
        await record(checks)  # type: ignore[arg-type]

    monkeypatch.setattr(store, "record_health", counting)
    registry.note_checks([ids["beta"]])
    for _ in range(5):
        registry.note_checks([ids["alpha"]])
    await until(lambda: bool(written))
    await house.gateway._journal.settle()
    assert written == [2]
    stored = {server.name: server.last_health_check for server in await store.load_servers()}
    assert stored == {name: house.server(name).last_health_check for name in ids}
