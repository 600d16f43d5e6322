"""How flags become a configuration, also where the present one cannot be read."""

from typing import Any

import pytest

from trunkline.cli.failures import Failure, UsageFailure
from trunkline.cli.reaching import changed_config, connection_config


def sealed_for_ever(transport: str) -> dict[str, Any]:
    """As a server is shown whose credential key is lost."""
    return {"name": "alpha", "transport_type": transport, "connection_config": None}


@pytest.mark.parametrize(
    ("transport", "header", "env", "remedy"),
    [("HTTP", ["A: b"], None, "--http URL"), ("SSE", ["A: b"], None, "--sse URL"),
     ("STDIO", None, ["A=b"], "-- COMMAND")],
)  # fmt: skip
def test_a_part_of_what_cannot_be_opened_cannot_be_changed(
    transport: str, header: list[str] | None, env: list[str] | None, remedy: str
) -> None:
    """R-48: the command says so, and how to give the whole."""
    with pytest.raises(Failure, match="alpha cannot be opened") as caught:
        changed_config(sealed_for_ever(transport), None, None, None, header, env)
    (hint,) = caught.value.hints
    assert f"trunkline servers update alpha {'--env K=V ' if env else ''}{remedy}" in hint


def test_the_whole_can_be_given_anew() -> None:
    config = changed_config(
        sealed_for_ever("HTTP"), None, "https://example.com/mcp", None, ["A: b"], None
    )  # fmt: skip
    assert config == {"base_url": "https://example.com/mcp", "headers": {"A": "b"}}


def of_flags(**flags: Any) -> tuple[str, dict[str, Any]]:
    names = ("command", "http", "sse", "header", "env", "profile", "parameter")
    return connection_config(flags.get("stdio", False), *(flags.get(name) for name in names))


@pytest.mark.parametrize("stdio", [False, True])
def test_a_profile_is_named_with_its_parameters(stdio: bool) -> None:
    """R-01: a text is a text, whatever it looks like."""
    given = ["folder=/srv/a=b", "port=7", "depth:=3", "loud:=true"]
    transport, config = of_flags(stdio=stdio, profile="files", parameter=given)
    assert transport == "STDIO"
    parameters = {"folder": "/srv/a=b", "port": "7", "depth": 3, "loud": True}
    assert config == {"profile": "files", "parameters": parameters}
    assert of_flags(profile="files") == ("STDIO", {"profile": "files"})


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        ({}, "in one way"),
        ({"profile": "files", "command": ["true"]}, "in one way"),
        ({"profile": "files", "http": "https://example.com"}, "in one way"),
        ({"profile": "files", "env": ["A=b"]}, "neither --header nor --env"),
        ({"profile": "files", "parameter": ["folder"]}, "NAME=value"),
        ({"profile": "files", "parameter": [":=1"]}, "NAME=value"),
        ({"profile": "files", "parameter": ["depth:=three"]}, "needs JSON"),
        ({"command": ["true"], "parameter": ["depth=3"]}, "for a --profile"),
    ],
    ids=str,
)
def test_flags_that_do_not_go_together_are_refused(flags: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageFailure, match=why):
        of_flags(**flags)
