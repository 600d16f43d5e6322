import asyncio
import os
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import Connection

from tests.store.writing_process import WritingProcess
from trunkline.errors import StartRefused
from trunkline.store.sqlite import SqliteDatabase


def pragma(name: str) -> Callable[[Connection], object]:
    return lambda connection: connection.exec_driver_sql(f"PRAGMA {name}").scalar()


async def test_a_write_survives_a_power_cut_by_the_pragmas_in_force(tmp_path: Path) -> None:
    """R-54: WAL, synchronous FULL, foreign keys on."""
    database = SqliteDatabase(tmp_path)
    await database.open()
    expected = {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "busy_timeout": 5000}
    assert {name: await database.write(pragma(name)) for name in expected} == expected
    assert await database.read(pragma("journal_mode")) == "wal"
    assert await database.read(pragma("query_only")) == 1
    await database.close()


async def test_only_the_owner_can_read_the_files(tmp_path: Path) -> None:
    """R-48: whatever the umask, and also after a restored backup."""
    folder = tmp_path / "new" / "data"
    folder.parent.mkdir()
    before = os.umask(0)
    try:
        database = SqliteDatabase(folder)
        await database.open()
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
        await database.close()
    finally:
        os.umask(before)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert modes == dict.fromkeys(
        ["trunkline.db", "trunkline.db-wal", "trunkline.db-shm", "trunkline.lock"], 0o600
    )
    (folder / "trunkline.db").chmod(0o644)
    await database.open()
    await database.close()
    assert stat.S_IMODE((folder / "trunkline.db").stat().st_mode) == 0o600


async def test_a_second_process_is_refused_and_told_what_to_do(tmp_path: Path) -> None:
    """R-55: SQLite is for one process; the lock goes when its holder is killed."""
    database = SqliteDatabase(tmp_path)
    with WritingProcess(tmp_path) as holder:
        holder.read_acknowledged(1)
        with pytest.raises(StartRefused) as refusal:
            await database.open()
        text = refusal.value.detail
        assert "\n" not in text
        for part in (str(tmp_path), f"process {holder.pid}", "--data-dir"):
            assert part in text
        assert "PostgreSQL" not in text  # two gateways on one database are not built yet
        holder.send(signal.SIGKILL)
    await database.open()
    await database.close()


async def test_a_second_store_of_the_same_process_is_refused_too(tmp_path: Path) -> None:
    first, second = SqliteDatabase(tmp_path), SqliteDatabase(tmp_path)
    await first.open()
    with pytest.raises(StartRefused, match=f"process {os.getpid()}"):
        await second.open()
    await first.close()
    await second.open()
    await second.close()


@pytest.mark.parametrize("content", [b"not a database, " * 300, b"SQLite format 3\x00" + b"\xa5" * 8176])
async def test_a_damaged_file_stops_the_start_with_one_line(tmp_path: Path, content: bytes) -> None:
    """R-44's habit: one clear line; the file itself stays as it is."""
    file = tmp_path / "trunkline.db"
    file.write_bytes(content)
    database = SqliteDatabase(tmp_path)
    with pytest.raises(StartRefused, match="is damaged or no SQLite database") as refusal:
        await database.open()
    assert str(file) in refusal.value.detail
    assert "\n" not in refusal.value.detail
    assert file.read_bytes() == content
    file.unlink()
    await database.open()
    await database.close()


async def test_a_database_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "trunkline.db")) as connection, connection:
        connection.execute("CREATE TABLE tools (mine)")
    with pytest.raises(StartRefused, match="table tools already exists") as refusal:
        await SqliteDatabase(tmp_path).open()
    assert "\n" not in refusal.value.detail
    with closing(sqlite3.connect(tmp_path / "trunkline.db")) as connection:
        tables = connection.execute("SELECT name FROM sqlite_master").fetchall()
    assert tables == [("tools",)]


async def test_a_folder_that_cannot_be_made_stops_the_start_with_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StartRefused, match=r"Not a directory\..*--data-dir") as refusal:
        await SqliteDatabase(tmp_path / "file" / "data").open()
    assert "\n" not in refusal.value.detail


@pytest.fixture
def folder_for_everybody() -> Iterator[Path]:
    """Root may write anywhere, so as root the next test needs another user, who may not enter pytest's."""
    folder = Path(tempfile.mkdtemp(prefix="trunkline-"))
    folder.chmod(0o555)
    yield folder
    shutil.rmtree(folder)


async def test_a_folder_that_cannot_be_written_stops_the_start_with_one_line(
    folder_for_everybody: Path,
) -> None:
    script = (
        "import asyncio, os, pwd, sys; from pathlib import Path\n"
        "from trunkline.errors import StartRefused; from trunkline.store.sqlite import SqliteDatabase\n"
        "if os.geteuid() == 0: os.seteuid(pwd.getpwnam('nobody').pw_uid)\n"
        "try: asyncio.run(SqliteDatabase(Path(sys.argv[1])).open())\n"
        "except StartRefused as refusal: print(refusal)"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        script,
        str(folder_for_everybody),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    output, errors = await asyncio.wait_for(process.communicate(), 30)
    assert errors == b""
    assert output.decode() == (
        f"Cannot keep data in {folder_for_everybody}: Permission denied. Make the folder writable for this "
        "user, or give another with --data-dir.\n"
    )
