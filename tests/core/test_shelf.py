"""What an address shows: names, pages, resources of several servers with one URI."""

import json
from dataclasses import replace
from datetime import timedelta

import pytest

from tests.samples import NOON, new_server
from trunkline.core.catalog import Catalog
from trunkline.core.shelf import PAGE, BadCursor, Shelf, shelf_of_all, shelf_of_one
from trunkline.model import Era, Item, ItemKind, Server, Tool

OLDER = replace(new_server("git-hub"), prefix="git_hub", registered_at=NOON)
NEWER = replace(new_server("files"), prefix="files", registered_at=NOON + timedelta(hours=1))


def tool(server: Server, name: str, **more: object) -> Tool:
    definition = {"name": name, "inputSchema": {"type": "object"}, **more}
    return Tool(
        id=1, server_id=server.id, server_name=server.name, original_name=name,
        definition=json.dumps(definition).encode(), fingerprint=name, description="", read_only=False,
        idempotent=False, header_parameters=(), discovered_at=NOON,
    )  # fmt: skip


def item(server: Server, kind: ItemKind, key: str, **more: object) -> Item:
    field = {ItemKind.PROMPT: "name", ItemKind.RESOURCE: "uri", ItemKind.TEMPLATE: "uriTemplate"}[kind]
    return Item(kind, server.id, key, json.dumps({field: key, **more}).encode(), key)


def listed(shelf: Shelf, method: str, *, modern: bool = True) -> list[dict[str, object]]:
    members = json.loads(b"{" + shelf.page(method, modern=modern, cursor=None) + b"}")
    found: list[dict[str, object]] = next(iter(members.values()))
    return found


def test_the_real_name_stands_in_the_title_and_beside_what_the_server_sent() -> None:
    made = tool(OLDER, "new.issue", title="New issue", _meta={"own": 1}, unheard=[1.5])
    shelf = shelf_of_all(Catalog().with_server(OLDER.id, [made], []), [OLDER], dotted=False)
    [shown] = listed(shelf, "tools/list")
    assert shown["name"] == "git_hub__new_issue"
    assert shown["title"] == "New issue (git-hub.new.issue)"
    assert shown["_meta"] == {"own": 1, "trunkline/name": "git-hub.new.issue"}
    assert shown["unheard"] == [1.5]
    assert shelf.tools["git-hub.new.issue"] is shelf.tools["git_hub__new_issue"] is made
    dotted = shelf_of_all(Catalog().with_server(OLDER.id, [made], []), [OLDER], dotted=True)
    assert listed(dotted, "tools/list")[0]["name"] == "git-hub.new.issue"
    assert dotted.tools["git_hub__new_issue"] is made


def test_one_server_is_shown_as_it_is() -> None:
    made = tool(OLDER, "new.issue")
    shelf = shelf_of_one(Catalog().with_server(OLDER.id, [made], []), OLDER)
    assert shelf.page("tools/list", modern=True, cursor=None) == b'"tools":[%b]' % made.definition


def test_pages_hold_everything_once_also_when_a_tool_goes_in_between() -> None:
    names = [f"t{number:04}" for number in range(2 * PAGE + 10)]
    catalog = Catalog().with_server(OLDER.id, [tool(OLDER, name) for name in names], [])
    seen: list[str] = []
    cursor: str | None = None
    for turn in range(3):
        page = json.loads(
            b"{" + shelf_of_one(catalog, OLDER).page("tools/list", modern=True, cursor=cursor) + b"}"
        )
        seen += [each["name"] for each in page["tools"]]
        cursor = page.get("nextCursor")
        assert (cursor is None) == (turn == 2)
        names_left = [name for name in names if turn == 0 or name != seen[-1]]
        catalog = Catalog().with_server(OLDER.id, [tool(OLDER, name) for name in names_left], [])
    assert seen == names
    with pytest.raises(BadCursor):
        shelf_of_one(catalog, OLDER).page("tools/list", modern=True, cursor="made up")


def test_of_two_resources_with_one_uri_the_older_server_keeps_it() -> None:
    both = [item(server, ItemKind.RESOURCE, "note://1") for server in (NEWER, OLDER)]
    catalog = Catalog().with_server(NEWER.id, [], [both[0]]).with_server(OLDER.id, [], [both[1]])
    shelf = shelf_of_all(catalog, [NEWER, OLDER], dotted=False)
    uris = [str(each["uri"]) for each in listed(shelf, "resources/list")]
    assert uris == ["note://1", "trunkline://files/note%3A%2F%2F1"]
    assert [shelf.resources[uri].server_id for uri in uris] == [OLDER.id, NEWER.id]
    assert {shelf.resources[uri].key for uri in uris} == {"note://1"}


def test_a_template_leads_to_its_server() -> None:
    kinds = [("note://{day}", OLDER), ("file:///{+path}", NEWER)]
    catalog = Catalog()
    for template, server in kinds:
        catalog = catalog.with_server(server.id, [], [item(server, ItemKind.TEMPLATE, template)])
    shelf = shelf_of_all(catalog, [OLDER, NEWER], dotted=False)
    for uri, server in (("note://monday", OLDER), ("file:///a/b.txt", NEWER)):
        found = shelf.resource_at(uri)
        assert found is not None
        assert (found.server_id, found.key) == (server.id, uri)
    assert shelf.resource_at("note://a/b") is None
    assert shelf.owner_of("note://{day}") == OLDER.id


def test_a_newer_server_has_other_tasks_whatever_its_tools_still_say() -> None:
    made = tool(OLDER, "job", execution={"taskSupport": "required"})
    newer = replace(OLDER, era=Era.MODERN)
    for shelf in (
        shelf_of_one(Catalog().with_server(OLDER.id, [made], []), newer),
        shelf_of_all(Catalog().with_server(OLDER.id, [made], []), [newer], dotted=True),
    ):
        [shown] = listed(shelf, "tools/list")
        assert "execution" not in shown


def test_tools_that_need_the_tasks_of_an_earlier_revision_are_not_shown() -> None:
    needs, may = (tool(OLDER, kind, execution={"taskSupport": kind}) for kind in ("required", "optional"))
    shelf = shelf_of_all(Catalog().with_server(OLDER.id, [needs, may], []), [OLDER], dotted=False)
    [shown] = listed(shelf, "tools/list")
    assert (shown["name"], "execution" in shown) == ("git_hub__optional", False)


def test_the_older_era_is_not_shown_what_it_cannot_hold() -> None:
    plain = tool(OLDER, "plain", outputSchema={"type": "object"})
    array = tool(OLDER, "array", outputSchema={"type": "array"})
    shelf = shelf_of_one(Catalog().with_server(OLDER.id, [plain, array], []), OLDER)
    older = {str(each["name"]): each for each in listed(shelf, "tools/list", modern=False)}
    assert "outputSchema" in older["plain"]
    assert "outputSchema" not in older["array"]
    assert all("outputSchema" in each for each in listed(shelf, "tools/list"))
