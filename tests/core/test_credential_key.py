"""Proves that the credential key can be changed, and that losing it costs no more than what it sealed."""

import base64
import logging
import os

import pytest

from tests.core.conftest import ADMIN, House, OpenHouse
from tests.core.peer import Peer, definition
from trunkline.errors import SealBroken, ValidationError
from trunkline.model import MASK, ServerPatch, ServerStatus

SECRET = "s3cr3t-value"


def new_key() -> str:
    return base64.b64encode(os.urandom(32)).decode()


def readable(house: House, name: str) -> bool:
    try:
        house.gateway.masked_config(name)
    except SealBroken:
        return False
    return True


async def given_anew(house: House, name: str, config: dict[str, object]) -> None:
    await house.gateway.change(name, ServerPatch({"connection_config": config}), ADMIN)


async def test_an_old_key_can_be_dropped_after_one_start(
    open_house: OpenHouse, peer: Peer, caplog: pytest.LogCaptureFixture
) -> None:
    """R-48: the start with both keys seals all again, connected or not."""
    old, new = new_key(), new_key()
    house = await open_house(credential_key=old)
    for name in ("alpha", "beta"):
        await house.register(name, {**peer.config, "env": {"TOKEN": SECRET}}, auto_connect=name == "alpha")
    await open_house.close()
    with caplog.at_level(logging.INFO):
        await open_house(credential_key=f"{new},{old}")
    assert "first now: 2 of 2" in caplog.text
    await open_house.close()
    caplog.clear()
    with caplog.at_level(logging.INFO):
        house = await open_house(credential_key=new)
    assert "sealed" not in caplog.text
    assert [house.gateway.masked_config(name)["env"] for name in ("alpha", "beta")] == [{"TOKEN": MASK}] * 2
    await house.reaches("alpha", ServerStatus.CONNECTED)


async def test_what_no_key_opens_is_left_as_it_is(
    open_house: OpenHouse, peer: Peer, caplog: pytest.LogCaptureFixture
) -> None:
    """R-48: only its server suffers, and a key that is found again opens it."""
    lost, old, new = new_key(), new_key(), new_key()
    house = await open_house(credential_key=lost)
    await house.register("alpha", peer.config)
    await open_house.close()
    house = await open_house(credential_key=old)
    await house.register("beta", peer.config)
    await open_house.close()
    with caplog.at_level(logging.INFO):
        house = await open_house(credential_key=f"{new},{old}")
    assert "alpha: The stored configuration was sealed with another key" in caplog.text
    assert "first now: 1 of 2" in caplog.text
    await house.reaches("alpha", ServerStatus.ERROR)
    await house.reaches("beta", ServerStatus.CONNECTED)
    await open_house.close()
    house = await open_house(credential_key=f"{new},{lost}")
    assert [readable(house, name) for name in ("alpha", "beta")] == [True, True]


async def test_a_server_whose_key_is_lost_can_be_given_its_configuration_anew(
    open_house: OpenHouse, peer: Peer
) -> None:
    """R-48: only a mask needs what nobody can read any more."""
    peer.has(definition("tool"))
    house = await open_house(credential_key=new_key())
    await house.register("alpha", {**peer.config, "env": {"TOKEN": SECRET}})
    await open_house.close()
    house = await open_house(credential_key=new_key())
    await house.reaches("alpha", ServerStatus.ERROR)
    for env in ({"TOKEN": MASK}, {"TOKEN": f"Bearer {MASK}"}):
        with pytest.raises(SealBroken):
            await given_anew(house, "alpha", {**peer.config, "env": env})
    with pytest.raises(SealBroken):
        await given_anew(house, "alpha", {**peer.config, "args": ["--key", MASK]})
    with pytest.raises(ValidationError):
        await given_anew(house, "alpha", {"base_url": "https://example.com"})
    await given_anew(house, "alpha", {**peer.config, "env": {"TOKEN": "another"}})
    await house.reaches("alpha", ServerStatus.CONNECTED)
    assert b"was called" in await house.call("alpha.tool")
    assert readable(house, "alpha")
