"""The splitter agrees with a real parser, and is neither slow nor deep on what is built to hurt it."""

import json
import time
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.wire import shallow
from trunkline.wire.shallow import NotSplittable

pieces_of_json = st.lists(
    st.sampled_from(
        ["{", "}", "[", "]", ",", ":", '"a"', '"\\""', '"\\ud800"', '"[,"', "1", "-0.5e+3", "01", "true",
         "nul", " ", "\n", '"', "\\", "\x01", "é"]
    ),
    max_size=25,
)  # fmt: skip


def split(data: bytes) -> object:
    if data.lstrip().startswith(b"["):
        return [json.loads(element) for element in shallow.elements(data)]
    pairs = list(shallow.members(data))
    return {json.loads(key): json.loads(value) for key, value in pairs}


@given(pieces_of_json)
def test_it_takes_what_a_parser_takes_and_nothing_else(pieces: list[str]) -> None:
    text = "".join(pieces)
    try:
        expected = json.loads(text, parse_constant=_refuse)
    except ValueError:
        expected = None
    if isinstance(expected, dict | list):
        assert split(text.encode()) == expected
    else:
        with pytest.raises(NotSplittable):
            list(shallow.members(text.encode()))
        with pytest.raises(NotSplittable):
            list(shallow.elements(text.encode()))


def _refuse(name: str) -> None:
    raise ValueError(name)


def test_brackets_of_the_wrong_kind_are_refused_at_any_depth() -> None:
    for data in (b'{"a":[}]', b'{"a":[[}]}', b'{"a":' + b"[" * 5000 + b"}" * 5000 + b"}"):
        with pytest.raises(NotSplittable):
            list(shallow.members(data))


@pytest.mark.parametrize(
    "data",
    [
        b"[" * 4_000_000,
        b"[[" + b"[]," * 2_000_000,
        b"[" * 2000 + b'"' + b'\\"' * 2_000_000,
        b"[" * 2000 + b" " * 4_000_000,
        b"[" * 2000 + b'"' + b"\\" * 4_000_001,
        b"[" * 2000 + b"1" * 4_000_000 + b"x",
    ],
    ids=["open", "pairs", "quotes", "spaces", "backslashes", "digits"],
)
def test_what_is_built_to_be_slow_is_refused_soon(data: bytes) -> None:
    """Quadratic work here took minutes; two seconds leave room for a busy machine."""
    assert _seconds(lambda: _refused(data)) < 2


def _refused(data: bytes) -> None:
    with pytest.raises(NotSplittable):
        list(shallow.elements(data))


def _seconds(work: Callable[[], None]) -> float:
    before = time.process_time()
    work()
    return time.process_time() - before
