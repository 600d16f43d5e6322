"""The two eras of MCP as an intermediary must speak them: versions, envelopes, headers, evidence.

Pure. Legacy is the session era (`initialize`, up to 2025-11-25); modern is 2026-07-28, where every request
carries its own envelope in `_meta` and mirrors part of it in headers. Which era a server speaks is found
out in `upstream/connection.py`; this module says what is evidence of it.
"""

import base64
import contextlib
import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from trunkline import __version__
from trunkline.model import Counterpart
from trunkline.wire.jsonrpc import ErrorResponse, fields

MODERN = "2026-07-28"
LATEST_LEGACY = "2025-11-25"
LEGACY_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")

_NAMESPACE = "io.modelcontextprotocol/"
VERSION_KEY = _NAMESPACE + "protocolVersion"
CLIENT_INFO_KEY = _NAMESPACE + "clientInfo"
CAPABILITIES_KEY = _NAMESPACE + "clientCapabilities"
LOG_LEVEL_KEY = _NAMESPACE + "logLevel"
SERVER_INFO_KEY = _NAMESPACE + "serverInfo"
SUBSCRIPTION_KEY = _NAMESPACE + "subscriptionId"

HEADER_MISMATCH = -32020
MISSING_CAPABILITY = -32021
UNSUPPORTED_VERSION = -32022
_MODERN_CODES = frozenset({HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION})

CLIENT_INFO = {"name": "trunkline", "title": "Trunkline", "version": __version__}

NAMED_METHODS = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}
"""Methods whose `Mcp-Name` header mirrors a parameter."""

RESOURCE_UPDATED = "notifications/resources/updated"
ELICITATION_COMPLETE = "notifications/elicitation/complete"
TOLD = frozenset({RESOURCE_UPDATED, ELICITATION_COMPLETE})
"""What a server tells outside any request, beside that a list changed."""

_PLAIN = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
_SENTINEL = re.compile(r"=\?base64\?.*\?=")


RELAYED = {
    "elicitation": {"form": {}, "url": {}},
    "roots": {"listChanged": True},
    "sampling": {"context": {}, "tools": {}},
}
"""What a server of the session era may ask for: fixed at the handshake, so it is all that can be relayed.
Whether the client of the moment can answer is found out when the server asks."""


def initialize_params() -> bytes:
    return msgspec.json.encode(
        {"protocolVersion": LATEST_LEGACY, "capabilities": RELAYED, "clientInfo": CLIENT_INFO}
    )


_INFO = msgspec.json.encode(CLIENT_INFO)
_ENVELOPE = msgspec.json.encode({VERSION_KEY: MODERN, CLIENT_INFO_KEY: CLIENT_INFO, CAPABILITIES_KEY: {}})


def request_meta(*, modern: bool, progress_token: int | None = None) -> bytes:
    """The `_meta` object of a request of ours; empty when the era and the request need none."""
    token = b"" if progress_token is None else b'"progressToken":%d' % progress_token
    if not modern:
        return b"{%b}" % token if token else b""
    return _ENVELOPE[:-1] + b"," + token + b"}" if token else _ENVELOPE


def relayed_meta(client: Counterpart, *, modern: bool, progress_token: int) -> bytes:
    """The `_meta` of a client's request as it goes on: our envelope and token around what is the client's."""
    token = b'"progressToken":%d' % progress_token
    travelling = b"," + client.meta if client.meta else b""
    if not modern:
        return b"{%b%b}" % (token, travelling)
    if client.log_level is not None:
        token = b'"%b":"%b",%b' % (LOG_LEVEL_KEY.encode(), client.log_level.encode(), token)
    return b"{%b,%b%b}" % (_envelope_of(client), token, travelling)


def listening_meta(client: Counterpart) -> bytes:
    """The `_meta` of a subscription that is made for a client: it has no progress, and no log."""
    return b"{%b%b}" % (_envelope_of(client), b"," + client.meta if client.meta else b"")


def _envelope_of(client: Counterpart) -> bytes:
    return b'"%b":"%b","%b":%b,"%b":%b' % (
        VERSION_KEY.encode(),
        MODERN.encode(),
        CLIENT_INFO_KEY.encode(),
        client.info or _INFO,
        CAPABILITIES_KEY.encode(),
        client.capabilities or b"{}",
    )


def with_meta(params: bytes, meta: bytes) -> bytes:
    """`params` (an object without a `_meta` of its own) with one put in."""
    if not meta:
        return params or b"{}"
    inner = params.strip()[1:-1].strip() if params else b""
    if not inner:
        return b'{"_meta":%b}' % meta
    return b'{%b,"_meta":%b}' % (inner, meta)


def modern_headers(method: str, name: str | None) -> dict[str, str]:
    headers = {"MCP-Protocol-Version": MODERN, "Mcp-Method": method}
    if name is not None:
        headers["Mcp-Name"] = header_value(name)
    return headers


def header_value(value: str) -> str:
    """As it can travel in a header: plain when it may, else in the `=?base64?…?=` form."""
    if not value or (_PLAIN.fullmatch(value) and not _SENTINEL.fullmatch(value)):
        return value
    return f"=?base64?{base64.b64encode(value.encode('utf-8')).decode('ascii')}?="


def decoded_arguments(arguments: bytes) -> dict[str, Any]:
    """Without those that no decoder takes (half of a surrogate pair, nested deeply): no header says them."""
    found: dict[str, Any] = {}
    for name, value in fields(arguments).items():
        with contextlib.suppress(msgspec.DecodeError, RecursionError):
            found[name] = msgspec.json.decode(value)
    return found


def parameter_headers(
    mirrored: Iterable[tuple[str, tuple[str, ...]]], arguments: Mapping[str, Any]
) -> dict[str, str]:
    """The `Mcp-Param-…` headers of a call; an absent or null argument has none."""
    return {
        f"Mcp-Param-{suffix}": header_value(value)
        for suffix, value in parameter_values(mirrored, arguments).items()
        if value is not None
    }


def parameter_values(
    mirrored: Iterable[tuple[str, tuple[str, ...]]], arguments: Mapping[str, Any]
) -> dict[str, str | None]:
    """Suffix → the text of the argument it mirrors."""
    values: dict[str, str | None] = {}
    for suffix, path in mirrored:
        value: Any = arguments
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        if isinstance(value, bool):
            value = "true" if value else "false"
        values[suffix] = str(value) if isinstance(value, str | int | float) else None
    return values


def same_value(given: str, value: str) -> bool:
    """Whether a header says the argument's value; a number may be spelled in another way."""
    if given == value:
        return True
    try:
        return float(given) == float(value)
    except ValueError:
        return False


class _Discovered(msgspec.Struct, rename="camel"):
    supported_versions: list[str] = []
    capabilities: Any = None
    instructions: Any = None


class _Initialized(msgspec.Struct, rename="camel"):
    protocol_version: str
    capabilities: Any = None
    instructions: Any = None


class _Unsupported(msgspec.Struct):
    supported: list[str] = []


class Introduction(msgspec.Struct, frozen=True):
    """What a server said of itself when the connection was made."""

    version: str
    capabilities: dict[str, Any]
    instructions: str | None

    @property
    def modern(self) -> bool:
        return self.version == MODERN


def read_discovery(result: bytes) -> Introduction | None:
    """A `server/discover` result as evidence of the modern era; None when it is none."""
    try:
        found = msgspec.json.decode(result, type=_Discovered)
    except (msgspec.DecodeError, RecursionError):
        return None
    if MODERN not in found.supported_versions:
        return None
    return _introduction(MODERN, found)


def read_initialization(result: bytes) -> Introduction | None:
    """An `initialize` result; None when it is not one we can work with."""
    try:
        found = msgspec.json.decode(result, type=_Initialized)
    except (msgspec.DecodeError, RecursionError):
        return None
    if found.protocol_version not in LEGACY_VERSIONS:
        return None
    return _introduction(found.protocol_version, found)


def _introduction(version: str, said: _Discovered | _Initialized) -> Introduction:
    return Introduction(
        version,
        said.capabilities if isinstance(said.capabilities, dict) else {},
        said.instructions if isinstance(said.instructions, str) else None,
    )


def proves_modern(error: ErrorResponse) -> bool:
    """Whether an error to a probe can only come from a modern server that serves our version.

    Codes are evidence, texts never. An unsupported-version answer counts when it lists our version.
    """
    if error.code != UNSUPPORTED_VERSION:
        return error.code in _MODERN_CODES
    return MODERN in versions_offered(error)


def versions_offered(error: ErrorResponse) -> list[str]:
    if error.code != UNSUPPORTED_VERSION or not error.data:
        return []
    try:
        return msgspec.json.decode(error.data, type=_Unsupported).supported
    except (msgspec.DecodeError, RecursionError):
        return []


LOG_LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")


def more_talkative(level: str, than: str) -> bool:
    return _rank(level) < _rank(than)


def _rank(level: str) -> int:
    return LOG_LEVELS.index(level) if level in LOG_LEVELS else 0


class _Progress(msgspec.Struct, rename="camel"):
    progress_token: int | str | None = None


class _Cancelled(msgspec.Struct, rename="camel"):
    request_id: int | str | None = None


class _Logged(msgspec.Struct):
    level: str = "info"


class _Updated(msgspec.Struct):
    uri: str


class _Elicited(msgspec.Struct, rename="camel"):
    elicitation_id: str | None = None


class _SubscriptionMeta(msgspec.Struct):
    subscription: int | str | None = msgspec.field(default=None, name=SUBSCRIPTION_KEY)


class _Subscribed(msgspec.Struct):
    meta: _SubscriptionMeta = msgspec.field(default_factory=_SubscriptionMeta, name="_meta")


_progress = msgspec.json.Decoder(_Progress)
_updated = msgspec.json.Decoder(_Updated)
_elicited = msgspec.json.Decoder(_Elicited)
_subscribed = msgspec.json.Decoder(_Subscribed)
_cancelled = msgspec.json.Decoder(_Cancelled)
_logged = msgspec.json.Decoder(_Logged)


def progress_token(params: bytes) -> int | str | None:
    try:
        return _progress.decode(params).progress_token
    except (msgspec.DecodeError, RecursionError):
        return None


def cancelled_id(params: bytes) -> int | str | None:
    try:
        return _cancelled.decode(params).request_id
    except (msgspec.DecodeError, RecursionError):
        return None


def elicitation_id(params: bytes) -> str | None:
    """Of an elicitation that sends its user to an address, or of word that such a visit is over."""
    try:
        return _elicited.decode(params).elicitation_id
    except (msgspec.DecodeError, RecursionError):
        return None


def subscription_of(params: bytes) -> int | str | None:
    """The id of the subscription that a notification says it belongs to."""
    try:
        return _subscribed.decode(params).meta.subscription
    except (msgspec.DecodeError, RecursionError):
        return None


def log_level_of(params: bytes) -> str:
    """The level of a log message."""
    try:
        return _logged.decode(params).level
    except (msgspec.DecodeError, RecursionError):
        return "info"


def updated_uri(params: bytes) -> str | None:
    """Of the resource that a notification says was updated."""
    try:
        return _updated.decode(params).uri
    except (msgspec.DecodeError, RecursionError):
        return None
