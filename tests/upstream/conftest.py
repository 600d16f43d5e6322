"""The network wires are tested on both event loops: the standard one and the one the gateway runs on."""

import asyncio
from collections.abc import Callable, Mapping

import pytest
import uvloop

_ON_BOTH_LOOPS = {"test_http.py", "test_sse.py", "test_outbound_client.py"}


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    if item.path.name in _ON_BOTH_LOOPS:
        return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
    return {"asyncio": asyncio.new_event_loop}
