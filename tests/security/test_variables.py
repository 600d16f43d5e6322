"""Proves `${VAR}`: what may be named, what it becomes, and what is never read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.security.variables import Reference, VariableFault, Variables, parse

ENVIRON = {
    "GITHUB_TOKEN": "ghp-value",
    "MCP_CREDENTIAL_KEY": "the-key-itself",
    "MCP_AGGREGATOR_DATABASE_URL": "postgresql://u:p@h/d",
    "MCP_OTHER": "other",
    "EMPTY": "",
    "HOME": "/root",
}


def variables(*allowed: str) -> Variables:
    return Variables(allowed, ENVIRON)


def test_a_reference_is_filled_in() -> None:
    """R-49"""
    filled = variables("GITHUB_TOKEN").fill("Bearer ${GITHUB_TOKEN}!")
    assert filled.text == "Bearer ghp-value!"
    assert filled.values == {"ghp-value"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("$", "$"),
        ("$$", "$$"),
        ("$HOME", "$HOME"),
        ("$(id)", "$(id)"),
        ("{GITHUB_TOKEN}", "{GITHUB_TOKEN}"),
        ("$${GITHUB_TOKEN}", "${GITHUB_TOKEN}"),
        ("$$${GITHUB_TOKEN}", "$${GITHUB_TOKEN}"),
        ("a$${b", "a${b"),
        ("${GITHUB_TOKEN}${GITHUB_TOKEN}", "ghp-valueghp-value"),
    ],
)
def test_only_references_change_and_an_escape_stands_for_itself(text: str, expected: str) -> None:
    assert variables("GITHUB_TOKEN").fill(text).text == expected


@pytest.mark.parametrize(
    "text", ["${", "${}", "${1A}", "${A:-x}", "${A B}", "${A", "${a.b}", "${é}", "${${A}}"]
)
def test_a_broken_reference_is_refused(text: str) -> None:
    with pytest.raises(VariableFault, match="must begin a"):
        parse(text)


def test_only_what_the_operator_allows_may_be_named() -> None:
    """R-49"""
    for allowed in ((), ("GITHUB_TOKEN",), ("GIT*", "GITHUB_TOKEN")):
        with pytest.raises(VariableFault, match=r"add HOME to MCP_AGGREGATOR_ALLOWED_VARIABLES") as refused:
            variables(*allowed).check("${HOME}")
        assert "/root" not in str(refused.value)
    variables("HO*").check("${HOME}")
    with pytest.raises(VariableFault):
        variables("HOM").check("${HOME}")


@pytest.mark.parametrize("name", ["MCP_CREDENTIAL_KEY", "MCP_AGGREGATOR_DATABASE_URL", "mcp_credential_key"])
@pytest.mark.parametrize(
    "allowed", [("MCP_*",), ("M*",), ("MCP_CREDENTIAL_KEY", "MCP_AGGREGATOR_DATABASE_URL", "m*")]
)
def test_the_gateways_own_variables_can_never_be_used(name: str, allowed: tuple[str, ...]) -> None:
    """R-49"""
    for use in (variables(*allowed).check, variables(*allowed).fill):
        with pytest.raises(VariableFault, match="gateway's own") as refused:
            use(f"x${{{name}}}")
        assert "the-key-itself" not in str(refused.value)
    variables("MCP_*").check("${MCP_OTHER}")


@pytest.mark.parametrize("name", ["UNSET", "EMPTY"])
def test_an_unset_variable_is_a_fault_only_when_filling(name: str) -> None:
    """R-49: values are looked at when connecting, never before."""
    ours = variables(name)
    ours.check(f"${{{name}}}")
    with pytest.raises(VariableFault, match=rf"\$\{{{name}\}} is not set"):
        ours.fill(f"${{{name}}}")


@given(st.text())
def test_no_text_raises_anything_but_a_fault(text: str) -> None:
    try:
        pieces = parse(text)
    except VariableFault:
        return
    if not any(isinstance(piece, Reference) for piece in pieces):
        assert variables().fill(text).text == text.replace("$${", "${")


@given(st.text())
def test_a_value_is_never_read_as_a_reference_again(value: str) -> None:
    if value:
        assert Variables(("A",), {"A": value}).fill("<${A}>").text == f"<{value}>"
