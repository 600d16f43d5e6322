"""The gateway about itself: state, health and metrics."""

import re
from pathlib import Path

import yaml

from tests.front.conftest import Running, registered, until
from trunkline.model import Scope, ServerStatus

ALERTS = Path(__file__).parents[3] / "ops" / "alerts.yml"


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
    # From 0 on: an alert on the difference would miss a first failure that makes its own series.
    assert 'mcp_aggregator_health_check_failures_total{server="echo"} 0.0' in text


def test_the_alert_counts_as_connected_what_the_state_does() -> None:
    """R-52."""
    rules = yaml.safe_load(ALERTS.read_text())["groups"][0]["rules"]
    counted = [
        re.findall(r'servers_total\{status=~?"([a-z|]+)"\}', rule["expr"])
        for rule in rules
        if rule["alert"] == "TrunklineFewServersConnected"
    ]
    callable_ = {status.lower() for status in ServerStatus if status.callable}
    assert [set(statuses.split("|")) for (statuses,) in counted] == [callable_, callable_]
