"""What doctor makes of what a gateway says of a server."""

from typing import Any

import pytest

from trunkline.cli.doctor import OK, WARNING, Finding, check_server


def found(**said: Any) -> list[Finding]:
    server = {"name": "alpha", "status": "CONNECTED", "tool_count": 2, "error_message": None, "problems": []}
    return list(check_server(server | said))


def test_a_connected_server_is_well() -> None:
    (finding,) = found()
    assert (finding.state, finding.text) == (OK, "is CONNECTED with 2 tools")


def test_a_server_that_fails_to_connect_again_and_again_is_not_well() -> None:
    """R-12: while it still tries, the reason of the last failure is the news."""
    (finding,) = found(status="CONNECTING", error_message="no such host")
    assert finding.state == WARNING
    assert finding.text.endswith("failed: no such host")
    assert found(status="CONNECTING")[0].state == OK


@pytest.mark.parametrize(
    ("kind", "advice"),
    [
        ("configuration", "the MCP_CREDENTIAL_KEY that sealed it"),
        ("list", "trunkline servers refresh alpha"),
        ("tool", "its maker"),
        ("prompt", "its maker"),
    ],
)
def test_what_to_do_about_a_problem_depends_on_whose_it_is(kind: str, advice: str) -> None:
    """R-20"""
    _, finding = found(problems=[{"kind": kind, "name": "x", "reason": "why"}])
    assert finding.text == f"{kind} x: why"
    assert advice in str(finding.remedy)
