"""Who administers a gateway is never nobody: the last admin key stays, and a start without one makes one."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from trunkline.app import SystemClock, open_gateway
from trunkline.core.gateway import Gateway
from trunkline.errors import LastAdminKey
from trunkline.model import ApiKey, Principal, Scope
from trunkline.settings import Settings

TESTER = Principal("test", "tester", Scope.ADMIN)


class Later(SystemClock):
    def __init__(self, by: timedelta) -> None:
        self._by = by

    def now(self) -> datetime:
        return datetime.now(UTC) + self._by


def first_key(gateway: Gateway) -> ApiKey:
    return next(key for key in gateway.list_keys() if key.name == "admin")


async def test_the_last_admin_key_that_works_is_not_revoked(tmp_path: Path) -> None:
    """R-47."""
    async with open_gateway(Settings(data_dir=tmp_path)) as gateway:
        first = first_key(gateway)
        await gateway.create_key("caller", Scope.CALL, expires_at=None, by=TESTER)
        with pytest.raises(LastAdminKey, match="keys create"):
            await gateway.revoke_key(first.id, TESTER)
        second, _ = await gateway.create_key("second", Scope.ADMIN, expires_at=None, by=TESTER)
        ended = await asyncio.gather(
            *(gateway.revoke_key(key.id, TESTER) for key in (first, second)), return_exceptions=True
        )
        assert [type(one) for one in ended] == [ApiKey, LastAdminKey]
        assert await gateway.revoke_key(first.id, TESTER) == ended[0]


async def test_a_start_without_a_working_admin_key_makes_one(tmp_path: Path) -> None:
    """R-47: an installation whose admin keys have expired does not lock its owner out."""
    settings = Settings(data_dir=tmp_path)
    async with open_gateway(settings) as gateway:
        tomorrow = datetime.now(UTC) + timedelta(days=1)
        _, brief = await gateway.create_key("brief", Scope.ADMIN, expires_at=tomorrow, by=TESTER)
        await gateway.revoke_key(first_key(gateway).id, TESTER)
    revoked = (tmp_path / "admin.key").read_bytes()
    async with open_gateway(settings) as gateway:
        assert (tmp_path / "admin.key").read_bytes() == revoked
        assert gateway.authenticate(brief.encode(), None).scope is Scope.ADMIN
    async with open_gateway(settings, clock=Later(timedelta(days=2))) as gateway:
        made = (tmp_path / "admin.key").read_bytes()
        assert gateway.authenticate(made.strip(), None).scope is Scope.ADMIN
