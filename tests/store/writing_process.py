"""A process that writes to a store as fast as it can, and says which writes were acknowledged.

Run as a script it is that process; imported, `WritingProcess` starts one and reads what it says.
"""

import asyncio
import os
import select
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.samples import new_record, new_server
from trunkline.store.sql import SqlStore

WRITERS = 16


async def write_forever(data_dir: Path) -> None:
    store = SqlStore.sqlite(data_dir)
    await store.open()
    await asyncio.gather(*(_write(store) for _ in range(WRITERS)))


async def _write(store: SqlStore) -> None:
    while True:
        name = f"s{uuid.uuid4().hex}"
        await store.add_server(new_server(name), new_record(server_name=name))
        os.write(1, f"{name}\n".encode())


class WritingProcess:
    def __init__(self, data_dir: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.store.writing_process", str(data_dir)],
            cwd=Path(__file__).parents[2],
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        self._said = b""

    @property
    def pid(self) -> int:
        return self._process.pid

    def read_acknowledged(self, at_least: int) -> set[str]:
        """The names acknowledged so far, once there are so many."""
        deadline = time.monotonic() + 60
        assert self._process.stdout is not None
        while len(self._names()) < at_least:
            ready, _, _ = select.select([self._process.stdout], [], [], deadline - time.monotonic())
            assert ready, "the writing process does not write"
            said = self._process.stdout.read(65_536)
            assert said, "the writing process has ended"
            self._said += said
        return self._names()

    def _names(self) -> set[str]:
        """A line cut off by the kill was still an acknowledgement to nobody."""
        return set(self._said.decode().split("\n")[:-1])

    def send(self, number: signal.Signals) -> set[str]:
        """End it, and return everything it had acknowledged."""
        self._process.send_signal(number)
        assert self._process.stdout is not None
        self._said += self._process.stdout.read() or b""
        self._process.wait(30)
        return self._names()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.send(signal.SIGKILL)
        assert self._process.stdout is not None
        self._process.stdout.close()


if __name__ == "__main__":
    asyncio.run(write_forever(Path(sys.argv[1])))
