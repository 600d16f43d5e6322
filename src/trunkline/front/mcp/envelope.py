"""What a client posts, read as far as a front must know it: one message, and the envelope of its era.

Pure. Parameters stay bytes; only their first level is split, once. Whatever is wrong with a message is an
`RpcFailure` with the code the specification names for it.
"""

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import msgspec

from trunkline.front.exchange import Headers
from trunkline.wire import eras, jsonrpc
from trunkline.wire.jsonrpc import RpcId

STATUS_OF = {
    jsonrpc.PARSE_ERROR: 400,
    jsonrpc.INVALID_REQUEST: 400,
    jsonrpc.INVALID_PARAMS: 400,
    jsonrpc.METHOD_NOT_FOUND: 404,
    eras.HEADER_MISMATCH: 400,
    eras.MISSING_CAPABILITY: 400,
    eras.UNSUPPORTED_VERSION: 400,
}
"""The HTTP status of an error in the newer era; of any other code it is 200."""


class RpcFailure(Exception):
    """A request is answered with a JSON-RPC error."""

    def __init__(
        self, code: int, message: str, data: bytes | None = None, *, status: int | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data
        self.status = status
        """The HTTP status, where it does not follow from the code."""
        self.retry_after: int | None = None


def status_of(failure: RpcFailure) -> int:
    return failure.status or STATUS_OF.get(failure.code, 200)


class _Posted(msgspec.Struct):
    jsonrpc: str | msgspec.UnsetType = msgspec.UNSET
    id: int | str | msgspec.UnsetType | None = msgspec.UNSET
    method: str | msgspec.UnsetType = msgspec.UNSET
    params: msgspec.Raw = msgspec.Raw(b"")
    result: msgspec.Raw = msgspec.Raw(b"")
    error: msgspec.Raw = msgspec.Raw(b"")


_posted = msgspec.json.Decoder(_Posted)
_objects = msgspec.json.Decoder(dict[str, msgspec.Raw])
_strings = msgspec.json.Decoder(str)


@dataclass(slots=True)
class Posted:
    """One message. A request has a method and an id, a notification no id, a response no method."""

    id: RpcId | None
    method: str | None
    params: dict[str, msgspec.Raw] = field(default_factory=dict)
    meta: dict[str, msgspec.Raw] = field(default_factory=dict)
    result: bytes = b""
    error: bytes = b""

    @property
    def version(self) -> str | None:
        """The revision its own envelope names; None in the session era."""
        raw = self.meta.get(eras.VERSION_KEY)
        return text_of(raw, eras.VERSION_KEY) if raw is not None else None

    @property
    def progress_token(self) -> bytes | None:
        token = self.meta.get("progressToken")
        return bytes(token) if token is not None else None

    def text(self, name: str) -> str:
        """A parameter that must be a text."""
        if name not in self.params:
            raise RpcFailure(jsonrpc.INVALID_PARAMS, f"The parameter {name!r} is missing")
        return text_of(self.params[name], name)


def read(body: bytes) -> Posted:
    """Raises `RpcFailure`."""
    try:
        if not body.isascii():
            body.decode("utf-8")
        posted = _posted.decode(body)
        if posted.jsonrpc != "2.0":
            raise RpcFailure(jsonrpc.INVALID_REQUEST, 'A message says "jsonrpc": "2.0"')
        params = _objects.decode(posted.params) if posted.params else {}
        meta = _objects.decode(params["_meta"]) if "_meta" in params else {}
    except msgspec.ValidationError:
        raise _not_a_message(body) from None
    except RecursionError:
        raise RpcFailure(jsonrpc.INVALID_REQUEST, "The message is nested too deeply") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise RpcFailure(jsonrpc.PARSE_ERROR, "What was sent is not JSON") from None
    if posted.method is msgspec.UNSET:
        return _response(posted)
    if posted.id is None:
        raise RpcFailure(jsonrpc.INVALID_REQUEST, "The id of a request is a text or a number, not null")
    identity = None if posted.id is msgspec.UNSET else posted.id
    return Posted(identity, posted.method, params, meta)


def _response(posted: _Posted) -> Posted:
    if not isinstance(posted.id, int | str) or bool(posted.result) == bool(posted.error):
        raise RpcFailure(jsonrpc.INVALID_REQUEST, "Neither a request nor a notification nor a response")
    return Posted(posted.id, None, result=bytes(posted.result), error=bytes(posted.error))


def _not_a_message(body: bytes) -> RpcFailure:
    if body.lstrip()[:1] == b"[":
        return RpcFailure(jsonrpc.INVALID_REQUEST, "Batches are not part of the protocol: send one message")
    return RpcFailure(jsonrpc.INVALID_REQUEST, "Not a JSON-RPC message: a member has the wrong type")


def require_json(content_type: bytes | None) -> None:
    """Raises `RpcFailure` for a body that does not say it is JSON."""
    if content_type is None or content_type.partition(b";")[0].strip().lower() != b"application/json":
        message = "The body must be sent as Content-Type: application/json"
        raise RpcFailure(jsonrpc.INVALID_REQUEST, message, status=415)


def identity_in(body: bytes) -> RpcId | None:
    """The id of a message that could not be read otherwise, to answer by."""
    try:
        identity = msgspec.json.decode(body, type=_Posted).id
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None
    return identity if isinstance(identity, int | str) else None


def text_of(raw: msgspec.Raw, name: str) -> str:
    try:
        return _strings.decode(raw)
    except msgspec.DecodeError:
        raise RpcFailure(jsonrpc.INVALID_PARAMS, f"The parameter {name!r} must be a text") from None


def object_of(raw: msgspec.Raw | None, name: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(raw, type=dict[str, Any]) if raw is not None else {}
    except (msgspec.DecodeError, RecursionError):
        raise RpcFailure(jsonrpc.INVALID_PARAMS, f"The parameter {name!r} must be an object") from None


def log_level(level: str) -> str:
    if level not in eras.LOG_LEVELS:
        raise RpcFailure(jsonrpc.INVALID_PARAMS, f"There is no log level {level[:40]!r}")
    return level


# The newer era's headers

_ROUTING = (b"mcp-protocol-version", b"mcp-method", b"mcp-name", b"mcp-session-id")
_MIRRORED = b"mcp-param-"


@lru_cache(64)
def _kinds_in(accept: bytes) -> frozenset[bytes]:
    """Each client always sends the same."""
    return frozenset(part.partition(b";")[0].strip().lower() for part in accept.split(b","))


class Routing:
    """The headers of a request that concern the protocol."""

    __slots__ = ("_headers", "accept", "duplicated", "last_event_id", "method", "name", "session", "version")

    def __init__(self, headers: Headers) -> None:
        self._headers = headers
        accepts = headers.all(b"accept")
        self.accept = b",".join(accepts) if accepts else None
        self.last_event_id = headers.get(b"last-event-id")
        twice = (name for name, _ in headers.repeated if name in _ROUTING or name.startswith(_MIRRORED))
        self.duplicated = next((name.decode("ascii", "replace") for name in twice), None)
        self.version = _plain(headers.get(b"mcp-protocol-version"))
        self.method = _plain(headers.get(b"mcp-method"))
        self.name = _plain(headers.get(b"mcp-name"))
        self.session = _plain(headers.get(b"mcp-session-id"))

    def parameter(self, suffix: str) -> str | None:
        """Of a header that mirrors an argument."""
        return _plain(self._headers.get(_MIRRORED + suffix.lower().encode("latin-1")))

    def accepts(self, kind: bytes) -> bool:
        if self.accept is None:
            return True
        kinds = _kinds_in(self.accept)
        return kind in kinds or b"*/*" in kinds or kind.partition(b"/")[0] + b"/*" in kinds


def _plain(value: bytes | None) -> str | None:
    return value.decode("latin-1").strip(" \t") if value is not None else None


def check_mirrored(posted: Posted, routing: Routing) -> None:
    """Raises `RpcFailure` unless the headers say what the body says."""
    if routing.duplicated:
        raise _mismatch(f"The header {routing.duplicated} is given more than once")
    if routing.version is None:
        raise _mismatch("The header MCP-Protocol-Version is missing")
    if routing.version != posted.version:
        raise _mismatch("MCP-Protocol-Version and the version in _meta are not the same")
    if posted.version != eras.MODERN:
        data = msgspec.json.encode({"supported": [eras.MODERN], "requested": posted.version})
        raise RpcFailure(
            eras.UNSUPPORTED_VERSION, f"The protocol version {posted.version} is not served here", data
        )
    if posted.method is None:
        return
    if routing.method is None and posted.id is not None:
        raise _mismatch("The header Mcp-Method is missing")
    if routing.method is not None and _decoded(routing.method, "Mcp-Method") != posted.method:
        raise _mismatch("Mcp-Method and the method are not the same")
    member = eras.NAMED_METHODS.get(posted.method)
    if member is not None and member in posted.params:
        if routing.name is None:
            raise _mismatch("The header Mcp-Name is missing")
        if _decoded(routing.name, "Mcp-Name") != posted.text(member):
            raise _mismatch(f"Mcp-Name and params.{member} are not the same")


def check_parameters(
    mirrored: Sequence[tuple[str, tuple[str, ...]]], arguments: bytes, routing: Routing
) -> None:
    """The same for the arguments a tool wants mirrored."""
    if not mirrored:
        return
    try:
        expected = eras.parameter_values(mirrored, eras.decoded_arguments(arguments))
    except jsonrpc.Malformed:
        raise RpcFailure(jsonrpc.INVALID_PARAMS, "The arguments cannot be read") from None
    for suffix, value in expected.items():
        given = routing.parameter(suffix)
        if value is None:
            if given is not None:
                raise _mismatch(f"Mcp-Param-{suffix} is given, and the argument it mirrors is not")
            continue
        if given is None:
            raise _mismatch(f"The header Mcp-Param-{suffix} is missing")
        text = _decoded(given, f"Mcp-Param-{suffix}")
        if not eras.same_value(text, value):
            raise _mismatch(f"Mcp-Param-{suffix} and the argument it mirrors are not the same")


def _decoded(value: str, header: str) -> str:
    """A header value as it was meant: some travel in base64."""
    if not (value.startswith("=?base64?") and value.endswith("?=")):
        return value
    try:
        return base64.b64decode(value[len("=?base64?") : -len("?=")], validate=True).decode("utf-8")
    except (binascii.Error, ValueError):
        raise _mismatch(f"{header} cannot be decoded") from None


def _mismatch(message: str) -> RpcFailure:
    return RpcFailure(eras.HEADER_MISMATCH, message)
