"""Splits one level of JSON without recursion, for documents that a decoder will not take.

Two kinds of JSON are by the grammar and yet refused: nested too deeply, and strings with half of a
surrogate pair, as JavaScript writes when it cuts a text inside an emoji. `jsonrpc.py` falls back to this
so that they pass as the bytes they are. It checks the whole grammar, since what it cuts out is sent on.
"""

import re
from collections.abc import Iterator

_TOKEN = re.compile(
    rb"""[ \t\r\n]*+(?:
        (?P<opening>[\[{])
      | (?P<closing>[\]}])
      | (?P<comma>,)
      | (?P<colon>:)
      | (?P<string>"[^"\\\x00-\x1f]*+(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*+)*+")
      | (?P<scalar>-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?|true|false|null)
    )[ \t\r\n]*+""",
    re.VERBOSE,
)
_PARTNER = {b"]": b"[", b"}": b"{"}
_VALUE, _KEY, _COLON, _NEXT = "a value", "a key", "a colon", "a comma or the end"

MOST_TOKENS = 500_000
"""What is larger is refused: reading this way is slow, and a server must not stall the gateway with it."""


class NotSplittable(ValueError):
    """The bytes are not one object or array by the grammar of JSON, or have too many parts."""


def members(data: bytes, most_tokens: int = MOST_TOKENS) -> Iterator[tuple[bytes, bytes]]:
    """(key with its quotes, value) of each member of an object."""
    pieces = iter(_pieces(data, b"{", most_tokens))
    return zip(pieces, pieces, strict=True)


def elements(data: bytes) -> Iterator[bytes]:
    """Each element of an array."""
    return iter(_pieces(data, b"[", MOST_TOKENS))


def _pieces(data: bytes, outermost: bytes, most_tokens: int) -> list[bytes]:
    """The keys and values of the outermost level, in turn."""
    pieces: list[bytes] = []
    around: list[bytes] = []
    expected, may_close = _VALUE, False
    position = start = 0
    for _ in range(most_tokens):
        token = _TOKEN.match(data, position)
        if token is None:
            raise NotSplittable(f"{expected} is missing at byte {position}")
        kind = token.lastgroup or ""
        mark = token[kind]
        if not around and mark != outermost:
            raise NotSplittable(f"it does not begin with {outermost.decode()}")
        if len(around) == 1 and expected in (_VALUE, _KEY):
            start = token.start(kind)
        if kind == "opening" and expected == _VALUE:
            around.append(mark)
            expected, may_close = (_KEY if mark == b"{" else _VALUE), True
        elif kind == "closing" and may_close and around[-1] == _PARTNER[mark]:
            around.pop()
            expected, may_close = _NEXT, True
        elif kind == "comma" and expected == _NEXT:
            expected, may_close = (_KEY if around[-1] == b"{" else _VALUE), False
        elif kind == "colon" and expected == _COLON:
            expected, may_close = _VALUE, False
        elif kind == "string" and expected == _KEY:
            expected, may_close = _COLON, False
        elif kind in ("string", "scalar") and expected == _VALUE:
            expected, may_close = _NEXT, True
        else:
            raise NotSplittable(f"{expected} is missing at byte {position}")
        if not around:
            return _whole(data, token.end(), pieces)
        if len(around) == 1 and expected in (_NEXT, _COLON):
            pieces.append(data[start : token.end(kind)])
        position = token.end()
    raise NotSplittable(f"more than {most_tokens} parts")


def _whole(data: bytes, position: int, pieces: list[bytes]) -> list[bytes]:
    if position != len(data):
        raise NotSplittable("something follows the end")
    return pieces
