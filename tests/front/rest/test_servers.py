"""The admin API's servers, field for field."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.front.conftest import Running, echo_registration, registered, until
from trunkline.model import MASK, ServerStatus

SERVERS = "/api/v1/aggregator/servers"
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")


def http_registration(**changes: Any) -> dict[str, Any]:
    config = {
        "base_url": "http://127.0.0.1:9/mcp",
        "headers": {"Authorization": "Bearer planted-secret-value"},
    }
    body = {"name": "one", "transport_type": "HTTP", "connection_config": config, "auto_connect": False}
    return {**body, **changes}


async def test_a_registration_is_answered_with_the_server(front: Running) -> None:
    """R-01, R-03."""
    status, answer = await front.ask("POST", SERVERS, json=http_registration(description="d"))
    assert status == 201
    assert TIME.fullmatch(answer.pop("registered_at"))
    identity = answer.pop("id")
    assert answer == {
        "name": "one",
        "description": "d",
        "transport_type": "HTTP",
        "status": "DISCONNECTED",
        "health_check_url": None,
        "tool_count": 0,
        "connected_at": None,
    }
    assert (await front.ask("GET", f"{SERVERS}/{identity}"))[1]["name"] == "one"


async def test_auto_connect_says_connecting_at_once(front: Running, tmp_path: Path) -> None:
    """R-03: the default."""
    status, answer = await front.ask("POST", SERVERS, json=echo_registration(tmp_path))
    assert (status, answer["status"], answer["transport_type"]) == (201, "CONNECTING", "STDIO")


@pytest.mark.parametrize("transport", ["http", "Http", "HTTP", "streamable_http", "STREAMABLE_HTTP"])
async def test_a_transport_is_named_in_any_case(front: Running, transport: str) -> None:
    """R-01."""
    status, answer = await front.ask("POST", SERVERS, json=http_registration(transport_type=transport))
    assert (status, answer.get("transport_type")) == (201, "HTTP")


async def test_a_name_is_taken_once(front: Running) -> None:
    """R-02."""
    await front.ask("POST", SERVERS, json=http_registration())
    status, answer = await front.ask("POST", SERVERS, json=http_registration())
    assert status == 409
    assert answer["detail"] == "Server already exists: one"
    assert answer["error_code"] == "SERVER_ALREADY_EXISTS"


@pytest.mark.parametrize(
    ("changes", "loc"),
    [
        ({"name": "Bad.Name"}, ["body", "name"]),
        ({"name": "x" * 256}, ["body", "name"]),
        ({"name": 7}, ["body", "name"]),
        ({"name": "a\x00"}, ["body", "name"]),
        ({"description": "x" * 1001}, ["body", "description"]),
        ({"transport_type": "PIGEON"}, ["body", "transport_type"]),
        ({"transport_type": "SSE"}, ["body", "connection_config", "url"]),
        ({"connection_config": []}, ["body", "connection_config"]),
        ({"connection_config": {}}, ["body", "connection_config", "base_url"]),
        ({"auto_connect": "yes"}, ["body", "auto_connect"]),
        ({"surprise": 1}, ["body", "surprise"]),
    ],
)
async def test_a_registration_that_cannot_be_meant_says_where(
    front: Running, changes: dict[str, Any], loc: list[str]
) -> None:
    """R-02: 422 with loc, msg and type, and nothing is kept."""
    status, answer = await front.ask("POST", SERVERS, json=http_registration(**changes))
    assert (status, answer["error_code"]) == (422, "VALIDATION_ERROR")
    assert loc in [fault["loc"] for fault in answer["detail"]], answer
    assert all(set(fault) == {"loc", "msg", "type"} for fault in answer["detail"])
    assert (await front.ask("GET", SERVERS))[1]["total"] == 0


async def test_servers_are_listed_in_pages_and_by_status(front: Running, tmp_path: Path) -> None:
    """R-04."""
    await registered(front, tmp_path)
    for name in ("one", "two"):
        await front.ask("POST", SERVERS, json=http_registration(name=name))
    status, answer = await front.ask("GET", SERVERS)
    assert status == 200
    assert (answer["total"], answer["limit"], answer["offset"]) == (3, 100, 0)
    assert set(answer["servers"][0]) == {
        "id",
        "name",
        "description",
        "transport_type",
        "status",
        "tool_count",
        "last_health_check",
        "registered_at",
        "connected_at",
    }
    _, answer = await front.ask("GET", SERVERS, params={"limit": 1, "offset": 1})
    assert ([server["name"] for server in answer["servers"]], answer["total"]) == (["one"], 3)
    _, answer = await front.ask("GET", SERVERS, params={"status": "connected", "include_tools": "true"})
    assert [server["name"] for server in answer["servers"]] == ["echo"]
    assert len(answer["servers"][0]["tools"]) == answer["servers"][0]["tool_count"] == 8


@pytest.mark.parametrize(
    "query",
    [
        "status=BLUE",
        "limit=0",
        "limit=1001",
        "limit=x",
        "limit=",
        "limit",
        "offset=-1",
        "include_tools=maybe",
        "staus=ERROR",
        "offset=9999999999999999999999",
    ],
)
async def test_a_query_that_cannot_be_meant_is_refused(front: Running, query: str) -> None:
    status, answer = await front.ask("GET", f"{SERVERS}?{query}")
    assert (status, answer["error_code"]) == (422, "VALIDATION_ERROR")
    assert answer["detail"][0]["loc"] == ["query", query.split("=")[0]]


async def test_one_server_is_shown_whole_with_its_secrets_masked(front: Running, echo: str) -> None:
    """R-04, R-48."""
    for reference in (echo, "echo"):
        status, answer = await front.ask("GET", f"{SERVERS}/{reference}")
        assert status == 200
        assert set(answer) == {
            "id",
            "name",
            "description",
            "transport_type",
            "connection_config",
            "status",
            "health_check_url",
            "last_health_check",
            "tool_count",
            "prompt_count",
            "resource_count",
            "resource_template_count",
            "error_message",
            "era",
            "problems",
            "registered_at",
            "connected_at",
            "updated_at",
        }
        assert answer["connection_config"]["env"] == {"API_TOKEN": MASK}
        assert "planted-secret-value" not in json.dumps(answer)
        assert (answer["status"], answer["era"], answer["problems"]) == ("CONNECTED", "legacy", [])
        assert TIME.fullmatch(answer["connected_at"])
        assert TIME.fullmatch(answer["updated_at"])


async def test_an_unknown_server_is_not_found_at_every_address(front: Running) -> None:
    """R-04."""
    for method, rest in (
        ("GET", ""),
        ("PATCH", ""),
        ("DELETE", ""),
        ("POST", "/connect"),
        ("POST", "/disconnect"),
        ("GET", "/tools"),
        ("POST", "/tools/refresh"),
        ("GET", "/health"),
        ("GET", "/history"),
    ):
        body: object = {} if method == "PATCH" else None
        status, answer = await front.ask(method, f"{SERVERS}/nobody{rest}", json=body)
        assert (status, answer["error_code"]) == (404, "SERVER_NOT_FOUND"), (method, rest)
        assert answer["detail"] == "Server not found: nobody"


async def test_a_patch_changes_what_it_names_and_never_the_name(front: Running) -> None:
    """R-10; a mask sent back leaves the secret as it was."""
    await front.ask("POST", SERVERS, json=http_registration(description="old"))
    _, before = await front.ask("GET", f"{SERVERS}/one")
    status, answer = await front.ask("PATCH", f"{SERVERS}/one", json={"description": "new"})
    assert (status, answer["description"]) == (200, "new")
    assert answer["connection_config"] == before["connection_config"]
    address = before["connection_config"]["base_url"]
    config = {**before["connection_config"], "base_url": f"{address}/v2"}
    _, answer = await front.ask("PATCH", f"{SERVERS}/one", json={"connection_config": config})
    assert answer["connection_config"]["base_url"] == f"{address}/v2"
    elsewhere = {**config, "base_url": "http://127.0.0.1:10/mcp"}
    status, answer = await front.ask("PATCH", f"{SERVERS}/one", json={"connection_config": elsewhere})
    assert (status, answer["detail"][0]["loc"][-1]) == (422, "base_url")
    assert "planted-secret-value" not in json.dumps(answer)
    _, answer = await front.ask("PATCH", f"{SERVERS}/one", json={"description": None})
    assert answer["description"] is None
    for fields in ({"name": "two"}, {"transport_type": "SSE"}, {"id": "x"}):
        status, answer = await front.ask("PATCH", f"{SERVERS}/one", json=fields)
        assert (status, answer["detail"][0]["type"]) == (422, "extra_forbidden")


async def test_connecting_says_whether_it_was_connected(front: Running, echo: str) -> None:
    """R-05."""
    status, answer = await front.ask("POST", f"{SERVERS}/{echo}/connect")
    assert status == 200
    assert answer == {"server_id": echo, "status": "CONNECTED", "message": "Server already connected"}
    await front.ask("POST", f"{SERVERS}/{echo}/disconnect")
    status, answer = await front.ask("POST", f"{SERVERS}/{echo}/connect")
    assert status == 200
    assert answer == {"server_id": echo, "status": "CONNECTING", "message": "Connection initiated"}


async def test_disconnecting_without_calls_is_done_at_once(front: Running, echo: str) -> None:
    """R-06: also a second time, with a body and without."""
    for body in (None, {}, {"force": False}, {"force": True}):
        status, answer = await front.ask("POST", f"{SERVERS}/{echo}/disconnect", json=body)
        assert status == 200
        assert answer == {
            "server_id": echo,
            "status": "DISCONNECTED",
            "pending_requests": 0,
            "message": "Server disconnected successfully",
        }
    status, answer = await front.ask("POST", f"{SERVERS}/{echo}/disconnect", json={"force": "yes"})
    assert (status, answer["detail"][0]["loc"]) == (422, ["body", "force"])


async def test_disconnecting_waits_for_calls_and_force_does_not(front: Running, echo: str) -> None:
    """R-06."""
    import asyncio

    calls = [asyncio.create_task(front.call("echo.wait", {"seconds": 20})) for _ in range(2)]
    await until(lambda: b'calls_in_flight{server="echo"} 2.0' in front.gateway.metrics_text())
    status, answer = await front.ask("POST", f"{SERVERS}/{echo}/disconnect")
    assert status == 200
    assert answer == {
        "server_id": echo,
        "status": "DISCONNECTING",
        "pending_requests": 2,
        "message": "Waiting for 2 pending requests to complete",
    }
    status, answer = await front.call("echo.bare")
    assert (status, answer["server"]["status"]) == (503, "DISCONNECTING")
    _, answer = await front.ask("POST", f"{SERVERS}/{echo}/disconnect", json={"force": True})
    assert answer["status"] == "DISCONNECTED"
    assert [status for status, _ in await asyncio.gather(*calls)] == [503, 503]


async def test_a_removed_server_is_gone(front: Running, echo: str) -> None:
    """R-07: 204 without a body."""
    async with front.client.delete(front.url + f"{SERVERS}/{echo}", headers=front.bearer()) as answer:
        assert (answer.status, await answer.read()) == (204, b"")
    assert (await front.ask("GET", f"{SERVERS}/{echo}"))[0] == 404
    assert (await front.ask("GET", "/api/v1/tools"))[1]["total"] == 0


async def test_the_tools_of_a_server_are_listed_with_their_counts(front: Running, echo: str) -> None:
    """R-08."""
    status, answer = await front.ask("GET", f"{SERVERS}/{echo}/tools")
    assert status == 200
    assert (answer["total"], answer["classified"], answer["unclassified"]) == (8, 0, 8)
    tool = next(tool for tool in answer["tools"] if tool["name"] == "echo.odd")
    assert TIME.fullmatch(tool.pop("discovered_at"))
    assert isinstance(tool.pop("id"), str)
    assert tool == {
        "name": "echo.odd",
        "original_name": "odd",
        "description": "Does odd.",
        "skill_ids": [],
        "primary_skill_id": None,
        "is_classified": False,
    }


async def test_a_refresh_is_accepted_while_connected(front: Running, echo: str) -> None:
    """R-08."""
    status, answer = await front.ask("POST", f"{SERVERS}/{echo}/tools/refresh")
    assert status == 202
    assert answer == {"server_id": echo, "status": "REFRESHING", "message": "Tool discovery initiated"}
    await front.ask("POST", f"{SERVERS}/{echo}/disconnect")
    status, answer = await front.ask("POST", f"{SERVERS}/{echo}/tools/refresh")
    assert (status, answer["error_code"]) == (503, "SERVER_UNAVAILABLE")
    assert answer["server"]["status"] == ServerStatus.DISCONNECTED


async def test_the_health_and_history_of_a_server_are_shown(front: Running, echo: str) -> None:
    """R-08, R-14."""
    status, answer = await front.ask("GET", f"{SERVERS}/{echo}/health")
    assert status == 200
    assert set(answer) == {
        "server_id",
        "name",
        "status",
        "last_health_check",
        "response_time_ms",
        "consecutive_failures",
        "last_error",
    }
    assert (answer["status"], answer["consecutive_failures"], answer["last_error"]) == ("CONNECTED", 0, None)
    await front.ask("POST", f"{SERVERS}/{echo}/disconnect")

    async def events() -> list[str]:
        status, answer = await front.ask("GET", f"{SERVERS}/{echo}/history", params={"limit": 10})
        assert (status, answer["server_id"], answer["limit"]) == (200, echo, 10)
        assert all(TIME.fullmatch(entry["timestamp"]) for entry in answer["history"])
        return [entry["event"] for entry in answer["history"]]

    for _ in range(100):
        if len(found := await events()) == 2:
            break
    assert found == ["DISCONNECTED", "CONNECTED"]
