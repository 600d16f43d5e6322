"""Takes in a request body: whole, within a size and a time, or not at all.

Both limits hold on every route, because `asgi.py` reads every body here before anything else looks at it.
What a body means is for the route to say; only that it is JSON, where one was sent, is seen to here.
"""

import asyncio
from collections.abc import Iterable

import msgspec

from trunkline.errors import FieldError, PayloadTooLarge, RequestTimeout, ValidationError
from trunkline.front.answers import Message, Receive

DEEPEST = 64
"""Levels of nesting taken in a body of the admin API; arguments of a call are not looked into."""


class ClientGone(Exception):
    """The client went away; nobody is left to answer."""


async def read_body(receive: Receive, declared: bytes | None, *, limit: int, seconds: float) -> bytes:
    """Raises `PayloadTooLarge`, `RequestTimeout`, `ClientGone`."""
    if declared is not None and len(declared) <= 20 and declared.isdigit() and int(declared) > limit:
        raise _too_large(limit)
    try:
        async with asyncio.timeout(seconds):
            message = await receive()
            if not message.get("more_body"):
                return _piece(message, 0, limit)
            pieces = [_piece(message, 0, limit)]
            size = len(pieces[0])
            while message.get("more_body"):
                message = await receive()
                pieces.append(_piece(message, size, limit))
                size += len(pieces[-1])
            return b"".join(pieces)
    except TimeoutError:
        raise RequestTimeout(f"The request body did not arrive within {seconds:g} seconds") from None


def _piece(message: Message, so_far: int, limit: int) -> bytes:
    if message["type"] == "http.disconnect":
        raise ClientGone
    piece: bytes = message.get("body", b"")
    if so_far + len(piece) > limit:
        raise _too_large(limit)
    return piece


def _too_large(limit: int) -> PayloadTooLarge:
    return PayloadTooLarge(
        f"The request body is larger than {limit} bytes, the limit MCP_AGGREGATOR_BODY_LIMIT sets",
        context={"limit": limit},
    )


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


def require_json(body: bytes) -> None:
    """Raises `ValidationError` for what is no JSON, holds text that is no Unicode, or is absurdly deep."""
    try:
        level = [msgspec.json.decode(body)]
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise bad_json(error) from None
    for _ in range(DEEPEST):
        level = [child for node in level for child in _children(node)]
        if not level:
            return
    raise bad_json(RecursionError())


def _children(node: object) -> Iterable[object]:
    if isinstance(node, dict):
        return node.values()
    return node if isinstance(node, list) else ()
