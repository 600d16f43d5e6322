"""An http address, taken apart once for all the requests that go there.

Pure. What may be connected to is judged elsewhere (`security/outbound.py`), on the text of the url; by then
it is known to be plain ASCII with a host and without credentials.
"""

from dataclasses import dataclass
from urllib.parse import quote, urljoin, urlsplit

_PORTS = {"http": 80, "https": 443}
_KEPT = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
"""Everything printable: only what cannot stand in a url at all is percent-encoded."""


@dataclass(frozen=True, slots=True)
class Address:
    url: str
    scheme: str
    host: str
    """In lower case; an IPv6 address without brackets."""
    port: int
    target: str
    """What a request line names: path and query."""

    @classmethod
    def of(cls, url: str) -> "Address":
        """Raises `ValueError`."""
        parts = urlsplit(url)
        scheme = parts.scheme.lower()
        if scheme not in _PORTS or not parts.hostname or parts.username is not None:
            raise ValueError("no http address")
        path = parts.path or "/"
        target = f"{path}?{parts.query}" if parts.query else path
        if not (target.isascii() and target.isprintable() and " " not in target):
            raise ValueError("a path that cannot be sent")
        return cls(url, scheme, parts.hostname, parts.port or _PORTS[scheme], target)

    @property
    def secure(self) -> bool:
        return self.scheme == "https"

    @property
    def origin(self) -> tuple[str, str, int]:
        return self.scheme, self.host, self.port

    @property
    def host_header(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    def joined(self, reference: str) -> "Address":
        """Where a reference leads that was found there. Raises `ValueError`."""
        return Address.of(urljoin(self.url, quote(reference, safe=_KEPT)))
