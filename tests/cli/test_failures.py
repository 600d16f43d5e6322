"""How a command that failed says so: lines on stderr for a person, with --json one document on stdout."""

import pytest

from tests.cli.terminal import Cli, Serving
from tests.servers.peers import scripted


@pytest.fixture(scope="session")
def printer(serving: Serving, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A connected server with a tool that answers with an error of its own."""
    config = scripted()
    args = config["args"]
    assert isinstance(args, list)
    Cli(serving.data_dir, tmp_path_factory.mktemp("home")).ok(
        "servers", "add", "printer", "--", str(config["command"]), *map(str, args)
    )
    return "printer"


def test_a_servers_own_error_is_shown_with_its_code_and_data(cli: Cli, printer: str) -> None:
    """R-29."""
    ended = cli("call", f"{printer}.rpc_error")
    assert (ended.code, ended.out) == (1, "")
    assert "printer answered with an error: out of paper (EXECUTION_FAILED)" in ended.err
    assert "the server's code: -32099" in ended.err
    assert 'the server\'s data: {"tray": 2}' in ended.err


def test_with_json_the_error_is_the_gateways_own_body(cli: Cli, printer: str) -> None:
    ended = cli("call", f"{printer}.rpc_error", "--json")
    assert ended.code == 1
    assert ended.json["error_code"] == "EXECUTION_FAILED"
    assert ended.json["context"]["data"] == {"tray": 2}
    ended = cli("servers", "show", "nobody", "--json")
    assert (ended.code, ended.json["error_code"]) == (1, "SERVER_NOT_FOUND")
    ended = cli("servers", "add", "Bad Name", "--http", "https://x.example.com", "--json")
    assert (ended.code, ended.json["detail"][0]["loc"]) == (1, ["body", "name"])


def test_with_json_our_own_refusals_have_the_same_shape(cli: Cli, nowhere: Cli) -> None:
    ended = cli("servers", "add", "x", "--json")
    assert (ended.code, ended.json["error_code"]) == (2, "USAGE")
    ended = nowhere("status", "--json")
    assert (ended.code, ended.json["error_code"]) == (3, "NO_GATEWAY")
    assert "No gateway is running" in ended.json["detail"]


def test_with_json_there_is_one_document_also_when_the_answer_is_a_failure(cli: Cli, clock: str) -> None:
    ended = cli("call", f"{clock}.days_between", "start=never", "end=2026-01-01", "--json")
    assert ended.code == 1
    assert ended.json["isError"]


@pytest.mark.parametrize("reference", ["a/b", "", "/", "nobody", "..", "a b?c#d"])
@pytest.mark.parametrize("command", ["show", "connect", "disconnect", "refresh"])
def test_what_can_be_no_server_is_not_found_like_any_other(cli: Cli, command: str, reference: str) -> None:
    """Whatever is typed: a slash in it is no part of an address."""
    ended = cli("servers", command, reference)
    assert ended.code == 1
    assert f"Server not found: {reference} (SERVER_NOT_FOUND)" in ended.err.replace(" \n", "\n")
