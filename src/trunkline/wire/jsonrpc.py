"""JSON-RPC envelopes: bytes in, values out, with `params` and `result` left as the bytes they were.

Pure: no socket, no clock. Decoding stops at the envelope, which is what keeps results unchanged and the
call path cheap; whoever needs more takes `fields()` and `elements()`, one level at a time. What is JSON
and yet too much for the decoder goes through `shallow.py`, so that it too arrives as it was.
"""

import contextlib

import msgspec

from trunkline.wire import shallow

RpcId = int | str

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603


class Malformed(ValueError):
    """Not a JSON-RPC message; the text says what is wrong and quotes nothing."""


class _Envelope(msgspec.Struct):
    id: int | str | msgspec.UnsetType | None = msgspec.UNSET
    method: str | msgspec.UnsetType | None = msgspec.UNSET
    params: msgspec.Raw = msgspec.Raw(b"")
    result: msgspec.Raw = msgspec.Raw(b"")
    error: msgspec.Raw = msgspec.Raw(b"")


class Response(msgspec.Struct, frozen=True):
    id: RpcId | None
    result: bytes


class ErrorResponse(msgspec.Struct, frozen=True):
    id: RpcId | None
    code: int
    message: str
    data: bytes | None


class Request(msgspec.Struct, frozen=True):
    id: RpcId
    method: str
    params: bytes


class Notification(msgspec.Struct, frozen=True):
    method: str
    params: bytes


Message = Response | ErrorResponse | Request | Notification

_NULL = msgspec.Raw(b"null")
"""Some servers send `"error":null` beside a result: the JSON-RPC before 2.0 wanted it."""

_envelopes = msgspec.json.Decoder(_Envelope)
_objects = msgspec.json.Decoder(dict[str, msgspec.Raw])
_arrays = msgspec.json.Decoder(list[msgspec.Raw])
_strings = msgspec.json.Decoder(str)
_integers = msgspec.json.Decoder(int)


def decode(data: bytes) -> Message:
    """One message. Raises `Malformed`."""
    if not data.isascii():
        _require_utf8(data)
    try:
        envelope = _envelopes.decode(data)
    except msgspec.ValidationError as error:
        raise Malformed(f"not a JSON-RPC message: {error}") from None
    except (msgspec.DecodeError, RecursionError):
        envelope = _decode_shallow(data)
    return _classify(envelope)


def decode_all(data: bytes) -> list[Message]:
    """One message, or the several of a batch (which revision 2025-03-26 allowed)."""
    if not data.lstrip(b" \t\r\n").startswith(b"["):
        return [decode(data)]
    return [decode(part) for part in elements(data)]


def _classify(envelope: _Envelope) -> Message:
    method, identity = envelope.method, envelope.id
    if isinstance(method, str):
        params = bytes(envelope.params)
        if identity is msgspec.UNSET:
            return Notification(method, params)
        if not isinstance(identity, int | str):
            raise Malformed("a request with a null id")
        return Request(identity, method, params)
    answered = identity if isinstance(identity, int | str) else None
    if envelope.error and envelope.error != _NULL:
        return _error(answered, bytes(envelope.error))
    if not envelope.result:
        raise Malformed("neither a method nor a result nor an error")
    return Response(answered, bytes(envelope.result))


def _error(identity: RpcId | None, raw: bytes) -> ErrorResponse:
    """As much of the error as can be read: a call has failed, however badly that was said."""
    try:
        parts = fields(raw)
    except Malformed:
        parts = {}
    code, message = INTERNAL_ERROR, "The server sent an error that cannot be read"
    with contextlib.suppress(KeyError, msgspec.DecodeError):
        code = _integers.decode(parts["code"])
    with contextlib.suppress(KeyError, msgspec.DecodeError):
        message = _strings.decode(parts["message"])
    return ErrorResponse(identity, code, message, parts.get("data"))


def _decode_shallow(data: bytes) -> _Envelope:
    try:
        parts = _split_members(data)
    except shallow.NotSplittable:
        raise Malformed("not JSON") from None
    envelope = _Envelope()
    for name in ("params", "result", "error"):
        if name in parts:
            setattr(envelope, name, msgspec.Raw(parts[name]))
    try:
        if "id" in parts:
            envelope.id = msgspec.json.decode(parts["id"], type=int | str | None)
        if "method" in parts:
            envelope.method = _strings.decode(parts["method"])
    except (msgspec.DecodeError, RecursionError):
        raise Malformed("not a JSON-RPC message") from None
    return envelope


def fields(data: bytes, *, most_tokens: int = shallow.MOST_TOKENS) -> dict[str, bytes]:
    """The members of an object, each value as its bytes. Raises `Malformed`.

    `most_tokens` bounds the slow way, which is for what the decoder does not take.
    """
    try:
        return {name: bytes(value) for name, value in _objects.decode(data).items()}
    except (msgspec.DecodeError, RecursionError):
        pass
    try:
        return _split_members(data, most_tokens)
    except shallow.NotSplittable as error:
        raise Malformed(f"not a JSON object: {error}") from None


def _split_members(data: bytes, most_tokens: int = shallow.MOST_TOKENS) -> dict[str, bytes]:
    """Members whose key is no valid text are left out: nobody can ask for them."""
    parts: dict[str, bytes] = {}
    for key, value in shallow.members(data, most_tokens):
        with contextlib.suppress(msgspec.DecodeError):
            parts[_strings.decode(key)] = value
    return parts


def elements(data: bytes) -> list[bytes]:
    """The elements of an array, each as its bytes. Raises `Malformed`."""
    try:
        return [bytes(value) for value in _arrays.decode(data)]
    except (msgspec.DecodeError, RecursionError):
        pass
    try:
        return list(shallow.elements(data))
    except shallow.NotSplittable:
        raise Malformed("not a JSON array") from None


def _require_utf8(data: bytes) -> None:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        raise Malformed("not UTF-8") from None


def quote(text: str) -> bytes:
    """A JSON string."""
    return msgspec.json.encode(text)


def encode_request(identity: RpcId, method: str, params: bytes) -> bytes:
    return b'{"jsonrpc":"2.0","id":%b,"method":%b,"params":%b}' % (
        msgspec.json.encode(identity),
        quote(method),
        params or b"{}",
    )


def encode_notification(method: str, params: bytes = b"") -> bytes:
    if not params:
        return b'{"jsonrpc":"2.0","method":%b}' % quote(method)
    return b'{"jsonrpc":"2.0","method":%b,"params":%b}' % (quote(method), params)


def encode_result(identity: RpcId, result: bytes) -> bytes:
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (msgspec.json.encode(identity), result)


def encode_error(identity: RpcId | None, code: int, message: str, data: bytes | None = None) -> bytes:
    body = b'{"code":%d,"message":%b%b}' % (code, quote(message), b',"data":' + data if data else b"")
    return b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (msgspec.json.encode(identity), body)
