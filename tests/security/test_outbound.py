"""Proves where the gateway may connect: a corpus of spellings at registration, every address at connect."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yarl import URL

from trunkline.errors import Forbidden
from trunkline.security.outbound import LONGEST_URL, Outbound
from trunkline.settings import Settings


def outbound(*allowed: str, on_loopback: bool = False, allow_insecure_http: bool = True) -> Outbound:
    return Outbound(
        allowed_networks=allowed, on_loopback=on_loopback, allow_insecure_http=allow_insecure_http
    )


EVERYTHING_ALLOWED = outbound("0.0.0.0/0", "::/0", on_loopback=True)
BOUND_TO_LOOPBACK = outbound(on_loopback=True, allow_insecure_http=False)
EXPOSED = outbound(allow_insecure_http=False)

NEVER = [
    # cloud metadata, in every spelling
    "169.254.169.254",
    "169.254.169.254.",
    "2852039166",
    "0xa9fea9fe",
    "0XA9FEA9FE",
    "025177524776",
    "0251.0376.0251.0376",
    "0xa9.0xfe.0xa9.0xfe",
    "169.254.43518",
    "169.16689662",
    "0xa9.254.0251.254",
    "0000000251.254.169.254",
    "[::ffff:169.254.169.254]",
    "[::ffff:a9fe:a9fe]",
    "[0:0:0:0:0:ffff:a9fe:a9fe]",
    "[0000:0000:0000:0000:0000:FFFF:A9FE:A9FE]",
    "[64:ff9b::169.254.169.254]",
    "[64:ff9b::a9fe:a9fe]",
    "[2002:a9fe:a9fe::]",
    "[2002:a9fe:a9fe::1]",
    "[fd00:ec2::254]",
    "[fd20:ce::254]",
    "100.100.100.200",
    "1684301000",
    "[::ffff:100.100.100.200]",
    "168.63.129.16",
    "169.254.170.2",
    "metadata.google.internal",
    "METADATA.google.internal.",
    # link-local
    "169.254.0.1",
    "[fe80::1]",
    "[fe80::1%25eth0]",
    "[fe80::1%eth0]",
    "[febf::1]",
    "[fec0::1]",
    # unspecified
    "0.0.0.0",
    "0",
    "0x0",
    "00",
    "0.1",
    "[::]",
    "[::0]",
    "[::%lo]",
    "[::ffff:0.0.0.0]",
    # multicast, broadcast, reserved
    "224.0.0.1",
    "239.255.255.250",
    "[ff02::1]",
    "255.255.255.255",
    "4294967295",
    "240.0.0.1",
    "192.0.2.1",
    "198.51.100.7",
    "203.0.113.9",
    "192.0.0.192",
    "[2001:db8::1]",
    "[2001:0:4136:e378:8000:63bf:3fff:fdd2]",
    "[64:ff9b:1::a9fe:a9fe]",
    "[::169.254.169.254]",
    "[::127.0.0.1]",
    "[100::1]",
    "[5f00::1]",
]

LOOPBACK = [
    "127.0.0.1",
    "127.255.255.254",
    "2130706433",
    "0x7f000001",
    "0x7f.1",
    "127.1",
    "017700000001",
    "0177.0.0.1",
    "localhost",
    "LOCALHOST.",
    "mcp.localhost",
    "[::1]",
    "[0:0:0:0:0:0:0:1]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[64:ff9b::127.0.0.1]",
    "[2002:7f00:1::]",
]

PRIVATE = [
    "10.0.0.1",
    "10.255.255.255",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.1.1",
    "100.64.0.1",
    "198.18.0.1",
    "167772161",
    "0x0a000001",
    "012.0.0.1",
    "3232235777",
    "192.168.257",
    "[::ffff:10.0.0.1]",
    "[::ffff:c0a8:101]",
    "[64:ff9b::10.0.0.1]",
    "[2002:0a00:0001::]",
    "[fc00::1]",
    "[fdff::1]",
]

NO_HOST = [
    "",
    "[]",
    "[::1",
    "::1",
    "[127.0.0.1]",
    "[v1.fe80::1]",
    "[::1]x",
    "1.2.3.4.5",
    "256.1.1.1",
    "1.2.3.256",
    "4294967296",
    "08.8.8.8",
    "1..2.3.4",
    "example..com",
    ".example.com",
    "-example.com",
    "exa mple.com",
    "example%2ecom",
    "127%2e0%2e0%2e1",
    "①②⑦.⓪.⓪.①",
    "169。254。169。254",
    "ⓛocalhost",
    "127.0.0.1\t",
    "127.0.0.1\r\nHost: x",
    "example.com\\@10.0.0.1",
    "a" * 64 + ".com",
    "a." * 127 + "com",
    "example.com:0",
    "example.com:65536",
    "example.com:8o",
    "example.com:80:80",
    "foo.0x",
]


@pytest.mark.parametrize("host", NEVER)
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_the_forbidden_is_refused_whatever_is_allowed(scheme: str, host: str) -> None:
    with pytest.raises(Forbidden, match="the gateway never connects there"):
        EVERYTHING_ALLOWED.judge(f"{scheme}://{host}/mcp")


@pytest.mark.parametrize("host", LOOPBACK)
def test_loopback_is_refused_to_an_exposed_gateway(host: str) -> None:
    with pytest.raises(Forbidden, match=r"this machine.*MCP_AGGREGATOR_ALLOWED_NETWORKS"):
        EXPOSED.judge(f"https://{host}:8000/mcp")


@pytest.mark.parametrize("host", PRIVATE)
def test_a_private_address_is_refused_with_the_setting_that_allows_it(host: str) -> None:
    with pytest.raises(Forbidden, match=r"a private address \(in .*MCP_AGGREGATOR_ALLOWED_NETWORKS"):
        BOUND_TO_LOOPBACK.judge(f"https://{host}/mcp")


@pytest.mark.parametrize("host", NO_HOST)
def test_what_is_no_host_is_refused(host: str) -> None:
    with pytest.raises(Forbidden):
        EVERYTHING_ALLOWED.judge(f"https://{host}/mcp")


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "localhost", "mcp.localhost", "127.8.9.10"])
def test_loopback_is_open_to_a_gateway_on_loopback_also_without_tls(host: str) -> None:
    """R-50"""
    BOUND_TO_LOOPBACK.judge(f"http://{host}:9000/mcp?x=1")


@pytest.mark.parametrize("url", ["https://example.com", "HTTPS://Example.COM:8443/a/b?c=${TOKEN}"])
def test_an_ordinary_address_is_allowed(url: str) -> None:
    EXPOSED.judge(url)


@pytest.mark.parametrize("host", ["8.8.8.8", "[2606:4700::1111]", "[::ffff:8.8.8.8]", "my_service", "a-b.c"])
def test_public_addresses_and_plain_names_are_allowed(host: str) -> None:
    EXPOSED.judge(f"https://{host}/")


@pytest.mark.parametrize("spelling", ["134744072", "0x08080808", "010.8.8.8", "8.8.2056", "8.8.8.8."])
def test_an_allowed_address_must_be_spelled_as_usual(spelling: str) -> None:
    """Two parsers that read one spelling in two ways are how a judged address becomes another."""
    with pytest.raises(Forbidden, match=r"write 8\.8\.8\.8"):
        EXPOSED.judge(f"https://{spelling}/")


def test_plain_http_needs_loopback_or_the_setting() -> None:
    """R-50"""
    with pytest.raises(Forbidden, match="MCP_AGGREGATOR_ALLOW_INSECURE_HTTP"):
        BOUND_TO_LOOPBACK.judge("http://example.com/mcp")
    outbound(allow_insecure_http=True).judge("http://example.com/mcp")
    with pytest.raises(Forbidden, match="MCP_AGGREGATOR_ALLOW_INSECURE_HTTP"):
        outbound("10.0.0.0/8", allow_insecure_http=False).judge("http://10.1.2.3/")


def test_a_listed_network_opens_itself_and_no_more() -> None:
    listed = outbound("10.1.0.0/16", "fd12::/16", "127.0.0.0/8")
    listed.judge("https://10.1.2.3/")
    listed.judge("https://[::ffff:10.1.2.3]/")
    listed.judge("https://[fd12::1]/")
    listed.judge("http://127.0.0.1:1/")
    listed.judge("http://localhost:1/")
    for host in ("10.2.0.1", "[fd13::1]", "[::1]", "192.168.0.1"):
        with pytest.raises(Forbidden):
            listed.judge(f"https://{host}/")


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("file:///etc/passwd", "must begin with"),
        ("gopher://example.com/", "must begin with"),
        ("ws://example.com/", "must begin with"),
        ("javascript:alert(1)", "must begin with"),
        ("example.com/mcp", "must begin with"),
        ("//example.com/mcp", "must begin with"),
        ("https:/example.com", "must begin with"),
        ("https:example.com", "must begin with"),
        ("", "must begin with"),
        ("https://user:hunter2@example.com/", "credentials into headers"),
        ("https://user@example.com/", "credentials into headers"),
        ("https://@example.com/", "credentials into headers"),
        ("https://example.com@10.0.0.1/", "credentials into headers"),
        ("https://example.com/#secret", "fragment"),
        ("https://example.com/#", "fragment"),
        (" https://example.com/", "percent-encode"),
        ("https://example.com/a b", "percent-encode"),
        ("https://example.com/\x00", "percent-encode"),
        ("https://example.com/é", "percent-encode"),
        ("https://example.com\\evil", "percent-encode"),
        ("https://example.com/" + "a" * LONGEST_URL, "longer than"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_words(url: str, words: str) -> None:
    with pytest.raises(Forbidden, match=words) as refused:
        EVERYTHING_ALLOWED.judge(url)
    assert "hunter2" not in refused.value.detail
    assert "secret" not in refused.value.detail


@given(st.text(alphabet="htps:/@[]%.0x17f2e-a?#\\é _", max_size=40))
def test_what_is_judged_is_what_the_client_will_read(rest: str) -> None:
    """No url passes whose host the HTTP client would read as another."""
    url = f"https://{rest}"
    try:
        EVERYTHING_ALLOWED.judge(url)
    except Forbidden:
        return
    host = URL(url).host
    assert host is not None
    authority = rest.split("/")[0].split("?")[0]
    assert host.lower() == authority.rpartition("]")[0].removeprefix("[").lower() or (
        host.lower() == authority.partition(":")[0].lower()
    )


@given(st.ip_addresses())
def test_an_address_is_judged_alike_at_registration_and_at_connect(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    host = f"[{address}]" if address.version == 6 else str(address)
    for policy in (EXPOSED, BOUND_TO_LOOPBACK, EVERYTHING_ALLOWED):
        assert _refuses(lambda: policy.judge(f"https://{host}/")) == _refuses(  # noqa: B023
            lambda: policy.judge_address(str(address), host="example.com")  # noqa: B023
        )


@given(st.ip_addresses())
def test_an_exposed_gateway_reaches_only_what_the_world_can_reach(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    """Our own ranges against the standard library's, which may be stricter and never laxer than ours."""
    if not _refuses(lambda: EXPOSED.judge_address(str(address), host="example.com")):
        meant = getattr(address, "ipv4_mapped", None) or getattr(address, "sixtofour", None) or address
        nat64 = address.version == 6 and address in ipaddress.ip_network("64:ff9b::/96")
        assert meant.is_global or nat64


def _refuses(judge: object) -> bool:
    assert callable(judge)
    try:
        judge()
    except Forbidden:
        return True
    return False


@pytest.mark.parametrize(
    "address",
    ["169.254.169.254", "fe80::1%2", "::ffff:169.254.169.254", "0.0.0.0", "ff02::1", "64:ff9b::a9fe:a9fe"],
)
def test_a_name_that_resolves_to_the_forbidden_is_not_connected_to(address: str) -> None:
    with pytest.raises(Forbidden, match=r"innocent\.example resolves to .* never connects"):
        EVERYTHING_ALLOWED.judge_address(address, host="innocent.example")


def test_a_name_that_resolves_inwards_is_refused_without_giving_the_address_away() -> None:
    with pytest.raises(Forbidden, match=r"10\.0\.0\.0/8") as refused:
        EXPOSED.judge_address("10.20.30.40", host="innocent.example")
    assert "10.20.30.40" not in refused.value.detail
    with pytest.raises(Forbidden, match="this machine"):
        EXPOSED.judge_address("::1", host="innocent.example")
    with pytest.raises(Forbidden, match="no address"):
        EXPOSED.judge_address("nonsense", host="innocent.example")


def test_localhost_that_is_not_this_machine_is_refused() -> None:
    BOUND_TO_LOOPBACK.judge_address("127.0.0.1", host="localhost")
    BOUND_TO_LOOPBACK.judge_address("::1", host="localhost")
    with pytest.raises(Forbidden, match="not this machine"):
        BOUND_TO_LOOPBACK.judge_address("93.184.216.34", host="localhost")


def test_the_settings_decide() -> None:
    exposed = Settings(host="0.0.0.0", allowed_networks=("10.0.0.0/8",), allow_insecure_http=True)
    Outbound.from_settings(exposed).judge("http://10.0.0.1/")
    with pytest.raises(Forbidden):
        Outbound.from_settings(exposed).judge("http://127.0.0.1/")
    Outbound.from_settings(Settings()).judge("http://127.0.0.1/")
