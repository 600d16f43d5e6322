"""Proves that a secret of a configuration does not come back out of the gateway by way of its server."""

from tests.core.conftest import House
from tests.core.peer import Peer

SECRET = "s3cr3t-value"


async def test_what_a_server_says_instead_of_a_list_is_redacted(house: House, peer: Peer) -> None:
    """R-48: the reason of a problem is shown to whoever may read."""
    fault = {"code": -32000, "message": f"no list for {SECRET}", "data": {"token": SECRET}}
    peer.say(lists={"tools/list": {"": {"error": fault}}})
    await house.connected("alpha", {**peer.config, "env": {"TOKEN": SECRET}})
    (problem,) = house.gateway.problems("alpha")
    assert problem.reason == "the server answered with an error: no list for ********"
