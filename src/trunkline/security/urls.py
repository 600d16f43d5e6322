"""A url taken apart by syntax alone: the same cut for judging, for `${VAR}` and for masking.

Nothing is decoded, normalised or judged here; putting the parts together again gives the same text.
`outbound.py` judges the parts, `variables.py` looks at where a reference stands, `masking.py` hides some.
"""

import re
from dataclasses import dataclass

_URL = re.compile(
    r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)([^?#]*)(?:\?([^#]*))?(?:#(.*))?",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class UrlParts:
    scheme: str
    authority: str
    path: str
    query: str | None
    fragment: str | None

    @property
    def userinfo(self) -> str | None:
        before, at, _ = self.authority.rpartition("@")
        return before if at else None

    @property
    def host_and_port(self) -> str:
        return self.authority.rpartition("@")[2]

    @property
    def origin(self) -> str:
        return f"{self.scheme}://{self.host_and_port}".lower()


def split_url(text: str) -> UrlParts | None:
    """None when the text has no `scheme://` in front."""
    match = _URL.fullmatch(text)
    return UrlParts(*match.groups()) if match else None
