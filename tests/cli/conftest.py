"""One gateway for all tests of the command line; each test names servers of its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.terminal import SAMPLE, Cli, Serving, serve


@pytest.fixture(scope="session")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    gateway = serve(tmp_path_factory.mktemp("gateway") / "data")
    yield gateway
    gateway.stop()


@pytest.fixture
def cli(serving: Serving, tmp_path: Path) -> Cli:
    home = tmp_path / "home"
    home.mkdir()
    return Cli(serving.data_dir, home)


@pytest.fixture(scope="session")
def clock(serving: Serving, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A connected server with the tools of the sample clock."""
    cli = Cli(serving.data_dir, tmp_path_factory.mktemp("home"))
    cli.ok("servers", "add", "clock", "--description", "Tells the time", "--", *SAMPLE)
    return "clock"


@pytest.fixture
def nowhere(tmp_path: Path) -> Cli:
    """Where no gateway ever ran."""
    return Cli(tmp_path / "no-data", tmp_path)
