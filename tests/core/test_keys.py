"""Proves who comes in, and that keys made and revoked outlive the process and stand in the audit."""

from datetime import timedelta

import pytest

from tests.core.clock import FakeClock
from tests.core.conftest import ADMIN
from trunkline.core.keys import Keys
from trunkline.errors import KeyNotFound, Unauthorized, ValidationError
from trunkline.model import Principal, Scope
from trunkline.ports import AuditFilter
from trunkline.store.sql import SqlStore


@pytest.fixture
def keys(sqlite: SqlStore, clock: FakeClock) -> Keys:
    return Keys(store=sqlite, clock=clock, required=True)


async def reloaded(sqlite: SqlStore, clock: FakeClock) -> Keys:
    again = Keys(store=sqlite, clock=clock, required=True)
    await again.load()
    return again


async def test_a_new_key_lets_its_owner_in_also_after_a_restart(
    keys: Keys, sqlite: SqlStore, clock: FakeClock
) -> None:
    """R-47"""
    key, secret = await keys.create("ci", Scope.CALL, expires_at=None, by=ADMIN)
    for each in (keys, await reloaded(sqlite, clock)):
        assert each.authenticate(secret.encode(), "192.0.2.7") == Principal(
            key.id, "ci", Scope.CALL, "192.0.2.7"
        )
        with pytest.raises(Unauthorized):
            each.authenticate(None, None)
        with pytest.raises(Unauthorized):
            each.authenticate(secret[:-1].encode() + b"?", None)


async def test_a_revoked_key_is_refused_at_once_and_after_a_restart(
    keys: Keys, sqlite: SqlStore, clock: FakeClock
) -> None:
    """R-47: revoking twice is no fault, keeps the first time and is recorded once."""
    key, secret = await keys.create("ci", Scope.CALL, expires_at=None, by=ADMIN)
    first = await keys.revoke(key.id, ADMIN)
    clock.advance(60)
    assert await keys.revoke(key.id, ADMIN) == first
    for each in (keys, await reloaded(sqlite, clock)):
        assert each.all() == [first]
        with pytest.raises(Unauthorized):
            each.authenticate(secret.encode(), None)
    assert (await sqlite.read_audit(AuditFilter(event="key.revoked")))[1] == 1
    with pytest.raises(KeyNotFound):
        await keys.revoke("nobody", ADMIN)


async def test_a_key_expires_to_the_second(keys: Keys, clock: FakeClock) -> None:
    """R-47"""
    until = clock.now() + timedelta(seconds=60)
    _, secret = await keys.create("guest", Scope.READ, expires_at=until, by=ADMIN)
    clock.advance(59)
    assert keys.authenticate(secret.encode(), None).scope is Scope.READ
    clock.advance(1)
    with pytest.raises(Unauthorized):
        keys.authenticate(secret.encode(), None)


@pytest.mark.parametrize("name", ["", "  ", "a\nb", "x" * 101, "\x1b[2J"])
async def test_a_name_that_cannot_be_shown_makes_no_key(keys: Keys, sqlite: SqlStore, name: str) -> None:
    with pytest.raises(ValidationError) as refused:
        await keys.create(name, Scope.READ, expires_at=None, by=ADMIN)
    assert refused.value.faults[0].loc == ("body", "name")
    assert await sqlite.load_keys() == []


async def test_a_key_cannot_be_born_expired(keys: Keys, clock: FakeClock) -> None:
    with pytest.raises(ValidationError) as refused:
        await keys.create("late", Scope.READ, expires_at=clock.now(), by=ADMIN)
    assert refused.value.faults[0].loc == ("body", "expires_at")
    assert keys.all() == []


async def test_making_a_key_is_recorded_without_its_secret(keys: Keys, sqlite: SqlStore) -> None:
    """R-51, R-48"""
    key, secret = await keys.create("ci", Scope.CALL, expires_at=None, by=ADMIN)
    (record,), _ = await sqlite.read_audit(AuditFilter(event="key.created"))
    assert (record.actor, record.ip_address) == ("ann", "192.0.2.1")
    assert record.details == {"key": key.id, "name": "ci", "scope": "call", "key_id": "k1"}
    assert secret[12:] not in repr(record)


async def test_the_newest_key_is_shown_first(keys: Keys, clock: FakeClock) -> None:
    for name in ("old", "new"):
        await keys.create(name, Scope.READ, expires_at=None, by=ADMIN)
        clock.advance(1)
    assert [key.name for key in keys.all()] == ["new", "old"]


async def test_where_keys_are_off_everybody_is_the_local_admin(sqlite: SqlStore, clock: FakeClock) -> None:
    """R-47: which settings allow on loopback alone."""
    keys = Keys(store=sqlite, clock=clock, required=False)
    assert keys.authenticate(None, "127.0.0.1") == Principal("local", "local", Scope.ADMIN, "127.0.0.1")
