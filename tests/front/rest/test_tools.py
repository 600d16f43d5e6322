"""The admin API's tools: the catalogue, and definitions as their servers sent them."""

from pathlib import Path

from tests.front.conftest import Running, registered

TOOLS = "/api/v1/tools"


async def test_the_catalogue_is_listed_in_pages_and_by_server(
    front: Running, echo: str, tmp_path: Path
) -> None:
    second = await registered(front, tmp_path, "second")
    status, answer = await front.ask("GET", TOOLS)
    assert status == 200
    assert (answer["total"], answer["limit"], answer["offset"]) == (16, 100, 0)
    tool = answer["tools"][0]
    assert tool["server"] == {"id": echo, "name": "echo", "status": "CONNECTED"}
    assert tool["input_schema"] == {"type": "object", "properties": {"text": {"type": "string"}}}
    assert set(tool) == {
        "id",
        "name",
        "original_name",
        "description",
        "server",
        "input_schema",
        "skill_ids",
        "primary_skill_id",
        "is_classified",
        "discovered_at",
    }
    _, answer = await front.ask("GET", TOOLS, params={"server": "second", "limit": 3, "offset": 6})
    assert answer["total"] == 8
    assert {tool["server"]["id"] for tool in answer["tools"]} == {second}
    assert len(answer["tools"]) == 2
    assert (await front.ask("GET", TOOLS, params={"server": "nobody"}))[0] == 404


async def test_one_tool_is_shown_with_its_definition_verbatim(front: Running, echo: str) -> None:
    """R-17."""
    async with front.client.get(front.url + f"{TOOLS}/echo.odd", headers=front.bearer()) as answer:
        text = await answer.text()
    sent = (
        '"definition":{"name": "odd", "description": "Does odd.", "inputSchema": '
        '{"type": "object", "properties": {"text": {"type": "string"}}}}'
    )
    assert sent in text
    for name in ("echo.with/slash", "echo.with%2Fslash", "odd"):
        status, answer = await front.ask("GET", f"{TOOLS}/{name}")
        assert (status, answer["server"]["id"]) == (200, echo)


async def test_an_unknown_tool_is_not_found_with_near_names(front: Running, echo: str) -> None:
    """R-27."""
    assert echo
    status, answer = await front.ask("GET", f"{TOOLS}/echo.od")
    assert (status, answer["error_code"]) == (404, "TOOL_NOT_FOUND")


async def test_a_name_no_tool_can_have_is_refused_by_its_length(front: Running, echo: str) -> None:
    assert echo
    status, answer = await front.ask("GET", f"{TOOLS}/{'tool_' * 3000}")
    assert (status, answer["error_code"]) == (422, "VALIDATION_ERROR")
    assert answer["detail"][0]["loc"] == ["path", "name"]
