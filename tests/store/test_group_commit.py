import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sqlalchemy import Connection, Engine, event, insert, select, text
from sqlalchemy.exc import IntegrityError

from trunkline.errors import StorageUnavailable
from trunkline.store.group_commit import GroupCommit, Work
from trunkline.store.sqlite import SqliteDatabase, writing_engine
from trunkline.store.tables import marks


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[Engine]:
    """The writing connection of a migrated database."""
    database = SqliteDatabase(tmp_path)
    await database.open()
    await database.close()
    engine = writing_engine(tmp_path / "trunkline.db")
    yield engine
    engine.dispose()


@pytest.fixture
async def writer(engine: Engine) -> AsyncIterator[GroupCommit]:
    writer = GroupCommit(engine)
    yield writer
    await writer.close()


@pytest.fixture
def commits(engine: Engine) -> list[Connection]:
    """Grows by one with each commit to the file."""
    seen: list[Connection] = []
    event.listen(engine, "commit", seen.append)
    return seen


class Mark:
    """Work that writes one mark."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, connection: Connection) -> str:
        connection.execute(insert(marks).values(name=self.name, value=""))
        return self.name


def names(engine: Engine) -> set[str]:
    with engine.connect() as connection:
        return set(connection.execute(select(marks.c.name)).scalars())


async def submitted(writer: GroupCommit, works: list[Work]) -> list[object]:
    """All at once: what each returned or raised."""
    return [*await asyncio.gather(*map(writer.submit, works), return_exceptions=True)]


def orphan_found_at_commit(connection: Connection) -> None:
    """A breach that SQLite looks for only when it commits."""
    connection.execute(text("PRAGMA defer_foreign_keys=ON"))
    connection.execute(text("INSERT INTO items VALUES ('0', 'prompt', 'd', 'k', x'00', 'f')"))


async def test_writes_that_wait_share_a_commit(
    engine: Engine, writer: GroupCommit, commits: list[Connection]
) -> None:
    """R-54: a commit to disk takes 7 ms; 200 callers do not wait for 200 of them."""
    works = [Mark(f"m{number}") for number in range(200)]
    answers = await asyncio.gather(*(writer.submit(work) for work in works))
    assert answers == [work.name for work in works]
    assert names(engine) == set(answers)
    assert 1 <= len(commits) <= 4


async def test_a_batch_is_bounded(engine: Engine, commits: list[Connection]) -> None:
    """And the count of commits above is a true one: batches of one give one each."""
    writer = GroupCommit(engine, most=1)
    await asyncio.gather(*(writer.submit(Mark(f"m{number}")) for number in range(20)))
    await writer.close()
    assert len(commits) == 20


async def test_a_write_that_fails_fails_alone(
    engine: Engine, writer: GroupCommit, commits: list[Connection]
) -> None:
    def half_done(connection: Connection) -> None:
        Mark("half")(connection)
        raise LookupError("changed its mind")

    works: list[Work] = [Mark("a"), Mark("twin"), Mark("twin"), half_done, Mark("b")]
    ends = await submitted(writer, works)
    assert [ends[0], ends[1], ends[4]] == ["a", "twin", "b"]
    assert isinstance(ends[2], IntegrityError)
    assert isinstance(ends[3], LookupError)
    assert names(engine) == {"a", "twin", "b"}
    assert len(commits) == 1


async def test_a_write_alone_leaves_nothing_when_it_or_its_commit_fails(
    engine: Engine, writer: GroupCommit, commits: list[Connection]
) -> None:
    def half_done(connection: Connection) -> None:
        Mark("half")(connection)
        raise LookupError("changed its mind")

    def refused_at_commit(connection: Connection) -> None:
        Mark("refused")(connection)
        orphan_found_at_commit(connection)

    with pytest.raises(LookupError):
        await writer.submit(half_done)
    assert commits == []
    with pytest.raises(StorageUnavailable):
        await writer.submit(refused_at_commit)
    assert await writer.submit(Mark("later")) == "later"
    assert names(engine) == {"later"}


async def test_a_commit_that_fails_fails_all_of_its_batch_and_nothing_later(
    engine: Engine, writer: GroupCommit
) -> None:
    """A write is never acknowledged that is not there."""
    works: list[Work] = [Mark("before"), orphan_found_at_commit, Mark("after")]
    ends = await submitted(writer, works)
    assert [type(end) for end in ends] == [StorageUnavailable] * 3
    assert ends[0] is not ends[2]
    assert await writer.submit(Mark("later")) == "later"
    assert names(engine) == {"later"}


async def test_a_full_disk_fails_the_batch_and_passes(engine: Engine, writer: GroupCommit) -> None:
    """Whatever SQLite undoes by itself when it runs out of room, nobody is told that it was kept."""

    def grow(connection: Connection) -> None:
        connection.execute(insert(marks).values(name="big", value="x" * 10_000_000))

    def limit(pages: int) -> None:
        event.listen(
            engine,
            "begin",
            lambda connection: connection.exec_driver_sql(f"PRAGMA max_page_count={pages}"),
        )

    limit(100)
    works: list[Work] = [Mark("before"), grow, Mark("after")]
    ends = await submitted(writer, works)
    assert isinstance(ends[1], Exception)
    kept = {end for end in ends if isinstance(end, str)}
    assert names(engine) == kept
    limit(1_000_000)
    assert await writer.submit(Mark("later")) == "later"
    assert names(engine) == kept | {"later"}


async def test_a_caller_that_goes_away_harms_nobody(engine: Engine, writer: GroupCommit) -> None:
    """Before its turn its write does not run; with the batch under way it is kept; the writer lives on."""
    waits = asyncio.create_task(writer.submit(Mark("waits")))
    await asyncio.sleep(0)
    waits.cancel()
    started = asyncio.Event()
    loop = asyncio.get_running_loop()

    def begin(connection: Connection) -> None:
        loop.call_soon_threadsafe(started.set)
        Mark("begun")(connection)

    begun = asyncio.create_task(writer.submit(begin))
    neighbour = asyncio.create_task(writer.submit(Mark("neighbour")))
    await asyncio.wait_for(started.wait(), 10)
    begun.cancel()
    assert await neighbour == "neighbour"
    assert begun.cancelled()
    assert waits.cancelled()
    assert await writer.submit(Mark("later")) == "later"
    assert names(engine) == {"begun", "neighbour", "later"}


async def test_closing_commits_what_waits_and_refuses_what_comes(engine: Engine) -> None:
    writer = GroupCommit(engine, most=3)
    waiting = [asyncio.create_task(writer.submit(Mark(f"m{number}"))) for number in range(10)]
    await asyncio.sleep(0)
    await writer.close()
    with pytest.raises(StorageUnavailable):
        await writer.submit(Mark("late"))
    assert await asyncio.gather(*waiting) == [f"m{number}" for number in range(10)]
    assert names(engine) == {f"m{number}" for number in range(10)}
