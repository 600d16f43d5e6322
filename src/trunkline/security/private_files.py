"""Files that only the gateway's own user may read: made whole or not at all, on disk before they count.

Used for the credential key and the first admin key. A file found with wider permissions is tightened with
a warning and not refused: some volume drivers widen the permissions of every file each time they mount.
"""

import logging
import os
import secrets
import stat
from pathlib import Path

log = logging.getLogger("trunkline.security")

_OWNER_ONLY = 0o600


def create_private(path: Path, content: bytes) -> bool:
    """Make the file unless there is one; False when somebody else was first."""
    draft = _draft(path, content)
    try:
        os.link(draft, path)
    except FileExistsError:
        return False
    finally:
        draft.unlink()
    _sync_folder(path.parent)
    return True


def replace_private(path: Path, content: bytes) -> None:
    draft = _draft(path, content)
    try:
        draft.replace(path)
    except OSError:
        draft.unlink()
        raise
    _sync_folder(path.parent)


def read_private(path: Path) -> bytes:
    """Raises `FileNotFoundError`, or another `OSError` when it cannot be read or tightened."""
    with path.open("rb") as file:
        mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        if mode & 0o077:
            os.fchmod(file.fileno(), _OWNER_ONLY)
            log.warning(
                "%s could be used by other accounts (mode %04o); it is 0600 now. "
                "If somebody may have read it, make a new one.",
                path,
                mode,
            )
        return file.read()


def _draft(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _OWNER_ONLY)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        draft.unlink()
        raise
    return draft


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
