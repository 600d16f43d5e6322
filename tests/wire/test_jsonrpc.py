"""Envelopes: what is decoded, what stays bytes, what is refused."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.wire import jsonrpc
from trunkline.wire.jsonrpc import (
    ErrorResponse,
    Malformed,
    Notification,
    Request,
    Response,
    decode,
    decode_all,
    elements,
    fields,
)

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8"))
)
trees = st.recursive(
    scalars,
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner),
    max_leaves=15,
)
spellings = st.sampled_from([{}, {"ensure_ascii": False}, {"indent": 1}, {"separators": (",", ":")}])


def as_json(tree: object, spelling: dict[str, Any]) -> bytes:
    return json.dumps(tree, **spelling).encode()


@given(trees, spellings, st.integers(0, 2**53) | st.text(st.characters(codec="utf-8")))
def test_a_result_stays_the_bytes_it_was(tree: object, spelling: dict[str, Any], identity: int | str) -> None:
    """R-30: no field is dropped, no number is rewritten, no space is lost."""
    result = as_json(tree, spelling)
    assert decode(jsonrpc.encode_result(identity, result)) == Response(identity, result)


@given(trees, spellings)
def test_parameters_stay_the_bytes_they_were(tree: object, spelling: dict[str, Any]) -> None:
    """R-30"""
    params = as_json(tree, spelling) if tree is not None else b"{}"
    assert decode(jsonrpc.encode_request(7, "tools/call", params)) == Request(7, "tools/call", params)
    assert decode(jsonrpc.encode_notification("x", params)) == Notification("x", params)


@given(st.dictionaries(st.text(st.characters(codec="utf-8")), trees, max_size=4), spellings)
def test_fields_are_the_members_of_an_object(tree: dict[str, object], spelling: dict[str, Any]) -> None:
    parts = fields(as_json(tree, spelling))
    assert {name: json.loads(value) for name, value in parts.items()} == tree


@given(st.lists(trees, max_size=4), spellings)
def test_elements_are_the_elements_of_an_array(tree: list[object], spelling: dict[str, Any]) -> None:
    assert [json.loads(value) for value in elements(as_json(tree, spelling))] == tree


@given(st.binary())
def test_any_bytes_are_a_message_or_malformed(data: bytes) -> None:
    with contextlib.suppress(Malformed):
        decode(data)


@pytest.mark.parametrize("depth", [900, 2_000, 10_000, 100_000])
def test_a_result_nested_ten_thousand_deep_passes(depth: int) -> None:
    """R-30: the decoder gives up on it, the gateway does not."""
    deep = b"[" * depth + b'"x"' + b"]" * depth
    assert decode(jsonrpc.encode_result(4, deep)) == Response(4, deep)
    assert fields(b'{"a": %b , "b":2}' % deep) == {"a": deep, "b": b"2"}
    assert elements(b"[%b, 1]" % deep) == [deep, b"1"]


def test_an_absurd_element_leaves_its_neighbours() -> None:
    """R-20"""
    deep = b'{"name":"bad","inputSchema":' + b'{"a":' * 5_000 + b"1" + b"}" * 5_001
    assert elements(b'[{"name":"good"},%b]' % deep) == [b'{"name":"good"}', deep]


def test_half_a_surrogate_pair_passes_as_it_was_written() -> None:
    """R-30: JavaScript writes this when it cuts a text inside an emoji, and it is JSON by the grammar."""
    result = rb'{"content":[{"type":"text","text":"cut \ud83d"}]}'
    assert decode(jsonrpc.encode_result(9, result)) == Response(9, result)
    assert fields(result)["content"] == rb'[{"type":"text","text":"cut \ud83d"}]'


def test_a_key_of_half_a_surrogate_pair_is_passed_over() -> None:
    assert fields(rb'{"\ud83d":1,"a":2}') == {"a": b"2"}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"jsonrpc":"2.0","id":3,"result":{}}', Response(3, b"{}")),
        (b'{"jsonrpc":"2.0","id":"3","result":{}}', Response("3", b"{}")),
        (b'{"result":null,"id":3}', Response(3, b"null")),
        (b'{"id":3,"result":{},"error":null}', Response(3, b"{}")),
        (b'{"id":3,"result":{},"method":null}', Response(3, b"{}")),
        (b'{"id":null,"error":{"code":-1,"message":"m"}}', ErrorResponse(None, -1, "m", None)),
        (b'{"id":3,"error":{"code":-1,"message":"m","data":[1]}}', ErrorResponse(3, -1, "m", b"[1]")),
        (b'{"method":"a","params":{"x":1}}', Notification("a", b'{"x":1}')),
        (b'{"method":"a"}', Notification("a", b"")),
        (b'{"id":0,"method":"a"}', Request(0, "a", b"")),
        (b'{"id":99999999999999999999999,"method":"a"}', Request(99999999999999999999999, "a", b"")),
        (b' \r\n{"id":1,"method":"a","unknown":[{}]} ', Request(1, "a", b"")),
    ],
)
def test_an_envelope_is_read(data: bytes, message: jsonrpc.Message) -> None:
    assert decode(data) == message


def test_seven_is_not_the_string_seven() -> None:
    """R-16"""
    assert decode(b'{"id":7,"result":1}') != decode(b'{"id":"7","result":1}')


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (b'{"code":-5,"message":null}', -5, "The server sent an error that cannot be read"),
        (b'{"code":"x","message":"why"}', jsonrpc.INTERNAL_ERROR, "why"),
        (rb'{"code":-5,"message":"\ud83d"}', -5, "The server sent an error that cannot be read"),
        (b'"just a text"', jsonrpc.INTERNAL_ERROR, "The server sent an error that cannot be read"),
    ],
)
def test_an_odd_error_is_still_an_error(error: bytes, code: int, message: str) -> None:
    """R-29"""
    assert decode(b'{"id":1,"error":%b}' % error) == ErrorResponse(1, code, message, None)


@pytest.mark.parametrize(
    "data",
    [
        b"", b"noise", b'"text"', b"[]", b"{", b'{"id":1}', b"{}", b'{"id":null,"method":"a"}',
        b'{"id":1.5,"result":1}', b'{"id":true,"result":1}', b'{"id":[1],"result":1}', b'{"id":1,"method":5}',
        b'{"id":1,"result":[1,]}', b'{"id":1,"result":01}', b'{"id":1,"result":NaN}', b'{"id":1,"result":1}x',
        b'{"id":1,"result":"\x01"}', b'{"id":1,"result":"\xff"}', rb'{"id":1,"result":"\x"}',
        b'{"id":1,"result":' + b"[" * 5000 + b"]" * 4999 + b"}",
        b'{"id":1,"result":' + b"[" * 5000 + b"}" * 5000 + b"}",
        rb'{"id":1,"method":"\ud83d"}',
    ],
)  # fmt: skip
def test_what_is_no_message_is_malformed(data: bytes) -> None:
    with pytest.raises(Malformed):
        decode(data)


def test_the_reason_quotes_nothing_of_the_message() -> None:
    """R-48"""
    with pytest.raises(Malformed) as caught:
        decode(b'{"id":1,"method":{"secret":"hunter2"}}')
    assert "hunter2" not in str(caught.value)


def test_a_batch_is_its_messages() -> None:
    batch = b' [{"id":1,"result":{}},\n{"method":"a"}]'
    assert decode_all(batch) == [Response(1, b"{}"), Notification("a", b"")]
    assert decode_all(b'{"id":1,"result":{}}') == [Response(1, b"{}")]


@given(st.text(st.characters(codec="utf-8")))
def test_encoded_errors_read_back(message: str) -> None:
    assert decode(jsonrpc.encode_error("k", -32601, message)) == ErrorResponse("k", -32601, message, None)


@pytest.mark.parametrize("data", [b"[]", b"1", b"", b'{"a":1,}', b'{"a" 1}', b"{a:1}"])
def test_fields_of_what_is_no_object_are_malformed(data: bytes) -> None:
    with pytest.raises(Malformed):
        fields(data)


@pytest.mark.parametrize("data", [b"{}", b"1", b"", b"[1,]", b"[1 2]", b"[", b"[1]]"])
def test_elements_of_what_is_no_array_are_malformed(data: bytes) -> None:
    with pytest.raises(Malformed):
        elements(data)
