"""Proves API keys: a key is its owner's alone, and whatever else is sent is refused with a text."""

import re
import secrets
import stat
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.errors import Unauthorized
from trunkline.model import ApiKey, Scope
from trunkline.security.keys import ADMIN_KEY_FILE, TOKEN_LENGTH, KeyRing, first_admin_key, issue

NOW = datetime(2026, 11, 19, tzinfo=UTC)


def ring_of(*keys: ApiKey) -> KeyRing:
    ring = KeyRing()
    ring.replace(keys)
    return ring


def refusal(ring: KeyRing, token: bytes | None, now: datetime = NOW) -> str:
    with pytest.raises(Unauthorized) as refused:
        ring.authenticate(token, now)
    return refused.value.detail


def test_a_key_lets_its_owner_in() -> None:
    """R-47"""
    key, token = issue("ci", Scope.CALL, expires_at=None, now=NOW)
    other, _ = issue("other", Scope.READ, expires_at=None, now=NOW)
    assert re.fullmatch(r"tl_[a-z0-9]{8}_[A-Za-z0-9_-]{43}", token)
    assert len(token) == TOKEN_LENGTH
    assert ring_of(other, key).authenticate(token.encode(), NOW) is key
    assert token[3:11] == key.id


def test_nothing_of_the_secret_is_kept() -> None:
    """R-47"""
    key, token = issue("ci", Scope.CALL, expires_at=None, now=NOW)
    secret = token[12:]
    assert secret not in repr(key)
    assert len(key.digest) == 32


def test_two_keys_never_share_id_or_digest() -> None:
    keys = [issue("k", Scope.READ, expires_at=None, now=NOW)[0] for _ in range(500)]
    assert len({key.id for key in keys}) == 500
    assert len({key.digest for key in keys}) == 500


def test_every_changed_character_is_refused() -> None:
    """R-47: tokens that share all but one character never share an identity."""
    key, token = issue("ci", Scope.ADMIN, expires_at=None, now=NOW)
    ring = ring_of(key)
    for position in range(len(token)):
        changed = "x" if token[position] != "x" else "y"
        refusal(ring, (token[:position] + changed + token[position + 1 :]).encode())


def test_a_digest_moved_to_another_id_opens_nothing() -> None:
    """R-47: a row of the database changed by hand gives nobody another's scope."""
    admin, _ = issue("admin", Scope.ADMIN, expires_at=None, now=NOW)
    reader, token = issue("reader", Scope.READ, expires_at=None, now=NOW)
    forged = ApiKey(admin.id, admin.name, admin.scope, reader.digest, NOW)
    refusal(ring_of(forged), f"tl_{admin.id}_{token[12:]}".encode())


@pytest.mark.parametrize(
    "token",
    [
        None,
        b"",
        b" ",
        b"\xe9",
        b"\x00" * TOKEN_LENGTH,
        b"\xff" * TOKEN_LENGTH,
        "é".encode() * 27 + b"x",
        b"tl_",
        b"tl_aaaaaaaa_" + b"\xe9" * 43,
        b"tl_\xc3\xa9aaaaaa_" + b"a" * 43,
        b"a" * 65536,
        b"tl_" + b"a" * 65536,
        b"Bearer tl_aaaaaaaa_" + b"a" * 43,
        b"tl_aaaaaaaa_" + b"a" * 43,
        b"v1.abcdefgh.AAAAAAAAAAAAAAAA.AAAAAAAAAAAAAAAAAAAAAAAA",
    ],
)
def test_what_is_no_key_is_refused_with_what_to_do(token: bytes | None) -> None:
    """R-47"""
    key, _ = issue("ci", Scope.CALL, expires_at=None, now=NOW)
    assert "trunkline keys create" in refusal(ring_of(key), token)


@given(st.binary(max_size=200))
def test_random_bytes_raise_nothing_but_unauthorized(token: bytes) -> None:
    """R-47"""
    key, _ = issue("ci", Scope.CALL, expires_at=None, now=NOW)
    refusal(ring_of(key), token)


def test_spaces_around_a_key_make_it_another() -> None:
    """R-47"""
    key, token = issue("ci", Scope.CALL, expires_at=None, now=NOW)
    for spelled in (f" {token}", f"{token} ", f"{token}\n", token.upper(), f"{token}{token}"):
        refusal(ring_of(key), spelled.encode())


def test_an_expired_key_is_told_so_and_only_to_its_owner() -> None:
    """R-47"""
    key, token = issue("ci", Scope.CALL, expires_at=NOW + timedelta(hours=1), now=NOW)
    ring = ring_of(key)
    assert ring.authenticate(token.encode(), NOW + timedelta(minutes=59)) is key
    assert "expired" in refusal(ring, token.encode(), NOW + timedelta(hours=1))
    guessed = f"tl_{key.id}_{'a' * 43}".encode()
    assert "expired" not in refusal(ring, guessed, NOW + timedelta(hours=2))


def test_a_revoked_key_is_refused_at_once() -> None:
    """R-47"""
    key, token = issue("ci", Scope.CALL, expires_at=None, now=NOW)
    ring = ring_of(key)
    ring.authenticate(token.encode(), NOW)
    ring.replace([ApiKey(key.id, key.name, key.scope, key.digest, NOW, revoked_at=NOW)])
    assert "revoked" in refusal(ring, token.encode())
    ring.replace([])
    assert "not known" in refusal(ring, token.encode())


def test_recognising_a_key_costs_microseconds() -> None:
    """It lies on the path of every call. The best of many runs, so that a busy machine does not matter."""
    pairs = [issue("k", Scope.CALL, expires_at=None, now=NOW) for _ in range(100)]
    ring = ring_of(*(key for key, _ in pairs))
    token = pairs[50][1].encode()
    best = min(_time_of(lambda: ring.authenticate(token, NOW)) for _ in range(50))
    assert best < 20e-6


def _time_of(action: object) -> float:
    assert callable(action)
    before = time.perf_counter()
    for _ in range(100):
        action()
    return (time.perf_counter() - before) / 100


def test_the_first_admin_key_lies_in_a_private_file(tmp_path: Path) -> None:
    """R-47"""
    key, token = first_admin_key(tmp_path / "data", now=NOW)
    file = tmp_path / "data" / ADMIN_KEY_FILE
    assert file.read_text() == token + "\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert key.scope is Scope.ADMIN
    assert ring_of(key).authenticate(token.encode(), NOW) is key


def test_a_second_first_key_replaces_the_file(tmp_path: Path) -> None:
    """A start that was killed between the file and the database leaves nothing in the way."""
    file = tmp_path / ADMIN_KEY_FILE
    file.write_text(secrets.token_hex())
    file.chmod(0o644)
    _, token = first_admin_key(tmp_path, now=NOW)
    assert file.read_text() == token + "\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == [ADMIN_KEY_FILE]
