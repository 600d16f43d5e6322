"""Proves that the log line of work in the background bears no request's id but that of its own."""

import logging

import pytest

from tests.core.conftest import ADMIN, House
from tests.core.peer import Peer, definition
from trunkline.telemetry import request_id


@pytest.fixture
def heard(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """Every line of the gateway, with the id it bears."""
    lines: list[tuple[str, str]] = []

    def note(record: logging.LogRecord) -> bool:
        lines.append((request_id.get(), record.getMessage()))
        return True

    caplog.set_level(logging.INFO, "trunkline")
    caplog.handler.addFilter(note)
    return lines


async def test_work_that_outlives_a_request_does_not_log_under_its_id(
    house: House, peer: Peer, heard: list[tuple[str, str]]
) -> None:
    """R-51: upkeep and listings go on for days after the request that began them."""
    peer.has(definition("bad", inputSchema=7), definition("tool"))
    token = request_id.set("r-1")
    await house.connected("alpha", peer.config)
    await house.gateway.refresh("alpha", ADMIN)
    request_id.reset(token)
    lines = [line for line in heard if line[1].startswith("alpha")]
    assert "alpha is connected" in {text for _, text in lines}
    assert any("inputSchema" in text for _, text in lines)
    assert {identity for identity, _ in lines} == {"-"}
