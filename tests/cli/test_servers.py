"""`trunkline servers …` against a running gateway, as somebody at a terminal sees it."""

from pathlib import Path

import pytest

from tests.cli.terminal import Cli
from tests.core.peer import SCRIPT, Peer, definition, page


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


def test_a_server_is_shown_with_its_era_and_all_it_has(cli: Cli, peer: Peer) -> None:
    """R-17"""
    lists = {
        "tools/list": page(definition("good")),
        "prompts/list": page({"name": "p1"}, {"name": "p2"}, key="prompts"),
        "resources/list": page({"uri": "file:///r", "name": "r"}, key="resources"),
        "resources/templates/list": page(key="resourceTemplates"),
    }
    capabilities: dict[str, object] = {"tools": {}, "prompts": {}, "resources": {}}
    peer.say(lists={method: {"": answer} for method, answer in lists.items()}, capabilities=capabilities)
    add(cli, "rich", peer)
    shown = dict(line.split(None, 1) for line in cli.ok("servers", "show", "rich").out.splitlines())
    assert shown["era"] == "legacy"
    found = [shown[name] for name in ("tools", "prompts", "resources", "templates")]
    assert found == ["1", "2", "1", "0"]
