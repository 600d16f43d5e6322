"""How flags become a configuration, also where the present one cannot be read."""

from typing import Any

import pytest

from trunkline.cli.failures import Failure
from trunkline.cli.reaching import changed_config


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
