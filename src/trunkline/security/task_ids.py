"""Ids of tasks as clients get them: sealed texts that say at which server a task is, and under which id.

No table is kept of them, so any process with the same credential key finds the task again, also after a
restart. An id is bound to the key that called the tool, and opens for no other. It is always the same for
the same task (AES-SIV), cannot be guessed or changed, and shows nothing of what is in it.
"""

import uuid

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV

from trunkline.security.cipher import CredentialKeys, decoded, derived, encoded, key_id

LONGEST = 4096
"""What is longer is no id of ours: each has to travel in a header."""

_VERSION = "t1"
_KEY_BYTES = 64
_SERVER_BYTES = 16
_TAG_BYTES = 16


class TaskIds:
    """The first key of the ring seals, all unseal."""

    def __init__(self, keys: CredentialKeys) -> None:
        self._boxes = {key_id(key): AESSIV(derived(key, "task ids", _KEY_BYTES)) for key in keys.secrets}
        self._current = next(iter(self._boxes))

    def seal(self, server_id: str, task_id: str, *, owner: str) -> str | None:
        """`owner` is the id of the key whose task it is. None for an id too long to be given to anybody."""
        plain = uuid.UUID(server_id).bytes + task_id.encode("utf-8", "surrogatepass")
        sealed = self._boxes[self._current].encrypt(plain, [_context(self._current, owner)])
        text = ".".join((_VERSION, self._current, encoded(sealed)))
        return text if len(text) <= LONGEST else None

    def unseal(self, text: str, *, owner: str) -> tuple[str, str] | None:
        """The server's id and the server's own id of the task; None for what is no id of this owner's."""
        parts = text.split(".")
        if len(text) > LONGEST or len(parts) != 3 or parts[0] != _VERSION:
            return None
        box, sealed = self._boxes.get(parts[1]), decoded(parts[2])
        if box is None or sealed is None or len(sealed) < _TAG_BYTES + _SERVER_BYTES:
            return None
        try:
            plain = box.decrypt(sealed, [_context(parts[1], owner)])
        except InvalidTag:
            return None
        server_id = str(uuid.UUID(bytes=plain[:_SERVER_BYTES]))
        return server_id, plain[_SERVER_BYTES:].decode("utf-8", "surrogatepass")


def _context(ring_key: str, owner: str) -> bytes:
    return "\0".join(("trunkline", _VERSION, ring_key, owner)).encode()
