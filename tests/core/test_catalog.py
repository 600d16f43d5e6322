"""Proves the look-ups of the catalogue: names split at the first dot, and names that were nearly right."""

from hypothesis import given
from hypothesis import strategies as st

from tests.samples import NOON
from trunkline.core.catalog import Catalog
from trunkline.model import Item, ItemKind, Tool

servers = st.from_regex(r"[a-z][a-z0-9_-]{0,8}", fullmatch=True)
originals = st.one_of(
    st.text(st.characters(codec="utf-8", exclude_categories=["C"]), min_size=1, max_size=12),
    st.from_regex(r"[a-z]{1,4}(\.[a-z]{1,4}){0,3}", fullmatch=True),
)


def tool(server: str, original: str, tool_id: int = 1) -> Tool:
    return Tool(
        id=tool_id,
        server_id=f"id-{server}",
        server_name=server,
        original_name=original,
        definition=b"{}",
        fingerprint="f",
        description="",
        read_only=False,
        idempotent=False,
        header_parameters=(),
        discovered_at=NOON,
    )


def catalog(**tools: tuple[str, ...]) -> Catalog:
    found = Catalog()
    for server, names in tools.items():
        name = server.replace("_", "-")
        found = found.with_server(f"id-{name}", [tool(name, original) for original in names], [])
    return found


def test_only_the_first_dot_splits() -> None:
    """R-18"""
    found = catalog(server_a=("api.v2.create",), server_b=("v2.create", "create"))
    assert found.by_name["server-a.api.v2.create"].original_name == "api.v2.create"
    assert set(found.by_name) == {"server-a.api.v2.create", "server-b.v2.create", "server-b.create"}


@given(st.dictionaries(servers, st.sets(originals, max_size=6), max_size=5))
def test_every_tool_is_found_by_each_of_its_names_and_by_nothing_else(held: dict[str, set[str]]) -> None:
    """R-18, R-27: two servers never share a full name, whatever dots their tools have."""
    found = Catalog()
    for server, names in held.items():
        found = found.with_server(f"id-{server}", [tool(server, name) for name in names], [])
    expected = {(server, name) for server, names in held.items() for name in names}
    assert {(each.server_name, each.original_name) for each in found.by_name.values()} == expected
    assert len(found) == len(expected)
    for server, name in expected:
        assert found.by_name[f"{server}.{name}"] is found.tools_of(f"id-{server}")[name]
    for name, tools in found.by_original.items():
        assert {(each.server_name, name) for each in tools} == {pair for pair in expected if pair[1] == name}
    assert sum(map(len, found.by_original.values())) == len(expected)


@given(st.dictionaries(servers, st.sets(originals, max_size=4), min_size=1, max_size=4), st.data())
def test_a_server_that_goes_leaves_no_trace(held: dict[str, set[str]], data: st.DataObject) -> None:
    """R-07"""
    gone = data.draw(st.sampled_from(sorted(held)))
    with_it = Catalog()
    without = Catalog()
    for server, names in held.items():
        tools = [tool(server, name) for name in sorted(names)]
        with_it = with_it.with_server(f"id-{server}", tools, [])
        if server != gone:
            without = without.with_server(f"id-{server}", tools, [])
    after = with_it.without_server(f"id-{gone}")
    assert (after.by_server, after.by_name, after.by_original) == (
        without.by_server,
        without.by_name,
        without.by_original,
    )


def test_a_name_that_several_servers_have_leads_to_all_of_them() -> None:
    """R-27"""
    found = catalog(a=("echo", "only"), b=("echo",), c=("echo",))
    assert [each.name for each in found.by_original["echo"]] == ["a.echo", "b.echo", "c.echo"]
    assert [each.name for each in found.by_original["only"]] == ["a.only"]


def test_listing_a_server_again_replaces_what_it_had() -> None:
    """R-18: what vanished is not callable under any name."""
    before = catalog(a=("old", "kept"), b=("old",))
    after = before.with_server("id-a", [tool("a", "kept"), tool("a", "new")], [])
    assert set(after.by_name) == {"a.kept", "a.new", "b.old"}
    assert [each.name for each in after.by_original["old"]] == ["b.old"]


def test_a_snapshot_never_changes() -> None:
    """Readers hold one without a lock."""
    before = catalog(a=("one",))
    item = Item(ItemKind.PROMPT, "id-a", "greet", b"{}", "f")
    after = before.with_server("id-a", [tool("a", "two")], [item])
    gone = after.without_server("id-a")
    assert (set(before.by_name), dict(before.items)) == ({"a.one"}, {"id-a": ()})
    assert (set(after.by_name), dict(after.items)) == ({"a.two"}, {"id-a": (item,)})
    assert (set(gone.by_name), dict(gone.items)) == (set(), {})
    assert before.version < after.version < gone.version


# Near names


GITHUB = ("create_issue", "create_pull_request", "list_issues", "get_file", "searchCode")


def test_a_slip_of_the_finger_finds_what_was_meant() -> None:
    """R-27"""
    found = catalog(github_mcp=GITHUB, files=("read_file", "write_file"))
    assert found.near("github-mcp.creat_issue")[0] == "github-mcp.create_issue"
    assert found.near("create_isue")[0] == "github-mcp.create_issue"
    assert found.near("readfile")[0] == "files.read_file"
    assert found.near("github-mcp.search_code")[0] == "github-mcp.searchCode"


def test_a_wrong_server_or_order_still_finds_the_tool() -> None:
    """R-27"""
    found = catalog(github_mcp=GITHUB, files=("read_file", "write_file"))
    assert found.near("gitlab.list_issues")[0] == "github-mcp.list_issues"
    assert "files.read_file" in found.near("file_read")


def test_what_is_like_nothing_finds_nothing() -> None:
    """R-27: a guess that has nothing to do with the name helps nobody."""
    found = catalog(github_mcp=GITHUB)
    assert found.near("zzzzqqq") == []
    assert found.near("") == []
    assert Catalog().near("anything") == []


@given(st.text(max_size=40))
def test_near_names_are_few_existing_and_always_the_same(name: str) -> None:
    """R-27: whatever is asked for."""
    found = catalog(github_mcp=GITHUB, files=("read_file", "write_file"))
    near = found.near(name)
    assert len(near) <= 3
    assert set(near) <= set(found.by_name)
    assert near == found.near(name)


def test_ten_thousand_tools_are_searched_in_a_moment() -> None:
    """R-27: an unknown name is an ordinary mistake and must not stop the gateway."""
    many = Catalog()
    for server in range(10):
        tools = [tool(f"s{server}", f"list_things_{number}") for number in range(1000)]
        many = many.with_server(f"id-s{server}", tools, [])
    assert many.near("s3.list_thing_77")
