"""`trunkline servers …` against a running gateway, as somebody at a terminal sees it."""

from pathlib import Path

import pytest

from tests.cli.terminal import Cli
from tests.core.peer import SCRIPT, Peer, definition


@pytest.fixture
def peer(tmp_path: Path) -> Peer:
    return Peer(tmp_path / "peer.json")


def add(cli: Cli, name: str, peer: Peer) -> str:
    command, file = str(peer.config["command"]), str(peer.file)
    return cli.ok("servers", "add", name, "--", command, SCRIPT, file).out


@pytest.mark.parametrize(
    ("bad", "said"),
    [(0, None), (1, "1 tool was kept out"), (2, "2 tools were kept out")],
    ids=["none", "one", "two"],
)
def test_adding_a_server_tells_of_tools_that_were_kept_out(
    cli: Cli, peer: Peer, bad: int, said: str | None
) -> None:
    """R-20: else nobody would look for the reason."""
    name = f"odd{bad}"
    peer.has(definition("good"), *(definition(f"bad{number}", inputSchema=7) for number in range(bad)))
    out = add(cli, name, peer)
    assert f"{name} is CONNECTED and has 1 tool." in out
    assert (f"{said}: trunkline servers show {name}" in out) if said else ("kept out" not in out)


def test_adding_a_server_tells_of_a_list_that_could_not_be_read(cli: Cli, peer: Peer) -> None:
    """R-20"""
    peer.say(lists={"tools/list": {"": {"error": {"code": -1, "message": "not now"}}}})
    assert "It has 1 problem: trunkline servers show sulky" in add(cli, "sulky", peer)
