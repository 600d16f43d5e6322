"""Secrets at rest: the `Cipher` port, and the key ring it works with.

Sealed text is `v1.<key id>.<nonce>.<ciphertext and tag>`, AES-256-GCM in URL-safe base64 without padding.
What it is bound to (the row it belongs to) is authenticated with it, so that a text moved to another row
does not open. The operator's key never encrypts itself: each purpose has a sub-key by HKDF. To rotate, the
new key is put in front of the ring; by `is_current` the registry finds at a start what to seal again.
"""

import base64
import binascii
import itertools
import re
import secrets
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from trunkline.errors import SealBroken, SettingsError
from trunkline.security.private_files import create_private, read_private
from trunkline.settings import CREDENTIAL_KEY

KEY_FILE = "credential.key"

_VERSION = "v1"
_KEY_BYTES = 32
_NONCE_BYTES = 12
_TAG_BYTES = 16
_FEWEST_DISTINCT_BYTES = 8
"""Fewer different bytes among 32 do not come from a random source."""


@dataclass(frozen=True, slots=True)
class CredentialKeys:
    """The first seals, all unseal."""

    secrets: tuple[bytes, ...] = field(repr=False)


def load_key_ring(settings_text: str | None, data_dir: Path) -> CredentialKeys:
    """From the setting, else from the key file in the data folder, which is made when there is none."""
    if settings_text:
        return read_keys(settings_text, source=CREDENTIAL_KEY)
    path = data_dir / KEY_FILE
    try:
        if not path.exists():
            create_private(path, base64.b64encode(secrets.token_bytes(_KEY_BYTES)) + b"\n")
        text = read_private(path).decode("ascii", "replace")
    except OSError as error:
        raise SettingsError(f"Cannot keep the credential key in {path}: {error.strerror}") from None
    return read_keys(text, source=str(path))


def read_keys(text: str, *, source: str) -> CredentialKeys:
    """Raises `SettingsError`, which names the place and never shows the value."""
    parts = [part.strip() for part in text.split(",")]
    keys: dict[bytes, None] = {}
    for number, part in enumerate(parts, start=1):
        which = f"{source}: key {number} of {len(parts)}" if len(parts) > 1 else source
        keys[_read_key(part, which)] = None
    return CredentialKeys(tuple(keys))


def _read_key(text: str, which: str) -> bytes:
    remedy = "make one with `openssl rand -base64 32`"
    key = _decoded_key(text)
    if key is None:
        raise SettingsError(f"{which} must be 32 bytes as base64, URL-safe base64 or hex; {remedy}")
    if _is_guessable(key):
        raise SettingsError(f"{which} is a sample or a text and not 32 random bytes; {remedy}")
    return key


def _decoded_key(text: str) -> bytes | None:
    if len(text) == 2 * _KEY_BYTES:
        try:
            return binascii.unhexlify(text)
        except ValueError:
            return None
    try:
        key = base64.b64decode(_padded(text.rstrip("=").replace("-", "+").replace("_", "/")), validate=True)
    except ValueError:
        return None
    return key if len(key) == _KEY_BYTES else None


def _is_guessable(key: bytes) -> bool:
    steps = {(after - before) % 256 for before, after in itertools.pairwise(key)}
    repeats = key[:16] == key[16:]
    readable = all(32 <= byte < 127 for byte in key)
    return len(set(key)) < _FEWEST_DISTINCT_BYTES or len(steps) == 1 or repeats or readable


class AesCipher:
    """Seals with the first key of the ring."""

    def __init__(self, keys: CredentialKeys) -> None:
        self._boxes = {key_id(key): AESGCM(derived(key, "seal", _KEY_BYTES)) for key in keys.secrets}
        self._current = next(iter(self._boxes))

    def seal(self, plain: bytes, *, bound_to: str) -> str:
        nonce = secrets.token_bytes(_NONCE_BYTES)
        sealed = self._boxes[self._current].encrypt(nonce, plain, _context(self._current, bound_to))
        return ".".join((_VERSION, self._current, encoded(nonce), encoded(sealed)))

    def unseal(self, sealed: str, *, bound_to: str) -> bytes:
        parts = sealed.split(".")
        if len(parts) != 4 or parts[0] != _VERSION:
            raise SealBroken("What is stored is not a sealed configuration of this version")
        key_id = parts[1]
        box = self._boxes.get(key_id)
        if box is None:
            raise SealBroken(
                f"The stored configuration was sealed with another key (id {_shown(key_id)}): add that key "
                f"to {CREDENTIAL_KEY}, after the one that seals now"
            )
        nonce, ciphertext = decoded(parts[2]), decoded(parts[3])
        if nonce is None or ciphertext is None or len(nonce) != _NONCE_BYTES or len(ciphertext) < _TAG_BYTES:
            raise SealBroken(_TAMPERED)
        try:
            return box.decrypt(nonce, ciphertext, _context(key_id, bound_to))
        except InvalidTag:
            raise SealBroken(_TAMPERED) from None

    def is_current(self, sealed: str) -> bool:
        return sealed.startswith(f"{_VERSION}.{self._current}.")


_TAMPERED = (
    "The stored configuration cannot be opened: it was changed, cut short, or belongs to another record. "
    "Set the server's configuration again"
)


def derived(secret: bytes, purpose: str, length: int) -> bytes:
    """A sub-key: each purpose has its own."""
    info = f"trunkline {_VERSION} {purpose}".encode()
    return HKDF(algorithm=SHA256(), length=length, salt=None, info=info).derive(secret)


def key_id(secret: bytes) -> str:
    """What stands in a sealed text to find its key again."""
    return encoded(derived(secret, "key id", 6))


def _context(key_id: str, bound_to: str) -> bytes:
    return "\0".join(("trunkline", _VERSION, key_id, bound_to)).encode()


def _shown(key_id: str) -> str:
    """What came out of the database is shown only as far as it could be a key id."""
    return re.sub(r"[^A-Za-z0-9_-]", "?", key_id[:8])


def _padded(text: str) -> str:
    return text + "=" * (-len(text) % 4)


def encoded(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


def decoded(text: str) -> bytes | None:
    """Only the one spelling that `encoded` gives: a text with a bit flipped anywhere is another text."""
    try:
        value = base64.b64decode(_padded(text), altchars=b"-_", validate=True)
    except ValueError:
        return None
    return value if encoded(value) == text else None
