"""Where the gateway may connect: the `OutboundPolicy` port.

A url is judged when it is registered (scheme, credentials, literal addresses in every spelling), and each
address its name resolves to just before a socket connects to it. Cloud metadata, link-local, multicast,
unspecified and reserved addresses are refused whatever the settings say; private ones and loopback are
the operator's to allow. Pure: it resolves no name and opens nothing; `upstream` asks and connects.
The ranges are written out here, because what the standard library counts as private changes with its version.
"""

import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from trunkline.errors import Forbidden
from trunkline.security.urls import UrlParts, split_url
from trunkline.settings import Settings

LONGEST_URL = 4096

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network


@dataclass(frozen=True, slots=True)
class _Range:
    network: Network
    words: str


def _ranges(words: str, *networks: str) -> tuple[_Range, ...]:
    return tuple(_Range(ip_network(network), words) for network in networks)


_NEVER = (
    *_ranges(
        "a cloud metadata address",
        "169.254.169.254/32", "169.254.170.2/32", "100.100.100.200/32", "168.63.129.16/32",
        "192.0.0.192/32", "fd00:ec2::254/128", "fd20:ce::254/128",
    ),
    *_ranges("a link-local address", "169.254.0.0/16", "fe80::/10"),
    *_ranges("an unspecified address", "0.0.0.0/8", "::/128"),
    *_ranges("a multicast address", "224.0.0.0/4", "ff00::/8"),
    *_ranges(
        "a reserved address",
        "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4",
        "2001::/23", "2001:db8::/32", "3fff::/20",
    ),
)  # fmt: skip
_LOOPBACK = _ranges("this machine", "127.0.0.0/8", "::1/128")
_PRIVATE = _ranges(
    "a private address",
    "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "198.18.0.0/15", "fc00::/7",
)  # fmt: skip
_GLOBAL_V6 = IPv6Network("2000::/3")
_NAT64 = IPv6Network("64:ff9b::/96")

_METADATA_NAMES = frozenset({"metadata.google.internal", "metadata.goog", "instance-data"})
_ODD_CHARACTER = re.compile(r"[^\x21-\x7e]|\\")
_LABEL = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")
_NUMBER = re.compile(r"0[xX][0-9A-Fa-f]*|[0-9]+")
_AUTHORITY = re.compile(r"(?:\[([^\[\]]*)\]|([^\[\]:]*))(?::([0-9]*))?")


class Outbound:
    """The operator's settings, applied to urls and addresses."""

    def __init__(
        self, *, allowed_networks: tuple[str, ...], on_loopback: bool, allow_insecure_http: bool
    ) -> None:
        self._allowed = tuple(ip_network(network) for network in allowed_networks)
        self._on_loopback = on_loopback
        self._allow_insecure_http = allow_insecure_http

    @classmethod
    def from_settings(cls, settings: Settings) -> "Outbound":
        return cls(
            allowed_networks=settings.allowed_networks,
            on_loopback=settings.on_loopback,
            allow_insecure_http=settings.allow_insecure_http,
        )

    def judge(self, url: str) -> None:
        parts = _well_formed(url)
        host = _host_of(parts)
        address = _literal(host)
        if address is None:
            self._judge_name(host)
        else:
            self._judge_range(address, subject=f"{host} is")
            if str(address) != host and not isinstance(address, IPv6Address):
                raise Forbidden(f"The address {host} is spelled in an unusual way: write {address}")
        secure = parts.scheme.lower() == "https" or self._allow_insecure_http
        if not secure and not (_is_localhost(host) if address is None else _is_loopback(address)):
            raise Forbidden(
                f"Plain http to {host} is not secure: use https, or set "
                "MCP_AGGREGATOR_ALLOW_INSECURE_HTTP=true to allow it"
            )

    def judge_address(self, address: str, *, host: str) -> None:
        try:
            parsed = ip_address(address.partition("%")[0])
        except ValueError:
            raise Forbidden(f"{host} resolves to something that is no address") from None
        if _is_localhost(host) and not _is_loopback(parsed):
            raise Forbidden(f"{host} resolves to an address that is not this machine")
        self._judge_range(parsed, subject=f"{host} resolves to")

    def _judge_name(self, host: str) -> None:
        if host.lower().rstrip(".") in _METADATA_NAMES:
            raise Forbidden(f"{host} is a cloud metadata service: the gateway never connects there")
        if _is_localhost(host) and not self._loopback_allowed():
            raise Forbidden(_not_from_here(f"{host} is"))

    def _judge_range(self, address: Address, *, subject: str) -> None:
        meant = _meant(address)
        forbidden = _never(meant)
        if forbidden:
            raise Forbidden(f"{subject} {forbidden}: the gateway never connects there")
        if any(_within(network, meant) or _within(network, address) for network in self._allowed):
            return
        if _is_loopback(meant) and not self._on_loopback:
            raise Forbidden(_not_from_here(subject))
        for private in _PRIVATE:
            if _within(private.network, meant):
                raise Forbidden(
                    f"{subject} {private.words} (in {private.network}): add its network to "
                    "MCP_AGGREGATOR_ALLOWED_NETWORKS to allow it"
                )

    def _loopback_allowed(self) -> bool:
        return self._on_loopback or any(
            network.overlaps(loopback.network)
            for network in self._allowed
            for loopback in _LOOPBACK
            if network.version == loopback.network.version
        )


def _not_from_here(subject: str) -> str:
    return (
        f"{subject} this machine, and the gateway is not bound to loopback: add 127.0.0.0/8 or ::1/128 to "
        "MCP_AGGREGATOR_ALLOWED_NETWORKS to allow it"
    )


def _well_formed(url: str) -> UrlParts:
    """Only what every parser of urls reads in the same way passes."""
    if len(url) > LONGEST_URL:
        raise Forbidden(f"The url is longer than {LONGEST_URL} characters")
    if _ODD_CHARACTER.search(url):
        raise Forbidden(
            "The url has a space, a backslash, or a control or non-ASCII character in it: percent-encode it, "
            "and write an international host name in its xn-- form"
        )
    parts = split_url(url)
    if parts is None or parts.scheme.lower() not in ("http", "https"):
        raise Forbidden("The url must begin with https:// or http://")
    if parts.userinfo is not None:
        raise Forbidden("The url must not carry a user name or password: put credentials into headers")
    if parts.fragment is not None:
        raise Forbidden("The url must not have a #fragment: it would never be sent")
    return parts


def _host_of(parts: UrlParts) -> str:
    """The host without port; an IPv6 address keeps no brackets."""
    match = _AUTHORITY.fullmatch(parts.host_and_port)
    if match is None:
        raise Forbidden("The url has no valid host")
    bracketed, plain, port = match.groups()
    if port is not None and not (port.isdigit() and len(port) <= 5 and 0 < int(port) <= 65535):
        raise Forbidden("The url's port must be a number from 1 to 65535")
    if bracketed is not None:
        if ":" not in bracketed:
            raise Forbidden("The url has no valid IPv6 address in its brackets")
        return str(bracketed)
    host = str(plain)
    if len(host) > 253 or not all(_LABEL.fullmatch(label) for label in host.removesuffix(".").split(".")):
        raise Forbidden("The url has no valid host")
    return host


def _literal(host: str) -> Address | None:
    """The address a host is, however it is spelled; None for a name."""
    if ":" in host:
        return _literal_v6(host)
    labels = host.removesuffix(".").split(".")
    if not _NUMBER.fullmatch(labels[-1]):
        return None
    try:
        return IPv4Address(_number_of(labels))
    except ValueError:
        raise Forbidden(f"{host} is no valid address") from None


def _literal_v6(host: str) -> IPv6Address:
    bare, percent, _ = host.partition("%")
    try:
        address = IPv6Address(bare)
    except ValueError:
        raise Forbidden("The url has no valid IPv6 address in its brackets") from None
    if percent:
        words = _never(_meant(address)) or "an address with a zone"
        raise Forbidden(f"{bare} is {words}: the gateway never connects there")
    return address


def _number_of(labels: list[str]) -> int:
    """As `inet_aton` reads it: one to four numbers in decimal, octal or hex; the last fills what is left."""
    if len(labels) > 4 or not all(_NUMBER.fullmatch(label) for label in labels):
        raise ValueError
    *firsts, last = (_number(label) for label in labels)
    room = 8 * (4 - len(firsts))
    if any(part > 255 for part in firsts) or last >= 1 << room:
        raise ValueError
    total = last
    for place, part in enumerate(firsts):
        total += part << (24 - 8 * place)
    return total


def _number(text: str) -> int:
    if text[:2].lower() == "0x":
        return int(text[2:] or "0", 16)
    return int(text, 8 if text.startswith("0") else 10)


def _meant(address: Address) -> Address:
    """The IPv4 address that an IPv6 address stands for: mapped, NAT64 or 6to4."""
    if isinstance(address, IPv4Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.sixtofour or address


def _never(address: Address) -> str | None:
    for forbidden in _NEVER:
        if _within(forbidden.network, address):
            return forbidden.words
    if isinstance(address, IPv4Address) or _is_loopback(address) or address in _GLOBAL_V6:
        return None
    if any(_within(private.network, address) for private in _PRIVATE):
        return None
    return "a reserved address"


def _is_loopback(address: Address) -> bool:
    meant = _meant(address)
    return any(_within(loopback.network, meant) for loopback in _LOOPBACK)


def _is_localhost(host: str) -> bool:
    name = host.lower().removesuffix(".")
    return name == "localhost" or name.endswith(".localhost")


def _within(network: Network, address: Address) -> bool:
    return network.version == address.version and address in network
