"""What servers list: all of it, within bounds, kept apart from what is broken, and kept up to date."""

import asyncio
from functools import partial

from tests.journeys.conftest import API, Door, Open, eventually
from tests.servers.peers import SDK_SERVER, THIS_PYTHON, scripted, single_minded

OBJECT = {"type": "object"}


async def test_all_pages_are_read_also_behind_an_empty_cursor(door: Door) -> None:
    """R-17."""
    server = await door.connected("alpha", "STDIO", scripted(paging="two", count=30))
    assert server["tool_count"] == 45
    assert server["problems"] == []


async def test_cursors_without_end_are_cut_short_and_said(door: Door) -> None:
    """R-17: 100 pages, never the same cursor twice; the good pages are kept."""
    await door.register("endless", "STDIO", scripted(paging="endless"))
    await door.register("circle", "STDIO", scripted(paging="same"))
    for name, count, word in (("endless", 115, "100 pages"), ("circle", 15, "cursor")):
        await door.until(name, "CONNECTED")
        shown = await eventually(partial(door.server, name), lambda it: it["tool_count"] > 0)
        assert shown["tool_count"] == count
        assert [problem["kind"] for problem in shown["problems"]] == ["list"]
        assert word in shown["problems"][0]["reason"]
        assert await door.text(f"{name}.echo", text="works") == "works"


async def test_one_bad_tool_costs_only_itself(door: Door) -> None:
    """R-20: kept out, and the reason is shown where people look."""
    bad = [
        {"description": "without a name", "inputSchema": OBJECT},
        {"name": "x" * 300, "inputSchema": OBJECT},
        {"name": "no_schema"},
        {"name": "list_schema", "inputSchema": [1]},
        {"name": "string_schema", "inputSchema": {"type": "string"}},
        {
            "name": "cycle",
            "inputSchema": {
                "type": "object",
                "properties": {"a": {"$ref": "#/$defs/a"}},
                "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}},
            },
        },
        {"name": 17, "inputSchema": OBJECT},
        "not even an object",
    ]
    good = {"name": "survivor", "inputSchema": OBJECT}
    server = await door.connected("alpha", "STDIO", scripted(tools=[*bad, good]))
    assert server["tool_count"] == 16
    reasons = {problem["name"]: problem["reason"] for problem in server["problems"]}
    assert len(server["problems"]) == len(bad)
    assert all(problem["kind"] == "tool" for problem in server["problems"])
    assert "$ref cycle" in reasons["cycle"]
    assert "300 characters" in next(reason for name, reason in reasons.items() if name.startswith("xxx"))
    assert await door.text("alpha.survivor") == "survivor was called"


async def test_a_changed_list_is_noticed_and_an_unchanged_one_writes_nothing(door: Door) -> None:
    """R-18."""
    await door.connected("alpha", "STDIO", scripted())
    before = (await door.ask("GET", f"{API}/servers/alpha/tools"))[1]["tools"]
    await door.text("alpha.grow", name="brand_new")

    async def names() -> list[str]:
        return await door.tool_names("alpha")

    await eventually(names, lambda found: "alpha.brand_new" in found)
    assert await door.text("alpha.brand_new") == "brand_new was called"
    assert (await door.server("alpha"))["tool_count"] == len(before) + 1
    await door.text("alpha.shrink", name="brand_new")
    await eventually(names, lambda found: "alpha.brand_new" not in found)
    after = (await door.ask("GET", f"{API}/servers/alpha/tools"))[1]["tools"]
    assert after == before


async def test_a_storm_of_announcements_becomes_few_listings(door: Door) -> None:
    """R-18."""
    await door.connected("alpha", "STDIO", scripted())
    before = int(await door.text("alpha.listings"))
    await door.text("alpha.storm", notices=10_000)
    await door.text("alpha.slow", seconds=1.5)
    assert before < int(await door.text("alpha.listings")) <= before + 3


async def test_a_thousand_tools_come_in_one_go(open_door: Open) -> None:
    """R-18: more than 500 tools go in batches."""
    door = await open_door()
    server = await door.connected("large", "STDIO", scripted(count=900))
    shown = await eventually(lambda: door.server("large"), lambda it: it["tool_count"] == 915)
    assert shown["id"] == server["id"]
    assert await door.text("large.tool_0899") == "tool_0899 was called"
    _, page = await door.ask("GET", "/api/v1/tools?server=large&limit=10&offset=910")
    assert (page["total"], len(page["tools"])) == (915, 5)


async def test_an_empty_list_is_no_fault(door: Door) -> None:
    """R-18: it logs a warning and counts zero."""
    server = await door.connected("empty", "STDIO", single_minded())
    assert (server["tool_count"], server["problems"]) == (0, [])


async def test_tools_of_the_same_name_live_side_by_side(door: Door) -> None:
    """R-19, BR-009: a name is unique with its server; the gateway's own tools carry no server's name."""
    await asyncio.gather(*(door.register(f"server-{n}", "STDIO", scripted()) for n in range(3)))
    for number in range(3):
        await door.until(f"server-{number}", "CONNECTED")
    pids = {await door.text(f"server-{number}.pid") for number in range(3)}
    assert len(pids) == 3


async def test_prompts_and_resources_are_taken_in(door: Door) -> None:
    """R-17: their definitions are stored too, and an odd one is reported."""
    await door.connected("sdk", "STDIO", {"command": THIS_PYTHON, "args": [SDK_SERVER, "stdio"]})
    shown = await door.server("sdk")
    assert shown["prompt_count"] == 1
    assert shown["resource_count"] == 1
    assert shown["resource_template_count"] == 1


async def test_tools_that_could_not_be_stored_are_said_and_stored_later(open_door: Open) -> None:
    """R-17, R-33: a database that fails while a server is listed costs time, and no tool."""
    door = await open_door()
    async with open_door.without("tools"):
        await door.connected("alpha", "STDIO", scripted())
        shown = await eventually(lambda: door.server("alpha"), lambda it: it["problems"] != [])
        assert shown["tool_count"] == 0
        assert "could not be stored" in shown["problems"][0]["reason"]
    healed = await eventually(lambda: door.server("alpha"), lambda it: it["tool_count"] > 0)
    assert healed["problems"] == []
    assert await door.text("alpha.echo", text="here") == "here"
