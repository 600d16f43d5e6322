"""The gateway about itself: state, health and metrics."""

from pathlib import Path

from tests.front.conftest import Running, registered, until
from trunkline.model import Scope, ServerStatus


async def test_the_state_counts_servers_and_tools(front: Running, echo: str) -> None:
    """R-33."""
    body = {
        "name": "idle",
        "transport_type": "HTTP",
        "connection_config": {"base_url": "http://127.0.0.1:9/"},
        "auto_connect": False,
    }
    assert echo
    await front.ask("POST", "/api/v1/aggregator/servers", json=body)
    status, answer = await front.ask("GET", "/api/v1/aggregator/state", scope=Scope.READ)
    assert status == 200
    assert isinstance(answer.pop("uptime_seconds"), int)
    assert answer.pop("last_sync").endswith("Z")
    assert answer == {
        "total_servers": 2,
        "connected_servers": 1,
        "disconnected_servers": 1,
        "error_servers": 0,
        "connecting_servers": 0,
        "total_tools": 8,
        "classified_tools": 0,
        "unclassified_tools": 8,
        "health_check_interval_seconds": 30,
    }


async def test_health_names_what_is_wrong(front: Running) -> None:
    """R-33: degraded is said with 200 and with issues in words."""
    body = {
        "name": "broken",
        "transport_type": "STDIO",
        "connection_config": {"command": "/bin/false"},
    }
    await front.ask("POST", "/api/v1/aggregator/servers", json=body)
    await until(lambda: front.gateway.get_server("broken").status is ServerStatus.ERROR, seconds=20)
    for path in ("/health", "/api/v1/aggregator/health"):
        status, answer = await front.ask("GET", path)
        assert (status, answer["status"]) == (200, "degraded")
        assert answer["servers"] == {"total": 1, "connected": 0, "error": 1}
        assert answer["issues"] == ["1 server in error state"]
    async with front.client.get(front.url + "/health") as anonymous:
        assert (anonymous.status, await anonymous.json()) == (200, {"status": "degraded"})


async def test_metrics_are_prometheus_text(front: Running, tmp_path: Path) -> None:
    """R-52."""
    await registered(front, tmp_path)
    async with front.client.get(front.url + "/metrics", headers=front.bearer(Scope.READ)) as answer:
        text = await answer.text()
        assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert 'mcp_aggregator_servers_total{status="connected"} 1.0' in text
    assert "mcp_aggregator_tools_total 8.0" in text
