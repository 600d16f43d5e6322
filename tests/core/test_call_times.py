"""Proves what is counted as routing, and what as the server's work, when a call is sent twice."""

from tests.core.conftest import ADMIN, House
from tests.core.peer import Peer, definition
from trunkline.model import Call


def measured(house: House, series: str) -> float:
    lines = house.gateway.metrics_text().decode().splitlines()
    return next(float(line.split()[-1]) for line in lines if line.startswith(series))


async def test_a_first_attempt_and_the_way_back_are_no_routing(house: House, peer: Peer) -> None:
    """R-26, R-52: else every lost server would raise the alarm of a slow gateway."""
    peer.has(definition("tool", annotations={"readOnlyHint": True}))
    peer.say(calls={"tool": [{"wait": 1, "then": "die"}, {"wait": 0.1, "then": {"result": {"content": []}}}]})
    await house.connected("alpha", peer.config)
    outcome = await house.gateway.call(Call(ADMIN, "alpha.tool", b"{}"))
    assert peer.asked("tool") == 2
    assert outcome.routing_ms < 500
    assert 90 < outcome.execution_ms < 900
    assert measured(house, "mcp_aggregator_routing_duration_seconds_count") == 1
    assert measured(house, "mcp_aggregator_routing_duration_seconds_sum") < 0.5
    assert 0.09 < measured(house, "mcp_aggregator_execution_duration_seconds_sum") < 0.9
