"""Proves that reading a list comes to an end, whatever the server does, and keeps what was good."""

import itertools
import time
from collections.abc import Mapping

import pytest

from tests.core.peer import Peer, definition, page, pages
from tests.core.wiring import connection_to
from trunkline.core import listing
from trunkline.core.listing import Inventory, take_inventory
from trunkline.model import ItemKind, Problem

EVERYTHING: dict[str, object] = {"tools": {}, "prompts": {}, "resources": {}}


async def inventory_of(peer: Peer, most: int = 1000, counts: list[int] | None = None) -> Inventory:
    async with connection_to(peer) as connection:
        on_page = counts.append if counts is not None else lambda count: None
        return await take_inventory("s", connection, most_tools=most, on_page=on_page)


def tools(peer: Peer, lists: Mapping[str, object]) -> None:
    peer.say(lists={"tools/list": lists})


def endless(number: int) -> dict[str, object]:
    """So many pages, each leading to the next, the last one to nowhere."""
    return dict(pages(*((definition(f"t{at}"),) for at in range(number))))


async def test_every_page_is_read_in_order_and_asked_for_once(peer: Peer) -> None:
    """R-17"""
    tools(peer, endless(3))
    counts: list[int] = []
    found = await inventory_of(peer, counts=counts)
    assert list(found.tools) == ["t0", "t1", "t2"]
    assert (found.tools_complete, found.problems, counts) == (True, [], [1, 2, 3])
    assert [peer.asked(f"tools/list {cursor}") for cursor in ("", "page-2", "page-3")] == [1, 1, 1]


@pytest.mark.parametrize(("count", "complete"), [(99, True), (100, True), (101, False)])
async def test_a_hundred_pages_are_read_and_no_more(peer: Peer, count: int, complete: bool) -> None:
    """R-17, R-20: what had come by then is kept, and the reason is shown."""
    tools(peer, endless(count))
    found = await inventory_of(peer)
    assert (len(found.tools), found.tools_complete) == (min(count, 100), complete)
    assert peer.asked() == min(count, 100)
    said = [] if complete else [Problem("list", "tools/list", "more than 100 pages; the first 100 are used")]
    assert found.problems == said


@pytest.mark.parametrize("way", [["a", "a"], ["a", "b", "a"], ["a", "b", "c", "b"], ["", ""]])
async def test_a_cursor_that_comes_back_ends_the_list(peer: Peer, way: list[str]) -> None:
    """R-17: at once or in a larger circle; no page is read a third time."""
    lists = {"": page(definition("first"), next_cursor=way[0])}
    for here, after in itertools.pairwise(way):
        lists[here] = page(definition(f"at-{here}"), next_cursor=after)
    tools(peer, lists)
    found = await inventory_of(peer)
    assert not found.tools_complete
    assert ["cursor" in problem.reason for problem in found.problems if problem.kind == "list"] == [True]
    assert set(found.tools) >= {f"at-{cursor}" for cursor in way}
    assert peer.asked() <= len(way) + 1


async def test_a_list_that_takes_too_long_is_cut_and_what_had_come_is_kept(
    peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-17: 30 seconds for the whole list, however quick each page is."""
    assert listing.MOST_SECONDS == 30
    monkeypatch.setattr(listing, "MOST_SECONDS", 0.6)
    slow = {cursor: {"wait": 0.25, "then": order} for cursor, order in endless(20).items()}
    tools(peer, slow)
    started = time.monotonic()
    found = await inventory_of(peer)
    assert time.monotonic() - started < 5
    assert 0 < len(found.tools) < 20
    assert not found.tools_complete
    assert "0.6 s" in found.problems[0].reason


async def test_a_page_that_never_comes_costs_only_the_rest(
    peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-17, R-20"""
    monkeypatch.setattr(listing, "MOST_SECONDS", 0.3)
    tools(peer, {"": page(definition("first"), next_cursor="b"), "b": "mute"})
    found = await inventory_of(peer)
    assert (list(found.tools), found.tools_complete) == (["first"], False)
    assert len(found.problems) == 1


@pytest.mark.parametrize(
    ("second", "reason"),
    [
        ({"error": {"code": -32603, "message": "out of cursors"}}, "out of cursors"),
        ({"result": {"tool": []}}, "without 'tools'"),
        ({"result": {"tools": {}}}, "cannot be read"),
        ({"result": {"tools": [], "nextCursor": 7}}, "cursor that is not a string"),
        ("die", "ended"),
    ],
)
async def test_a_bad_page_is_said_and_the_good_ones_are_kept(peer: Peer, second: object, reason: str) -> None:
    """R-20"""
    tools(peer, {"": page(definition("first"), next_cursor="b"), "b": second})
    found = await inventory_of(peer)
    assert (list(found.tools), found.tools_complete) == (["first"], False)
    (problem,) = found.problems
    assert (problem.kind, problem.name) == ("list", "tools/list")
    assert reason in problem.reason


async def test_a_server_without_tools_has_none(peer: Peer) -> None:
    """R-18: that a method does not exist is an answer, and no fault."""
    peer.say(lists={})
    found = await inventory_of(peer)
    assert (found.tools, found.tools_complete, found.problems) == ({}, True, [])


@pytest.mark.parametrize(
    ("most", "taken", "cut"), [(0, 0, True), (3, 3, True), (5, 5, True), (6, 6, False), (7, 6, False)]
)
async def test_no_more_tools_are_taken_than_there_is_room_for(
    peer: Peer, most: int, taken: int, cut: bool
) -> None:
    """R-09: one too many is said; what lies beyond our own limit is not kept, so the list is complete."""
    tools(peer, pages(*((definition(f"t{at}"), definition(f"u{at}")) for at in range(3))))
    found = await inventory_of(peer, most)
    assert (len(found.tools), found.tools_complete) == (taken, True)
    reasons = [problem.reason for problem in found.problems]
    assert reasons == ([f"only the first {most} are taken"] if cut else [])


async def test_a_full_page_with_more_behind_it_is_cut_without_asking_again(peer: Peer) -> None:
    """R-09"""
    tools(peer, endless(10))
    found = await inventory_of(peer, 2)
    assert (len(found.tools), found.tools_complete, peer.asked()) == (2, True, 2)


async def test_a_bad_definition_costs_only_itself(peer: Peer) -> None:
    """R-20"""
    peer.has(definition("good"), {"name": "no_schema"}, 17, {"inputSchema": {}}, definition("also_good"))
    found = await inventory_of(peer)
    assert list(found.tools) == ["good", "also_good"]
    assert found.tools_complete
    assert [(problem.kind, problem.name) for problem in found.problems] == [
        ("tool", "no_schema"),
        ("tool", "(unnamed)"),
        ("tool", "(unnamed)"),
    ]


async def test_of_two_definitions_of_one_name_the_last_is_used_and_it_is_said(peer: Peer) -> None:
    """R-20"""
    peer.has(definition("twin", description="first"), definition("twin", description="second"))
    found = await inventory_of(peer)
    assert found.tools["twin"][1].description == "second"
    assert [problem.name for problem in found.problems] == ["twin"]


async def test_prompts_resources_and_templates_are_read_where_they_are_offered(peer: Peer) -> None:
    """R-17: all their pages too."""
    lists = {
        "tools/list": pages(()),
        "prompts/list": {
            "": page({"name": "greet"}, key="prompts", next_cursor="b"),
            "b": page({"name": "part"}, {"title": "nameless"}, key="prompts"),
        },
        "resources/list": {"": page({"uri": "file:///a", "name": "a"}, key="resources")},
        "resources/templates/list": {"": page({"uriTemplate": "file:///{x}"}, key="resourceTemplates")},
    }
    peer.say(lists=lists, capabilities=EVERYTHING)
    found = await inventory_of(peer)
    assert set(found.items) == {
        *((ItemKind.PROMPT, "greet"), (ItemKind.PROMPT, "part")),
        *((ItemKind.RESOURCE, "file:///a"), (ItemKind.TEMPLATE, "file:///{x}")),
    }
    assert found.complete_kinds == set(ItemKind)
    assert [problem.kind for problem in found.problems] == ["prompt"]


async def test_what_is_not_offered_is_not_asked_for(peer: Peer) -> None:
    """R-17"""
    peer.say(lists={"tools/list": pages(()), "prompts/list": {"": page({"name": "x"}, key="prompts")}})
    found = await inventory_of(peer)
    assert (found.items, found.complete_kinds) == ({}, set(ItemKind))
    assert peer.asked() == 1


async def test_one_list_that_fails_leaves_the_others_whole(peer: Peer) -> None:
    """R-20: what is missing from it may still exist, so that kind is not complete."""
    lists = {
        "tools/list": pages((definition("t"),)),
        "prompts/list": {"": {"error": {"code": -32603, "message": "no prompts today"}}},
        "resources/list": {"": page({"uri": "file:///a"}, key="resources")},
    }
    peer.say(lists=lists, capabilities=EVERYTHING)
    found = await inventory_of(peer)
    assert (list(found.tools), found.tools_complete) == (["t"], True)
    assert set(found.items) == {(ItemKind.RESOURCE, "file:///a")}
    assert found.complete_kinds == {ItemKind.RESOURCE, ItemKind.TEMPLATE}
    assert [(problem.kind, problem.name) for problem in found.problems] == [("list", "prompts/list")]
