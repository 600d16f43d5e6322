"""The admin API's audit: what was done is found by event, server, actor and time."""

import pytest

from tests.front.conftest import Running

AUDIT = "/api/v1/aggregator/audit"


async def test_what_was_done_is_found(front: Running, echo: str) -> None:
    """R-51."""
    await front.call("echo.bare")
    status, answer = await front.ask("GET", AUDIT, params={"event": "server.registered"})
    assert (status, answer["total"], answer["limit"], answer["offset"]) == (200, 1, 100, 0)
    (record,) = answer["records"]
    assert set(record) == {
        "event",
        "server_id",
        "server_name",
        "actor",
        "timestamp",
        "ip_address",
        "details",
    }
    assert (record["server_id"], record["server_name"]) == (echo, "echo")
    assert (record["actor"], record["ip_address"]) == ("admin-key", "127.0.0.1")
    assert record["timestamp"].endswith("Z")
    for query, least in (
        ({"server": "echo"}, 2),
        ({"server": echo}, 2),
        ({"actor": "call-key"}, 1),
        ({"since": record["timestamp"]}, 1),
        ({"since": "2020-01-01T00:00:00"}, 2),
    ):
        _, found = await front.ask("GET", AUDIT, params=query)
        assert found["total"] >= least, query
        assert "actor" not in query or {record["actor"] for record in found["records"]} == {query["actor"]}
    _, found = await front.ask("GET", AUDIT, params={"actor": "nobody"})
    assert (found["total"], found["records"]) == (0, [])
    _, found = await front.ask("GET", AUDIT, params={"since": "2999-01-01T00:00:00+02:00"})
    assert found["total"] == 0


@pytest.mark.parametrize(
    "query",
    ["since=yesterday", "since=0001-01-01T00:00:00%2B14:00", "limit=0", "offset=-1", "user=x", "actor=%00"],
)
async def test_a_query_that_cannot_be_meant_is_refused(front: Running, query: str) -> None:
    status, answer = await front.ask("GET", f"{AUDIT}?{query}")
    assert (status, answer["error_code"]) == (422, "VALIDATION_ERROR")
    assert answer["detail"][0]["loc"] == ["query", query.split("=")[0]]
