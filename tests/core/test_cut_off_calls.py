"""Proves what a caller is told whose call is cut off by what an operator does to its server."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.core.conftest import ADMIN, House, OpenHouse, until
from tests.core.peer import Peer, definition
from trunkline.errors import ServerUnavailable
from trunkline.model import ServerPatch, ServerStatus

CUTS: dict[str, Callable[[House], Awaitable[object]]] = {
    "disconnect": lambda house: house.gateway.disconnect("alpha", force=True, by=ADMIN),
    "remove": lambda house: house.gateway.remove("alpha", ADMIN),
    "change": lambda house: house.gateway.change(
        "alpha", ServerPatch({"connection_config": {"command": "true"}}), ADMIN
    ),
}


@pytest.mark.parametrize("cut", CUTS)
async def test_a_call_that_is_cut_off_tells_how_its_server_is_now(
    open_house: OpenHouse, peer: Peer, cut: str
) -> None:
    """R-06, R-28: not how it was when the call came in."""
    house = await open_house(drain_timeout=0.2)
    peer.has(definition("slow"))
    peer.say(calls={"slow": ["mute"]})
    await house.connected("alpha", peer.config)
    call = asyncio.create_task(house.call("alpha.slow"))
    await until(lambda: peer.asked("slow") == 1)
    await CUTS[cut](house)
    with pytest.raises(ServerUnavailable) as caught:
        await call
    assert caught.value.extra["server"]["status"] == ServerStatus.DISCONNECTED  # type: ignore[index]
    assert caught.value.context["outcome"] == "unknown"
