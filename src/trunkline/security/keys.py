"""API keys: made, kept as digests, recognised on every request.

A key is `tl_<id>_<secret>`: eight characters to find it by, 256 random bits to prove it. Only a digest of
the whole is kept; a slow hash is for passwords, which can be guessed. `KeyRing` lies on the path of every
call: it reads memory alone, compares in constant time, does the same work for an id nobody has, and answers
whatever it is given with a key or with `Unauthorized`. Storing keys is the store's; headers are the front's.
"""

import base64
import hashlib
import hmac
import secrets
import string
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

from trunkline.errors import Unauthorized
from trunkline.model import ApiKey, Scope
from trunkline.security.private_files import replace_private

ADMIN_KEY_FILE = "admin.key"

_PREFIX = b"tl_"
_ID_LENGTH = 8
_ID_ALPHABET = string.ascii_lowercase + string.digits
_SECRET_LENGTH = 43
_ID_END = len(_PREFIX) + _ID_LENGTH
TOKEN_LENGTH = _ID_END + 1 + _SECRET_LENGTH
_DOMAIN = b"trunkline api key v1\0"
_NOBODYS_DIGEST = secrets.token_bytes(32)

_REMEDY = "an administrator makes one with `trunkline keys create NAME`"
_MISSING = f"An API key is needed: send it as `Authorization: Bearer KEY`; {_REMEDY}"
_UNKNOWN = f"This API key is not known here: check that it is whole and meant for this gateway; {_REMEDY}"


def issue(name: str, scope: Scope, *, expires_at: datetime | None, now: datetime) -> tuple[ApiKey, str]:
    """A new key and its secret text, which is known this once."""
    key_id = "".join(secrets.choice(_ID_ALPHABET) for _ in range(_ID_LENGTH))
    secret = base64.urlsafe_b64encode(secrets.token_bytes(32)).rstrip(b"=").decode()
    token = f"tl_{key_id}_{secret}"
    return ApiKey(key_id, name, scope, _digest(token.encode()), created_at=now, expires_at=expires_at), token


def first_admin_key(data_dir: Path, *, now: datetime) -> tuple[ApiKey, str]:
    """The key of a new installation, already lying in `admin.key` for the command line on this machine.

    The file comes first and the caller stores the key after it: a crash between the two leaves a file that
    the next start replaces, never a key that nobody knows. Raises `OSError`.
    """
    key, token = issue("admin", Scope.ADMIN, expires_at=None, now=now)
    replace_private(data_dir / ADMIN_KEY_FILE, token.encode() + b"\n")
    return key, token


class KeyRing:
    """Every key of the installation, in memory."""

    def __init__(self) -> None:
        self._keys: dict[bytes, ApiKey] = {}

    def replace(self, keys: Iterable[ApiKey]) -> None:
        self._keys = {key.id.encode(): key for key in keys}

    def authenticate(self, token: bytes | None, now: datetime) -> ApiKey:
        """Raises `Unauthorized`. That a key expired or was revoked is told only to who holds it."""
        if not token:
            raise Unauthorized(_MISSING)
        if len(token) != TOKEN_LENGTH or not token.startswith(_PREFIX):
            raise Unauthorized(_UNKNOWN)
        key = self._keys.get(token[len(_PREFIX) : _ID_END])
        expected = _NOBODYS_DIGEST if key is None else key.digest
        if not hmac.compare_digest(_digest(token), expected) or key is None:
            raise Unauthorized(_UNKNOWN)
        if key.revoked_at is not None:
            raise Unauthorized(f"This API key was revoked; {_REMEDY}")
        if key.expires_at is not None and key.expires_at <= now:
            raise Unauthorized(f"This API key expired on {key.expires_at:%Y-%m-%d}; {_REMEDY}")
        return key


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(_DOMAIN + token).digest()
