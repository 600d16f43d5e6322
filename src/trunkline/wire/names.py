"""Names as clients can take them: `server.tool` is what a tool is called, an alias is what is advertised.

Pure. Several clients accept only letters, digits and underscore, at most 64 of them, and drop a whole list
for one name with a dot. An alias is `prefix__tool`, where the prefix belongs to the server for good and
never holds two underscores in a row, so that an alias says whose it is and depends on no other server.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Collection, Iterable

LONGEST_ALIAS = 64
LONGEST_PREFIX = 40
SEPARATOR = "__"

_FOREIGN = re.compile(r"[^A-Za-z0-9_]")
_RUNS = re.compile(r"_+")


def prefix_of(server: str, taken: Collection[str]) -> str:
    """A prefix for a server that no other has: its name, where that is free."""
    plain = _RUNS.sub("_", _FOREIGN.sub("_", server))[:LONGEST_PREFIX].strip("_")
    digest = _digest(server)
    candidates = (plain, *(f"{plain}_{digest[:length]}" for length in range(4, 24)))
    return next(each for each in candidates if each not in taken)


def aliases(prefix: str, server: str, names: Iterable[str]) -> dict[str, str]:
    """Alias → original name, for everything of one kind that one server has."""
    wanted = {name: f"{prefix}{SEPARATOR}{_FOREIGN.sub('_', name)}" for name in names}
    claims = Counter(wanted.values())
    found: dict[str, str] = {}
    for name, alias in wanted.items():
        unclear = claims[alias] > 1 and _FOREIGN.search(name)
        found[_shortened(alias, f"{server}.{name}") if unclear or len(alias) > LONGEST_ALIAS else alias] = (
            name
        )
    return found


def _shortened(alias: str, canonical: str) -> str:
    return f"{alias[: LONGEST_ALIAS - 9]}_{_digest(canonical)[:8]}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
