"""Which Host and Origin are let through."""

import pytest

from trunkline.errors import BadRequest, Forbidden
from trunkline.front.origins import KnownHosts

HOSTS = KnownHosts("127.0.0.1", ("gw.example.com", "Exact.example.com:8443"))
EVERYWHERE = KnownHosts("0.0.0.0", ())


KNOWN = """
    localhost localhost:8081 LOCALHOST:1 localhost. 127.0.0.1:8081 [::1]:8081 [::1]
    gw.example.com GW.example.com:80 exact.example.com:8443
"""
FOREIGN = """
    evil.example localhost.evil.example evil-localhost 127.0.0.1.nip.io 127.0.0.2 [::2] localhost/ lo\xe9
    localhost@evil.example evil.example@localhost localhost:99999999 localhost:x exact.example.com
    exact.example.com:80 a.gw.example.com 0x7f.1 2130706433
"""


@pytest.mark.parametrize("host", KNOWN.split())
def test_a_name_of_this_gateway_is_let_through(host: str) -> None:
    HOSTS.judge([host.encode()], [], http10=False, reached="127.0.0.1")
    HOSTS.judge([b"localhost"], [f"http://{host}".encode()], http10=False, reached="127.0.0.1")
    HOSTS.judge([b"localhost"], [f"https://{host}".encode()], http10=False, reached="127.0.0.1")


@pytest.mark.parametrize("host", ["", *FOREIGN.split()])
def test_a_foreign_name_is_refused_in_host_and_in_origin(host: str) -> None:
    with pytest.raises(Forbidden, match="ALLOWED_HOSTS"):
        HOSTS.judge([host.encode("latin-1")], [], http10=False, reached="127.0.0.1")
    with pytest.raises(Forbidden, match="ALLOWED_HOSTS"):
        HOSTS.judge([b"localhost"], [b"http://" + host.encode("latin-1")], http10=False, reached="127.0.0.1")


@pytest.mark.parametrize("origin", [b"null", b"", b"file://", b"localhost", b"chrome-extension://localhost"])
def test_an_origin_that_is_no_web_address_is_foreign(origin: bytes) -> None:
    with pytest.raises(Forbidden):
        HOSTS.judge([b"localhost"], [origin], http10=False, reached=None)


def test_bound_to_everything_the_address_a_request_came_in_on_is_known() -> None:
    """A probe names the address of the pod; a name that merely points there stays foreign."""
    EVERYWHERE.judge([b"10.1.2.3:8081"], [], http10=False, reached="10.1.2.3")
    EVERYWHERE.judge([b"10.1.2.3:8081"], [], http10=False, reached="::ffff:10.1.2.3")
    EVERYWHERE.judge([b"[fd00::5]:8081"], [], http10=False, reached="fd00::5")
    for host in (b"10.1.2.4", b"0.0.0.0", b"rebound.example"):
        with pytest.raises(Forbidden):
            EVERYWHERE.judge([host], [], http10=False, reached="10.1.2.3")


def test_a_request_says_once_where_it_wants_to_go() -> None:
    for hosts in ([], [b"localhost", b"localhost"]):
        with pytest.raises(BadRequest):
            HOSTS.judge(hosts, [], http10=False, reached=None)
    with pytest.raises(BadRequest):
        HOSTS.judge([b"localhost"], [b"http://localhost", b"http://localhost"], http10=False, reached=None)
    HOSTS.judge([], [], http10=True, reached=None)
