"""R-54: an acknowledged write survives kill -9; a process is really killed while it really writes."""

import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.store.writing_process import WritingProcess
from trunkline.ports import AuditFilter
from trunkline.store.sql import SqlStore


@pytest.mark.slow
async def test_every_acknowledged_write_is_there_after_kill_9(tmp_path: Path) -> None:
    acknowledged: set[str] = set()
    for enough in (1, 40, 90, 150, 230):
        with WritingProcess(tmp_path) as process:
            process.read_acknowledged(enough)
            acknowledged |= process.send(signal.SIGKILL)
        store = SqlStore.sqlite(tmp_path)
        await store.open()
        registered = {server.name for server in await store.load_servers()}
        records, _ = await store.read_audit(AuditFilter(limit=1_000_000))
        await store.close()
        with closing(sqlite3.connect(tmp_path / "trunkline.db")) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert acknowledged <= registered
        assert {record.server_name for record in records} == registered, "a server without its audit record"
