"""What an HTTP answer means for the request it answers. Pure: status, headers and body in, an error out.

Headers are known by their names in lower case. Shared by the streamable-HTTP and the HTTP+SSE wire. Texts of
the server are redacted before they go on.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from trunkline.errors import (
    CredentialsRejected,
    Lost,
    ProtocolViolation,
    SessionGone,
    UpstreamBusy,
    UpstreamError,
)
from trunkline.ports import Redact
from trunkline.upstream.wires import rpc_error
from trunkline.wire import jsonrpc
from trunkline.wire.jsonrpc import ErrorResponse

JSON = "application/json"
EVENTS = "text/event-stream"
LARGEST_REFUSAL = 1024 * 1024
LONGEST_PATIENCE = 86_400

_SESSION_WORD = b"session"


@dataclass(frozen=True, slots=True)
class Asked:
    """What has to be known of a request to understand its refusal."""

    key: int | None
    """None for what expects no answer."""
    in_session: bool
    """Whether it named a session that the server had given us."""


def media_type(headers: Mapping[str, str]) -> str:
    return headers.get("content-type", "").partition(";")[0].strip().lower()


def check_encoding(headers: Mapping[str, str]) -> None:
    """Raises `ProtocolViolation` for a packed body: identity was asked for, and nothing is unpacked here."""
    encoding = headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        raise ProtocolViolation(f"answered in the encoding {_short(encoding)}, which was not asked for")


def unexpected_type(found: str) -> ProtocolViolation:
    if not found:
        return ProtocolViolation("answered without a content type")
    return ProtocolViolation(f"answered with {_short(found)}: is this the address of an MCP endpoint?")


def refusal(
    status: int, headers: Mapping[str, str], body: bytes, asked: Asked, redact: Redact, now: datetime
) -> UpstreamError:
    """What any status but a proper answer stands for."""
    error = _rpc_error(body)
    if _forgot_session(status, headers, body, error, asked):
        return SessionGone("the server has forgotten the session")
    if status in (401, 403):
        return CredentialsRejected(f"the server rejected the credentials ({status})")
    if status in (429, 503):
        patience = retry_after(headers.get("retry-after"), now)
        return UpstreamBusy(f"the server asked for patience ({status})", retry_after=patience)
    if error is not None and (error.id == asked.key or not isinstance(error.id, int)):
        return rpc_error(error, redact)
    if status >= 500:
        return Lost(f"the server answered {status}")
    return ProtocolViolation(_no_answer(status, media_type(headers)))


def retry_after(value: str | None, now: datetime) -> int | None:
    """The header in seconds, whichever of its two forms it has."""
    if value is None:
        return None
    text = value.strip()
    if text.isascii() and text.isdigit():
        return min(int(text[:9]), LONGEST_PATIENCE)
    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0, min(math.ceil((moment - now).total_seconds()), LONGEST_PATIENCE))


def _forgot_session(
    status: int, headers: Mapping[str, str], body: bytes, error: ErrorResponse | None, asked: Asked
) -> bool:
    """A 404 says so by the specification; a 400 or 401 only where it cannot mean anything else."""
    if not asked.in_session:
        return False
    read_by_server = error is not None and error.id == asked.key
    if status == 404:
        return not (read_by_server and error is not None and error.code == jsonrpc.METHOD_NOT_FOUND)
    if status == 400 or (status == 401 and "www-authenticate" not in headers):
        return not read_by_server and _SESSION_WORD in body[:1024].lower()
    return False


def _rpc_error(body: bytes) -> ErrorResponse | None:
    try:
        message = jsonrpc.decode(body)
    except jsonrpc.Malformed:
        return None
    return message if isinstance(message, ErrorResponse) else None


def _no_answer(status: int, kind: str) -> str:
    if 300 <= status < 400:
        return f"redirects ({status}), which is not followed: register the address it leads to"
    if status == 413:
        return "the request is larger than the server accepts (413)"
    if status in (202, 204):
        return f"took the request and gave no answer to it ({status})"
    described = f" with {_short(kind)}" if kind and kind != JSON else ""
    return f"answered {status}{described}: is this the address of an MCP endpoint?"


def _short(text: str) -> str:
    printable = "".join(character for character in text if character.isprintable())
    return printable[:60] or "something unreadable"
