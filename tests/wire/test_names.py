"""Aliases are what every client takes, tell whose they are, and depend on no other server."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.wire.names import LONGEST_ALIAS, LONGEST_PREFIX, aliases, prefix_of

servers = st.from_regex(r"[a-z][a-z0-9_-]{0,60}", fullmatch=True)
tools = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=100)
SAFE = re.compile(r"[A-Za-z0-9_]{1,64}")


@pytest.mark.parametrize(
    ("server", "tool", "alias"),
    [
        ("github-mcp", "create_issue", "github_mcp__create_issue"),
        ("files", "read", "files__read"),
        ("a__b", "c", "a_b__c"),
        ("server-a", "api.v2.create", "server_a__api_v2_create"),
        ("a", "_x", "a___x"),
    ],
)
def test_an_alias_is_as_near_to_the_name_as_it_can_be(server: str, tool: str, alias: str) -> None:
    assert aliases(prefix_of(server, ()), server, [tool]) == {alias: tool}


@given(st.lists(servers, unique=True, max_size=8), st.lists(tools, unique=True, max_size=8))
def test_every_alias_is_safe_and_leads_back(names: list[str], own: list[str]) -> None:
    """One to one over all servers and all their tools."""
    prefixes: dict[str, str] = {}
    found: dict[str, tuple[str, str]] = {}
    for server in names:
        prefixes[server] = prefix_of(server, prefixes.values())
        mine = aliases(prefixes[server], server, own)
        assert sorted(mine.values()) == sorted(own)
        for alias, tool in mine.items():
            assert SAFE.fullmatch(alias)
            assert alias not in found
            found[alias] = (server, tool)
    assert len(found) == len(names) * len(own)


@given(servers, st.sets(servers, max_size=20))
def test_a_prefix_is_free_and_says_where_it_ends(server: str, others: set[str]) -> None:
    taken = {prefix_of(other, ()) for other in others}
    prefix = prefix_of(server, taken)
    assert prefix not in taken
    assert "__" not in prefix
    assert not prefix.endswith("_")
    assert len(prefix) <= LONGEST_PREFIX + 24


def test_names_that_differ_in_what_is_lost_are_told_apart() -> None:
    """The one that loses nothing keeps the plain alias, whatever order they come in."""
    for order in (["a.b", "a_b", "a-b"], ["a_b", "a-b", "a.b"]):
        found = aliases("s", "s", order)
        assert found["s__a_b"] == "a_b"
        assert len(found) == 3


def test_a_long_name_is_cut_and_stays_its_own() -> None:
    found = aliases("s", "s", ["x" * 100 + "1", "x" * 100 + "2"])
    assert {len(alias) for alias in found} == {LONGEST_ALIAS}
    assert len(found) == 2
    assert aliases("s", "s", ["x" * 100 + "1"]).items() <= found.items()
