"""What a body must be before a route looks at it: JSON, said to be JSON, and not absurd.

Its size and the time it may take are `connections.py`'s; what it means is for the route to say.
"""

from collections.abc import Iterable

import msgspec

from trunkline.errors import FieldError, ValidationError

DEEPEST = 64
"""Levels of nesting taken in a body of the admin API; arguments of a call are not looked into."""


def require_json_type(content_type: bytes | None) -> None:
    """A body may leave its type out; one of another type is refused rather than guessed at."""
    if content_type is None:
        return
    kind = content_type.split(b";", 1)[0].strip().lower()
    if kind != b"application/json" and not (kind.startswith(b"application/") and kind.endswith(b"+json")):
        raise ValidationError.at(
            "header", "content-type", msg="The body must be JSON, sent as Content-Type: application/json"
        )


def bad_json(error: Exception) -> ValidationError:
    """`error` is what the decoder raised; RecursionError is its word for nested too deeply."""
    reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
    return ValidationError([FieldError(("body",), f"JSON decode error: {reason}", "json_invalid")])


def read_json(body: bytes) -> object:
    """Raises `ValidationError` for what is no JSON, holds text that is no Unicode, or is absurdly deep."""
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise bad_json(error) from None
    level = [found]
    for _ in range(DEEPEST):
        level = [child for node in level for child in _children(node)]
        if not level:
            return found
    raise bad_json(RecursionError())


def _children(node: object) -> Iterable[object]:
    if isinstance(node, dict):
        return node.values()
    return node if isinstance(node, list) else ()
