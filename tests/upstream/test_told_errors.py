"""What is told of a server's JSON-RPC error: whole JSON, without secrets, and at a bounded price."""

import json
import time
from typing import Any

import pytest

from trunkline.model import MASK
from trunkline.telemetry import Redactor
from trunkline.upstream.told_errors import LARGEST_DATA, LONGEST_MESSAGE
from trunkline.upstream.wires import rpc_error
from trunkline.wire.jsonrpc import ErrorResponse

SECRET = "correct horse battery staple"


def told(data: bytes | None, message: str = "no") -> tuple[str, Any]:
    redactor = Redactor()
    redactor.learn("server", [SECRET])
    error = rpc_error(ErrorResponse(1, -32000, message, data), redactor)
    return error.message, None if error.data is None else json.loads(error.data)


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (None, None),
        (b"null", None),
        (b'{"tray": 2, "ok": true, "none": null, "ratio": 0.5}', "as it is"),
        (b'{"max_tokens":100,"password":{"min":8}}', {"max_tokens": 100, "password": {"min": MASK}}),
        (b'{"password":"x","apiKey":["a",{"b":"c"}]}', {"password": MASK, "apiKey": [MASK, {"b": MASK}]}),
        (b'{"pin_token":1234,"Cookie":"a=b","cookies":2}', {"pin_token": MASK, "Cookie": MASK, "cookies": 2}),
        (f'["with {SECRET}", "Bearer abcdefgh"]'.encode(), [f"with {MASK}", f"Bearer {MASK}"]),
        (f'{{"{SECRET}": "x"}}'.encode(), {MASK: "x"}),
        (b'"password=\\"a\\", \\"b\\""', f'password="{MASK}", "b"'),
        (b'["half \\ud83d of a pair", 1e999, {"a": {}}, -2.50]', "as it is"),
        (
            b'{"token":{},"a":[{"secret":null},"b"],"secret_tokens":"c","d":[]}',
            {"token": {}, "a": [{"secret": None}, "b"], "secret_tokens": MASK, "d": []},
        ),
    ],
)
def test_data_stays_json_when_secrets_are_taken_out(data: bytes | None, shown: Any) -> None:
    """R-29: the data comes with the answer. R-48: a credential does not."""
    assert told(data)[1] == (json.loads(data or b"") if shown == "as it is" else shown)


@pytest.mark.parametrize(
    "data",
    [
        b"{",
        b'{"a": NaN}',
        b"[" * 20_000 + b"]" * 20_000,
        json.dumps([f"text {n}" for n in range(1001)]).encode(),
        b'["\xff"]',
    ],
)
def test_data_that_cannot_be_looked_through_is_left_out_with_a_note(data: bytes) -> None:
    assert "left out" in told(data)[1]


def test_what_is_told_and_what_it_costs_is_bounded() -> None:
    """A server's error of 15 MB must not hold up the calls to all the others."""
    text = "token=abcdefgh " * 1_000_000
    began = time.thread_time()
    message, data = told(json.dumps(text).encode(), text)
    assert time.thread_time() - began < 0.5
    assert str(LARGEST_DATA) in data
    assert len(message) == LONGEST_MESSAGE + 1
    assert "abcdefgh" not in message


def test_a_secret_is_not_cut_in_half_where_a_message_ends() -> None:
    for start in range(LONGEST_MESSAGE - 40, LONGEST_MESSAGE + 8):
        message, _ = told(None, "x" * start + SECRET + "y" * LONGEST_MESSAGE)
        assert "correct" not in message
    assert told(None, "x" * (2 * LONGEST_MESSAGE) + SECRET)[0] == "x" * LONGEST_MESSAGE + "…"
