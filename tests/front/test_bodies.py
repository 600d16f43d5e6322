"""What a body must be: JSON, and not nested without end."""

import pytest

from trunkline.errors import ValidationError
from trunkline.front.bodies import DEEPEST, read_json


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (b"{}", {}),
        (b' [1, 1.5, "\xc3\xa9", null, true] ', [1, 1.5, "é", None, True]),
        (b'{"a":1,"a":2}', {"a": 2}),
        (b'"\\ud83d\\ude00"', "😀"),
    ],
)
def test_a_body_is_decoded(body: bytes, found: object) -> None:
    assert read_json(body) == found


def test_a_body_may_be_nested_so_deeply_and_no_deeper() -> None:
    assert read_json(b"[" * DEEPEST + b"]" * DEEPEST)
    with pytest.raises(ValidationError, match="nested too deeply"):
        read_json(b"[" * (DEEPEST + 1) + b"]" * (DEEPEST + 1))
    with pytest.raises(ValidationError, match="nested too deeply"):
        read_json(b'{"a":' * (DEEPEST + 1) + b"1" + b"}" * (DEEPEST + 1))


@pytest.mark.parametrize(
    "body", [b"", b" ", b"{", b"{} x", b"\xff", b"NaN", b"1e999", b'"\\ud800"', b"[" * 90_000]
)
def test_what_is_no_json_is_refused(body: bytes) -> None:
    with pytest.raises(ValidationError) as refused:
        read_json(body)
    assert [(fault.loc, fault.type) for fault in refused.value.faults] == [(("body",), "json_invalid")]
