"""Where a request goes, read from a url: what is sent is what was written."""

import pytest

from trunkline.upstream.address import Address


@pytest.mark.parametrize(
    ("url", "scheme", "host", "port", "target", "header"),
    [
        ("http://example.test", "http", "example.test", 80, "/", "example.test"),
        ("https://Example.Test/mcp", "https", "example.test", 443, "/mcp", "example.test"),
        ("http://127.0.0.1:8080/a/b?c=d&e", "http", "127.0.0.1", 8080, "/a/b?c=d&e", "127.0.0.1:8080"),
        ("http://[::1]:9/x", "http", "::1", 9, "/x", "[::1]:9"),
        ("https://[2001:db8::1]/", "https", "2001:db8::1", 443, "/", "[2001:db8::1]"),
        ("http://h/%7Ea%2Fb/./c", "http", "h", 80, "/%7Ea%2Fb/./c", "h"),
        ("http://h?q=1", "http", "h", 80, "/?q=1", "h"),
    ],
)
def test_a_url_is_taken_apart_and_nothing_is_spelled_anew(
    url: str, scheme: str, host: str, port: int, target: str, header: str
) -> None:
    address = Address.of(url)
    assert (address.scheme, address.host, address.port, address.target) == (scheme, host, port, target)
    assert address.host_header == header
    assert address.secure is (scheme == "https")


@pytest.mark.parametrize(
    "url", ["", "example.test", "ftp://h/", "http://", "http://user@h/", "http://h:99999/", "http://h/a b"]
)
def test_what_is_no_http_address_is_refused(url: str) -> None:
    with pytest.raises(ValueError):
        Address.of(url)


@pytest.mark.parametrize(
    ("reference", "leads_to"),
    [
        ("/messages?id=1", "http://h:1/messages?id=1"),
        ("messages", "http://h:1/a/messages"),
        ("?id=1", "http://h:1/a/sse?id=1"),
        ("http://other/x", "http://other/x"),
        ("//other/x", "http://other/x"),
        ("/sitzung/ä b", "http://h:1/sitzung/%C3%A4%20b"),
    ],
)
def test_a_reference_leads_where_it_would_in_a_page(reference: str, leads_to: str) -> None:
    assert Address.of("http://h:1/a/sse").joined(reference).url == leads_to


def test_two_urls_of_one_server_have_one_origin() -> None:
    assert Address.of("http://H/a").origin == Address.of("http://h:80/b").origin
    assert Address.of("http://h/").origin != Address.of("https://h/").origin
