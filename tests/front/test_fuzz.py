"""Whatever a client sends, the answer is its own fault and says so: no status of 500 and above."""

import json
from collections.abc import Sequence
from urllib.parse import quote_from_bytes

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from yarl import URL

from tests.front.conftest import Running

SERVERS = "/api/v1/aggregator/servers"
BOUNDED = settings(
    max_examples=300,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

text = st.text(max_size=20) | st.sampled_from(
    ["", "\x00", "\ud800", "é", "a" * 300, "echo.echo", "../..", "${HOME}"]
)
leaf = st.none() | st.booleans() | st.integers() | st.floats() | text
anything = st.recursive(
    leaf, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3)
)
mutation = st.sampled_from([b"", b"{", b"\xff", b"\x00", b",", b'"', b"\\ud800", b"[" * 2000, b"1e999"])


def spelled(value: object, at: int, inserted: bytes) -> bytes:
    whole = json.dumps(value).encode()
    at %= len(whole) + 1
    return whole[:at] + inserted + whole[at:]


def bodies(shape: st.SearchStrategy[object]) -> st.SearchStrategy[bytes]:
    return st.builds(spelled, shape | anything, st.integers(0, 10_000), mutation) | st.binary(max_size=60)


def some_of(**known: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return st.fixed_dictionaries({}, optional={name: kind | anything for name, kind in known.items()})


def quoted(value: str) -> str:
    """As part of a target; half a surrogate pair is sent as the bytes that no UTF-8 has."""
    return quote_from_bytes(value.encode("utf-8", "surrogatepass"), safe="")


ROUTES: list[tuple[str, str, st.SearchStrategy[object]]] = [
    (
        "POST",
        SERVERS,
        some_of(
            name=st.sampled_from(["a", "Bad.Name"]),
            transport_type=st.sampled_from(["http", "SSE", "pigeon"]),
            connection_config=some_of(base_url=st.just("http://127.0.0.1:9/"), url=text, headers=anything),
            description=text,
            health_check_url=text,
            auto_connect=st.just(False),
            surprise=anything,
        ),
    ),
    (
        "PATCH",
        f"{SERVERS}/one",
        some_of(description=text, connection_config=some_of(base_url=text), health_check_url=text, name=text),
    ),
    ("POST", f"{SERVERS}/one/disconnect", some_of(force=st.booleans())),
    ("POST", f"{SERVERS}/one/connect", some_of(force=st.booleans())),
    (
        "POST",
        "/api/v1/aggregator/keys",
        some_of(name=text, scope=st.sampled_from(["read", "ROOT"]), expires_in_days=st.integers()),
    ),
    (
        "POST",
        "/api/v1/tools/call",
        some_of(name=text, arguments=st.dictionaries(text, leaf, max_size=2), server_id=text),
    ),
]
PAGE = ("limit", "offset")
NAMES = {
    SERVERS: (*PAGE, "status", "include_tools"),
    f"{SERVERS}/one/history": ("limit",),
    "/api/v1/aggregator/keys": PAGE,
    "/api/v1/aggregator/audit": (*PAGE, "event", "server", "actor", "since"),
    "/api/v1/tools": (*PAGE, "server"),
    **dict.fromkeys(
        (f"{SERVERS}/one", "/api/v1/aggregator/state", "/api/v1/tools/x", "/health", "/metrics", "/nothing"),
        PAGE,
    ),
}
MEANT = {
    **dict.fromkeys(PAGE, ("1", "-1", "9" * 30, "9" * 5000, "1e3", "1.5")),
    "since": ("2020-01-01", "2020-01-01T00:00:00\x00", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59-14"),
    "status": ("connected", "BLUE"),
    "include_tools": ("yes", "2"),
}
"""What is nearly right, and finds more than chance does."""


def queries(names: Sequence[str]) -> st.SearchStrategy[str]:
    known = st.sampled_from(names).flatmap(
        lambda name: (st.sampled_from(MEANT.get(name, ("one",))) | text).map(
            lambda value: f"{name}={quoted(value)}"
        )
    )
    strange = st.builds("{}={}".format, text.map(quoted), text.map(quoted)) | text.map(quoted)
    return (st.lists(known, max_size=3) | st.lists(known | strange, max_size=4)).map("&".join)


segments = st.lists(
    st.sampled_from(["api", "v1", "aggregator", "servers", "one", "tools", "keys", "call", "", ".", ".."])
    | text.map(quoted),
    max_size=7,
).map("/".join)


@pytest.fixture
async def fuzzed(front: Running) -> Running:
    body = {
        "name": "one",
        "transport_type": "HTTP",
        "connection_config": {"base_url": "http://127.0.0.1:9/"},
        "auto_connect": False,
    }
    assert (await front.ask("POST", SERVERS, json=body))[0] == 201
    return front


async def answered(front: Running, method: str, target: str, body: bytes | None = None) -> int:
    """The status, of an answer that says whose fault it was and shows nothing of ours."""
    url = URL(front.url + target, encoded=True)
    headers = {**front.bearer(), "Content-Type": "application/json"}
    async with front.client.request(method, url, data=body, headers=headers) as answer:
        said = await answer.read()
        assert b"Traceback" not in said
        assert answer.status < 500 or b'"SERVER_UNAVAILABLE"' in said, (method, target, body, said)
        if answer.status >= 400 and method != "HEAD":
            assert json.loads(said)["error_code"]
        return answer.status


@BOUNDED
@given(st.data())
async def test_no_body_is_our_fault(fuzzed: Running, data: st.DataObject) -> None:
    method, path, shape = data.draw(st.sampled_from(ROUTES))
    await answered(fuzzed, method, path, data.draw(bodies(shape)))


async def test_nothing_nearly_right_is_our_fault(fuzzed: Running) -> None:
    for path, known in NAMES.items():
        for name in known:
            for value in (*MEANT.get(name, ("one",)), "", "\x00", "\ud800"):
                await answered(fuzzed, "GET", f"{path}?{name}={quoted(value)}")


@pytest.mark.parametrize("path", NAMES)
@settings(BOUNDED, max_examples=100)
@given(st.data())
async def test_no_query_is_our_fault(fuzzed: Running, path: str, data: st.DataObject) -> None:
    await answered(fuzzed, "GET", f"{path}?{data.draw(queries(NAMES[path]))}")


@BOUNDED
@given(st.sampled_from(["GET", "HEAD", "POST", "PUT", "PATCH", "OPTIONS"]), segments)
async def test_no_path_is_our_fault(fuzzed: Running, method: str, path: str) -> None:
    await answered(fuzzed, method, f"/{path}")
