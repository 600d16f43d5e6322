"""Whatever a client sends, the answer is its own fault and says so: no status of 500 and above."""

import json

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

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
