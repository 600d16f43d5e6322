"""By which names this gateway may be called: the guard against DNS rebinding and foreign web pages.

Pure. A page on another site can make a browser send requests here, and a name its owner controls can be
pointed at this machine; both betray themselves in `Host` and `Origin`. Loopback names, the address the
request came in on, the bound host and the operator's own names are let through, on every port.
"""

import re
from collections.abc import Iterable

from trunkline.errors import BadRequest, Forbidden

_HOST = re.compile(rb"(\[[0-9a-f:.]+\]|[0-9a-z_.-]+)(?::([0-9]{1,5}))?")
_ORIGIN = re.compile(rb"https?://(.+)")
_WILDCARDS = frozenset({"0.0.0.0", "::", ""})
_MAPPED = "::ffff:"
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


def plain_address(address: str) -> str:
    """An IPv4 address that a dual-stack socket shows as IPv6 is shown as what it is."""
    return address[len(_MAPPED) :] if address.startswith(_MAPPED) and "." in address else address


def bracketed(address: str) -> str:
    """As it stands in a URL."""
    return f"[{address}]" if ":" in address else address


class KnownHosts:
    def __init__(self, bound: str, allowed: Iterable[str]) -> None:
        names = {*LOOPBACK, *(name.lower().rstrip(".") for name in allowed)}
        if bound not in _WILDCARDS:
            names.add(bracketed(bound.lower()))
        self._names = frozenset(name.encode("idna" if not name.isascii() else "ascii") for name in names)

    def judge(self, hosts: list[bytes], origins: list[bytes], *, http10: bool, reached: str | None) -> None:
        """Raises `BadRequest` or `Forbidden`. `reached` is the local address of the connection."""
        if len(hosts) > 1 or len(origins) > 1:
            raise BadRequest("The request has more than one Host or Origin header")
        if hosts:
            if not self._knows(hosts[0], reached):
                raise Forbidden(
                    "This gateway is not called by this host name: use localhost or the address it is "
                    "bound to, or add the name to MCP_AGGREGATOR_ALLOWED_HOSTS"
                )
        elif not http10:
            raise BadRequest("The request has no Host header")
        if origins:
            found = _ORIGIN.fullmatch(origins[0].lower())
            if found is None or not self._knows(found.group(1), reached):
                raise Forbidden(
                    "Requests from web pages of this origin are not taken; its host can be added to "
                    "MCP_AGGREGATOR_ALLOWED_HOSTS"
                )

    def _knows(self, host: bytes, reached: str | None) -> bool:
        host = host.lower()
        if host in self._names:
            return True
        found = _HOST.fullmatch(host)
        if found is None:
            return False
        name = found.group(1).rstrip(b".")
        return name in self._names or (
            reached is not None and name == bracketed(plain_address(reached)).lower().encode()
        )
