"""Lines out of a stream, however it is cut, and what becomes of one that is too long."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.wire.lines import LineSplitter, Oversized, answered_by, later_starts

LIMIT = 200

line = st.one_of(
    st.binary(max_size=60).map(lambda data: data.replace(b"\n", b"")),
    st.integers(LIMIT, 4 * LIMIT).map(lambda size: b'{"jsonrpc":"2.0","id":7,"result":"%b"}' % (b"x" * size)),
    st.sampled_from([b"", b"\r", b"  ", b"{}\r"]),
)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    ends = sorted({place % (len(data) + 1) for place in places} | {len(data)})
    return [data[start:end] for start, end in zip([0, *ends], ends, strict=False)]


@given(
    st.lists(line),
    st.binary(max_size=40).map(lambda data: data.replace(b"\n", b"")),
    st.lists(st.integers(0)),
)
def test_lines_do_not_depend_on_how_the_stream_is_cut(
    lines: list[bytes], rest: bytes, places: list[int]
) -> None:
    stream = b"".join(each + b"\n" for each in lines) + rest
    splitter = LineSplitter(LIMIT)
    found = [each for chunk in cut(stream, places) for each in splitter.feed(chunk)]
    assert found == [
        Oversized(len(each), 7) if len(each) > LIMIT else each.strip(b" \t\r")
        for each in lines
        if len(each) > LIMIT or each.strip(b" \t\r")
    ]
    assert splitter.rest() == rest


@given(st.integers(LIMIT - 2, LIMIT + 2))
def test_the_limit_is_exact(size: int) -> None:
    found = LineSplitter(LIMIT).feed(b"x" * size + b"\n")
    assert found == [b"x" * size if size <= LIMIT else Oversized(size, None)]


def test_the_start_of_a_line_too_long_is_no_rest() -> None:
    splitter = LineSplitter(LIMIT)
    assert splitter.feed(b"x" * (LIMIT + 1)) == []
    assert splitter.rest() == b""


LONG = b'{"content":[{"id":99,"a":"%b"}],"id":98}' % (b"y" * 2000)


@pytest.mark.parametrize(
    ("data", "probable", "asked"),
    [
        (b'{"jsonrpc":"2.0","id":5,"result":%b}' % LONG, 5, None),
        (b' { "id" : 5 , "result":%b}' % LONG, 5, None),
        (b'{"jsonrpc":"2.0","result":%b,"id":5}' % LONG, 5, None),
        (b'{"result":%b,"id":5,"jsonrpc":"2.0" } ' % LONG, 5, None),
        (b'{"jsonrpc":"2.0","result":%b}' % LONG, None, None),
        (b'{"jsonrpc":"2.0","id":5,"method":"sampling/createMessage","params":%b}' % LONG, None, 5),
        (b'{"id":5,"params":%b,"method":"sampling/createMessage"}' % LONG, None, 5),
        (b'{"method":"notifications/message","params":{"id":5,"data":%b}}' % LONG, None, None),
        (b'{"jsonrpc":"2.0","id":"5","result":%b}' % LONG, None, None),
        (b'{"jsonrpc":"2.0","id":-5,"result":%b}' % LONG, None, None),
        (b'{"jsonrpc":"2.0","id":"a-7","method":"tools/call","params":%b}' % LONG, None, "a-7"),
        (b'{"method":"tools/call","params":%b,"id":7}' % LONG, None, 7),
        (b"noise " * 500 + b'{"id":5}', None, None),
    ],
)
def test_a_message_too_long_is_ascribed_only_to_the_call_it_answers(
    data: bytes, probable: int | None, asked: int | str | None
) -> None:
    """R-16: an id in the content, or in a request of the server's own, is not ours."""
    assert LineSplitter(1000).feed(data + b"\n") == [Oversized(len(data), probable, asked)]


def test_ten_mebibytes_in_small_chunks_cost_no_more_than_a_copy() -> None:
    """R-30: a line of 10 MiB passes whole; quadratic work would take many seconds."""
    data = b"x" * (10 << 20)
    splitter = LineSplitter(16 << 20)
    before = time.process_time()
    found = [
        each for start in range(0, len(data), 4096) for each in splitter.feed(data[start : start + 4096])
    ]
    found += splitter.feed(b"\n{}\n")
    assert time.process_time() - before < 1
    assert found == [data, b"{}"]


@pytest.mark.parametrize(
    ("broken", "identity"),
    [
        (b'{"jsonrpc":"2.0","id":5,"resu', 5),
        (b'{"jsonrpc": "2.0", "id": 5, "result": {"a": ', 5),
        (b'{"id":5,"error":{', 5),
        (b'{"id":5,"error":null}', 5),
        (b'{"jsonrpc":"2.0","id":5', None),
        (b'{"jsonrpc":"2.0","id":5,"method":"roots/li', None),
        (b'{"jsonrpc":"2.0","method":"x","id":5,"r', None),
        (b'{"jsonrpc":"2.0","id":"5","result":', None),
        (b'{"jsonrpc":"2.0","result":{"id":5,', None),
        (b"[1,2", None),
        (b"", None),
    ],
)
def test_a_broken_answer_is_told_by_its_id(broken: bytes, identity: int | None) -> None:
    assert answered_by(broken) == identity


def test_a_message_is_looked_for_behind_the_start_of_a_broken_line() -> None:
    assert later_starts(b'{"jsonrpc":"2.0","id":5,"resu{ "jsonrpc" :"2.0"}') == [29]
    assert len(later_starts(b'{"jsonrpc":' * 1000)) == 8
