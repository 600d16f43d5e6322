import asyncio
import time
from collections.abc import Callable, Iterator

import pytest
from sqlalchemy import Connection, text

from tests.postgres import PASSWORD, EmbeddedPostgres, PostgresUrl, psql
from tests.samples import NOON, new_record, new_server
from trunkline.errors import ServerAlreadyExists, SettingsError, StartRefused, StorageUnavailable
from trunkline.model import Item, ItemKind
from trunkline.ports import ToolDraft
from trunkline.store.postgresql import PostgresDatabase, plain_url
from trunkline.store.sql import SqlStore


@pytest.fixture(scope="module")
def own_server() -> Iterator[EmbeddedPostgres]:
    """One that may be stopped and started."""
    server = EmbeddedPostgres()
    server.start()
    yield server
    server.discard()


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+asyncpg"])
def test_every_usual_spelling_of_the_address_is_understood(scheme: str) -> None:
    rest = "://u:p%40ss@/name?host=/run/postgresql&sslmode=disable"
    assert plain_url(scheme + rest) == "postgresql" + rest


@pytest.mark.parametrize(
    "url", ["mysql://u:hunter2@h/d", "sqlite:///hunter2", "hunter2", "", "postgresql:hunter2"]
)
def test_another_database_is_refused_without_repeating_its_address(url: str) -> None:
    with pytest.raises(SettingsError, match="must start with postgresql://") as refusal:
        plain_url(url)
    assert "hunter2" not in refusal.value.detail


@pytest.mark.parametrize("scheme", ["postgres", "postgresql+asyncpg"])
async def test_a_store_opens_by_every_spelling(postgres_url: PostgresUrl, scheme: str) -> None:
    store = SqlStore.postgresql(postgres_url().replace("postgresql", scheme, 1))
    await store.open()
    await store.set_mark("a", "b")
    assert await store.get_mark("a") == "b"
    await store.close()


async def test_two_gateways_that_register_one_name_at_once_are_told_apart(postgres_url: PostgresUrl) -> None:
    """R-02: two stores, as two processes have them, on one PostgreSQL."""
    url = postgres_url()
    stores = [SqlStore.postgresql(url), SqlStore.postgresql(url)]
    await asyncio.gather(*(store.open() for store in stores))
    for number in range(20):
        rivals = [new_server(f"prize-{number}") for _ in stores]
        ends = await asyncio.gather(
            *(store.add_server(rival, new_record()) for store, rival in zip(stores, rivals, strict=True)),
            return_exceptions=True,
        )
        assert [type(end) for end in ends if end is not None] == [ServerAlreadyExists]
        winner = rivals[ends.index(None)]
        for store in stores:
            named = [server for server in await store.load_servers() if server.name == winner.name]
            assert named == [winner]
    await asyncio.gather(*(store.close() for store in stores))


async def test_two_gateways_that_discover_one_server_at_once_agree(postgres_url: PostgresUrl) -> None:
    """R-55: the same tools twice are the same rows."""
    url = postgres_url()
    stores = [SqlStore.postgresql(url), SqlStore.postgresql(url)]
    await asyncio.gather(*(store.open() for store in stores))
    server = new_server()
    await stores[0].add_server(server, new_record())
    for version in range(10):
        drafts = [ToolDraft(f"t{number}", "", b"{}", str(version), {}) for number in range(version, 60)]
        removed = [f"t{number}" for number in range(version)]
        item = Item(ItemKind.PROMPT, server.id, "p", b"{}", str(version))
        seen = await asyncio.gather(
            *(store.apply_tools(server.id, drafts, removed, NOON) for store in stores),
        )
        await asyncio.gather(*(store.apply_items(server.id, [item], []) for store in stores))
        assert seen[0] == seen[1]
        assert len(await stores[0].load_tools()) == 60 - version
        assert await stores[1].load_items() == [item]
    await asyncio.gather(*(store.close() for store in stores))


async def test_writes_fail_at_once_while_the_server_is_down_and_the_pool_heals(
    own_server: EmbeddedPostgres,
) -> None:
    """R-33: the answer names no address; what was acknowledged before the crash is there after it."""
    store = SqlStore.postgresql(own_server.url)
    await store.open()
    await asyncio.gather(*(store.set_mark(f"m{number}", "kept") for number in range(20)))
    own_server.stop()
    began = time.monotonic()
    for attempt in (store.set_mark("lost", ""), store.get_mark("m1"), store.ping()):
        with pytest.raises(StorageUnavailable) as failure:
            await attempt
        assert str(own_server.folder) not in str(failure.value)
        assert PASSWORD not in str(failure.value)
    assert time.monotonic() - began < 3
    own_server.start()
    await store.ping()
    assert [await store.get_mark(f"m{number}") for number in range(20)] == ["kept"] * 20
    own_server.stop()
    own_server.start()
    # Nobody has noticed this time: connections are tried before they are used.
    await asyncio.gather(*(store.set_mark("after", "kept") for _ in range(5)))
    await store.close()


async def test_a_server_that_dies_in_the_middle_of_a_write_fails_that_write(
    own_server: EmbeddedPostgres,
) -> None:
    database = PostgresDatabase(own_server.url)
    await database.open()

    def cut_off(connection: Connection) -> None:
        connection.execute(text("INSERT INTO mcp.marks VALUES ('cut off', '')"))
        own_server.stop()
        connection.execute(text("INSERT INTO mcp.marks VALUES ('second', '')"))

    with pytest.raises(StorageUnavailable):
        await database.write(cut_off)
    own_server.start()
    count = text("SELECT count(*) FROM mcp.marks WHERE name IN ('cut off', 'second')")
    assert await database.read(lambda connection: connection.execute(count).scalar()) == 0
    await database.close()


async def test_a_cancelled_write_gives_its_connection_back(postgres_url: PostgresUrl) -> None:
    url = postgres_url()
    database, watcher = PostgresDatabase(url), PostgresDatabase(url)
    await asyncio.gather(database.open(), watcher.open())
    asleep = text("SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep%'")

    def sleep(connection: Connection) -> None:
        connection.execute(text("SELECT pg_sleep(60)"))

    sleepers = [asyncio.create_task(database.write(sleep)) for _ in range(10)]
    async with asyncio.timeout(20):
        while True:
            if await watcher.read(lambda connection: connection.execute(asleep).scalar()) == 10:
                break
            await asyncio.sleep(0.01)
    for sleeper in sleepers:
        sleeper.cancel()
    ends = await asyncio.gather(*sleepers, return_exceptions=True)
    assert all(isinstance(end, asyncio.CancelledError) for end in ends)
    await asyncio.gather(*(database.read(lambda connection: None) for _ in range(20)))
    await asyncio.wait_for(database.close(), 10)
    await watcher.close()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda url: url.replace(PASSWORD, "hunter2"), "rejected the user name or the password"),
        (lambda url: url.replace("//postgres:", "//hunter2:"), "rejected the user name or the password"),
        (lambda url: url.replace("/postgres?", "/hunter2?"), "no database of this name"),
        (lambda url: url + "/hunter2", "nothing answers at this address"),
        (lambda _: "postgresql://u:hunter2@127.0.0.1:1/db", "nothing answers at this address"),
        (lambda _: "postgresql://u:hunter2@nowhere.invalid/db", "nothing answers at this address"),
        (lambda _: "postgresql://u:hunter2/x@127.0.0.1/db", "the address cannot be read"),
        (lambda _: "postgresql://u:p@127.0.0.1:hunter2/db", "the address cannot be read"),
        (lambda url: url + "&sslmode=hunter2", "the address cannot be read"),
        (lambda url: url + "&hunter2=1", "it answered with an error (42704)"),
    ],
)
async def test_a_database_that_cannot_be_used_stops_the_start_with_one_line(
    own_server: EmbeddedPostgres, change: Callable[[str], str], reason: str
) -> None:
    """The line says what is wrong and names the setting; it repeats nothing of the address."""
    with pytest.raises(StartRefused) as refusal:
        await SqlStore.postgresql(change(own_server.url)).open()
    detail = refusal.value.detail
    assert reason in detail
    assert "MCP_AGGREGATOR_DATABASE_URL" in detail
    assert "\n" not in detail
    for secret in ("hunter2", PASSWORD, str(own_server.folder)):
        assert secret not in detail
    assert refusal.value.__suppress_context__


async def test_a_user_who_may_not_create_tables_is_told_what_to_grant(own_server: EmbeddedPostgres) -> None:
    psql(own_server.url, "CREATE ROLE guest LOGIN PASSWORD 'guest'")
    psql(own_server.url, "CREATE DATABASE closed")
    url = own_server.url.replace(f"postgres:{PASSWORD}", "guest:guest").replace("/postgres?", "/closed?")
    with pytest.raises(StartRefused, match="give it CREATE on the database"):
        await SqlStore.postgresql(url).open()
