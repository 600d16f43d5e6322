"""What is told of a server's JSON-RPC error: its message and its data, bounded and then redacted.

Bounded first, because an error can have any size and redacting holds up the whole gateway; and the data stays
JSON, because it becomes part of our own answer. Every wire's errors go through here.
"""

import json
import re

from trunkline.model import MASK
from trunkline.ports import Redact
from trunkline.telemetry import tells_of_secret
from trunkline.wire import jsonrpc

LONGEST_MESSAGE = 8 * 1024
LARGEST_DATA = 64 * 1024
_MARGIN = 4 * 1024
"""Read beyond what is shown and never shown itself: a secret cut in half there would not be recognised."""
_MOST_TEXTS = 1000

_JSON_TOKEN = re.compile(
    r"""(?P<key>"(?:[^"\\]|\\.)*+"(?=\s*+:))|(?P<text>"(?:[^"\\]|\\.)*+")|(?P<number>-?\d[\d.eE+-]*)"""
    r"|(?P<opening>[\[{])|(?P<closing>[\]}])"
)
"""Of a text that is JSON for certain."""


def told_message(message: str, redact: Redact) -> str:
    read = message[: LONGEST_MESSAGE + _MARGIN]
    shown = redact(read)
    if len(read) < len(message):
        shown = shown[:-_MARGIN]
    return shown if len(message) <= LONGEST_MESSAGE else f"{shown[:LONGEST_MESSAGE]}…"


def told_data(data: bytes | None, redact: Redact) -> bytes | None:
    if data is None:
        return None
    if len(data) > LARGEST_DATA:
        return jsonrpc.quote(
            f"The server's data ({len(data)} bytes) is left out: at most {LARGEST_DATA} are shown"
        )
    try:
        return _RedactedJson(redact, most_texts=_MOST_TEXTS)(data)
    except (ValueError, RecursionError):
        return jsonrpc.quote("The server's data is left out: secrets in it could not be looked for")


class _RedactedJson:
    """A JSON document that stays one: its texts are redacted, and what stands under a telling key masked.

    Everything else stays the bytes it was. `most_texts` bounds the work: every different text is compared
    with every secret that is known.
    """

    def __init__(self, redact: Redact, *, most_texts: int) -> None:
        self._redact = redact
        self._left = most_texts
        self._seen: dict[str, str] = {}
        self._depth = 0
        self._hidden_from: int | None = None
        """The depth of the object or list under a telling key."""
        self._telling = ""
        """The key of the next value, if it tells of a secret."""

    def __call__(self, data: bytes) -> bytes:
        """Raises `ValueError` or `RecursionError` for what is no JSON, or has too many texts in it."""
        text = data.decode()
        json.loads(text, parse_constant=_no_constant)
        return _JSON_TOKEN.sub(self._shown, text).encode()

    def _shown(self, token: re.Match[str]) -> str:
        mark, kind = token[0], token.lastgroup
        if kind == "key":
            self._telling = mark if tells_of_secret(json.loads(mark)) else ""
            return self._text(mark)
        telling, self._telling = self._telling, ""
        if kind == "opening":
            self._depth += 1
            if telling and self._hidden_from is None:
                self._hidden_from = self._depth
        elif kind == "closing":
            if self._hidden_from == self._depth:
                self._hidden_from = None
            self._depth -= 1
        elif self._hidden_from is not None or (telling and not _counts_tokens(telling, kind)):
            return json.dumps(MASK)
        elif kind == "text":
            return self._text(mark)
        return mark

    def _text(self, quoted: str) -> str:
        if quoted not in self._seen:
            self._left -= 1
            if self._left < 0:
                raise ValueError("too many texts")
            text = json.loads(quoted)
            shown = self._redact(text)
            self._seen[quoted] = quoted if shown == text else json.dumps(shown)
        return self._seen[quoted]


def _counts_tokens(key: str, kind: str | None) -> bool:
    """A number of tokens is a measure and no secret."""
    return kind == "number" and key.lower().endswith('tokens"')


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is no JSON")
