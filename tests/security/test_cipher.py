"""Proves the cipher and its key ring: what was sealed opens in its place under its key, and nowhere else."""

import base64
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.errors import SealBroken, SettingsError
from trunkline.security.cipher import KEY_FILE, AesCipher, CredentialKeys, load_key_ring, read_keys

KEY = bytes.fromhex("8f1c0b7a55d2e9f3046ab8c17d20935eeb41f76a0c9d82b3561e4fa7083cd9e2")
OTHER = bytes.fromhex("11a7c93e60f8d2b45c0e97f1823bd46a7e90c5182fbd3a64e7015c9b82d4f63a")


def cipher(*keys: bytes) -> AesCipher:
    return AesCipher(CredentialKeys(keys or (KEY,)))


@given(plain=st.binary(max_size=2000), place=st.text(max_size=50))
def test_what_is_sealed_opens_in_its_place(plain: bytes, place: str) -> None:
    """R-48"""
    sealed = cipher().seal(plain, bound_to=place)
    assert cipher().unseal(sealed, bound_to=place) == plain
    assert sealed.split(".")[0] == "v1"
    assert sealed.count(".") == 3


def test_the_same_text_is_sealed_differently_each_time() -> None:
    """R-48"""
    sealed = {cipher().seal(b"same", bound_to="row") for _ in range(100)}
    assert len(sealed) == 100


@given(place=st.text(max_size=20), other=st.text(max_size=20))
def test_a_sealed_text_moved_to_another_row_does_not_open(place: str, other: str) -> None:
    """R-48"""
    sealed = cipher().seal(b"secret", bound_to=place)
    if place != other:
        with pytest.raises(SealBroken, match="belongs to another record"):
            cipher().unseal(sealed, bound_to=other)


def test_every_flipped_bit_is_refused() -> None:
    """R-48: a bit of the text, the version, the key id, the nonce, the ciphertext or the tag."""
    sealed = cipher().seal(b'{"url":"x"}', bound_to="row").encode()
    for position in range(len(sealed)):
        for bit in range(8):
            changed = bytearray(sealed)
            changed[position] ^= 1 << bit
            with pytest.raises(SealBroken):
                cipher().unseal(changed.decode("latin-1"), bound_to="row")


def test_every_truncation_and_extension_is_refused() -> None:
    """R-48"""
    sealed = cipher().seal(b"secret", bound_to="row")
    for end in range(len(sealed)):
        with pytest.raises(SealBroken):
            cipher().unseal(sealed[:end], bound_to="row")
    for tail in ("A", "=", ".", " ", "\n", "AAAA"):
        with pytest.raises(SealBroken):
            cipher().unseal(sealed + tail, bound_to="row")


@given(st.text(max_size=200))
def test_garbage_is_refused_and_nothing_else_is_raised(garbage: str) -> None:
    with pytest.raises(SealBroken):
        cipher().unseal(garbage, bound_to="row")
    assert not cipher().is_current(garbage)


def test_parts_of_two_sealed_texts_do_not_mix() -> None:
    """R-48"""
    first = cipher().seal(b"first one", bound_to="row").split(".")
    second = cipher().seal(b"second one", bound_to="row").split(".")
    for part in (2, 3):
        mixed = first.copy()
        mixed[part] = second[part]
        with pytest.raises(SealBroken):
            cipher().unseal(".".join(mixed), bound_to="row")


def test_a_key_that_is_missing_is_named_by_its_id_alone() -> None:
    """R-48"""
    sealed = cipher(OTHER).seal(b"secret", bound_to="row")
    with pytest.raises(SealBroken) as refused:
        cipher(KEY).unseal(sealed, bound_to="row")
    assert sealed.split(".")[1] in refused.value.detail
    assert "MCP_CREDENTIAL_KEY" in refused.value.detail


def test_keys_rotate_the_first_seals_and_all_unseal() -> None:
    """R-48"""
    before = cipher(KEY).seal(b"secret", bound_to="row")
    both = cipher(OTHER, KEY)
    assert both.unseal(before, bound_to="row") == b"secret"
    assert not both.is_current(before)
    after = both.seal(both.unseal(before, bound_to="row"), bound_to="row")
    assert both.is_current(after)
    assert cipher(OTHER).unseal(after, bound_to="row") == b"secret"


@pytest.mark.parametrize(
    "spelling",
    [
        base64.b64encode(KEY).decode(),
        base64.b64encode(KEY).decode().rstrip("="),
        base64.urlsafe_b64encode(KEY).decode(),
        KEY.hex(),
        KEY.hex().upper(),
        f"  {KEY.hex()}  ",
    ],
)
def test_a_key_is_read_in_every_spelling(spelling: str) -> None:
    """R-48"""
    assert read_keys(spelling, source="X").secrets == (KEY,)


def test_several_keys_are_read_in_order_and_a_repeated_one_counts_once() -> None:
    text = f"{OTHER.hex()}, {base64.b64encode(KEY).decode()},{OTHER.hex()}"
    assert read_keys(text, source="X").secrets == (OTHER, KEY)


@pytest.mark.parametrize(
    "text",
    [
        "changeme",
        "x" * 64,
        "hunter2-hunter2-hunter2-hunter2!",
        KEY.hex()[:-2],
        base64.b64encode(KEY[:-1]).decode(),
        base64.b64encode(KEY + b"x").decode(),
        "ключ" * 8,
        f"{KEY.hex()},",
        f"{KEY.hex()},nonsense",
    ],
)
def test_a_key_that_is_none_is_refused_without_being_shown(text: str) -> None:
    """R-48"""
    with pytest.raises(SettingsError, match="must be 32 bytes") as refused:
        read_keys(text, source="MCP_CREDENTIAL_KEY")
    assert "MCP_CREDENTIAL_KEY" in refused.value.detail
    assert "\n" not in refused.value.detail
    for part in text.split(","):
        assert not part or part not in refused.value.detail


@pytest.mark.parametrize(
    "key",
    [
        bytes(32),
        b"\xff" * 32,
        bytes(range(32)),
        bytes(range(64, 32, -1)),
        b"0123456789abcdef" * 2,
        b"this-is-a-sample-key-change-it!!",
        bytes(range(200, 216)) * 2,
        b"\x01\x02\x03\x04" * 8,
    ],
)
def test_a_sample_key_is_refused(key: bytes) -> None:
    """R-48"""
    with pytest.raises(SettingsError, match="sample or a text"):
        read_keys(key.hex(), source="MCP_CREDENTIAL_KEY")


@given(st.binary(min_size=32, max_size=32).filter(lambda key: len(set(key)) > 20))
def test_the_keys_never_show_in_their_representation(key: bytes) -> None:
    keys = CredentialKeys((key,))
    assert repr(key)[2:-1] not in repr(keys)


def test_without_a_setting_a_key_file_is_made_once(tmp_path: Path) -> None:
    """R-48"""
    made = load_key_ring(None, tmp_path / "new")
    file = tmp_path / "new" / KEY_FILE
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert load_key_ring(None, tmp_path / "new") == made
    assert [entry.name for entry in file.parent.iterdir()] == [KEY_FILE]


def test_racing_starts_end_with_one_key(tmp_path: Path) -> None:
    with ThreadPoolExecutor(16) as pool:
        rings = list(pool.map(lambda _: load_key_ring(None, tmp_path), range(64)))
    assert len(set(rings)) == 1


def test_a_key_file_that_others_can_read_is_tightened_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """R-48"""
    made = load_key_ring(None, tmp_path)
    file = tmp_path / KEY_FILE
    file.chmod(0o644)
    assert load_key_ring(None, tmp_path) == made
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "0644" in caplog.text
    assert file.read_text().strip() not in caplog.text


def test_a_damaged_key_file_stops_the_start_and_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / KEY_FILE
    file.write_bytes(b"half a k\xff")
    file.chmod(0o600)
    with pytest.raises(SettingsError, match="must be 32 bytes") as refused:
        load_key_ring(None, tmp_path)
    assert str(file) in refused.value.detail
    assert "half" not in refused.value.detail
    assert file.read_bytes() == b"half a k\xff"


def test_a_folder_that_takes_no_key_file_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("a file, no folder")
    with pytest.raises(SettingsError, match="Cannot keep the credential key"):
        load_key_ring(None, tmp_path / "plain")


def test_a_setting_wins_over_the_file_and_makes_none(tmp_path: Path) -> None:
    assert load_key_ring(KEY.hex(), tmp_path).secrets == (KEY,)
    assert os.listdir(tmp_path) == []
