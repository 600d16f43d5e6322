"""The error tree: everything the gateway refuses or cannot do, each with a stable code.

An error of this tree is an answer to somebody: its text is written for them, names what to do where
something can be done, and never carries a secret, an address of an upstream or a stack trace. Foreign
errors are turned into one of these at the wall they come through. Fronts translate `code` and `status`
to their wire; nobody else looks at `status`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


class TrunklineError(Exception):
    """Base of all errors that have an answer."""

    code = "INTERNAL_ERROR"
    status = 500

    def __init__(
        self,
        detail: str,
        *,
        context: Mapping[str, object] | None = None,
        extra: Mapping[str, object] | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.context = dict(context or {})
        self.extra = dict(extra or {})
        """Fields the contract wants beside `detail` and `error_code` (`server`, `candidates`)."""
        self.retry_after = retry_after


class StartRefused(TrunklineError):
    """The process must not start as it is configured; the text is one clear line."""

    code = "START_REFUSED"


class SettingsError(StartRefused):
    code = "SETTINGS_INVALID"


# Requests


@dataclass(frozen=True, slots=True)
class FieldError:
    loc: tuple[str | int, ...]
    msg: str
    type: str = "value_error"


class ValidationError(TrunklineError):
    """A request is well-formed and yet cannot be meant: each fault says which field it is in."""

    code = "VALIDATION_ERROR"
    status = 422

    def __init__(self, faults: Sequence[FieldError]) -> None:
        super().__init__("; ".join(fault.msg for fault in faults))
        self.faults = tuple(faults)

    @classmethod
    def at(cls, *loc: str | int, msg: str, type: str = "value_error") -> "ValidationError":
        return cls([FieldError(loc, msg, type)])


class BadRequest(TrunklineError):
    code = "BAD_REQUEST"
    status = 400


class Unauthorized(TrunklineError):
    code = "UNAUTHORIZED"
    status = 401


class Forbidden(TrunklineError):
    code = "FORBIDDEN"
    status = 403


class NotFound(TrunklineError):
    code = "NOT_FOUND"
    status = 404


class MethodNotAllowed(TrunklineError):
    code = "METHOD_NOT_ALLOWED"
    status = 405

    def __init__(self, detail: str, allowed: Sequence[str]) -> None:
        super().__init__(detail)
        self.allowed = tuple(allowed)


class HeadersTooLarge(TrunklineError):
    code = "HEADERS_TOO_LARGE"
    status = 431


class PayloadTooLarge(TrunklineError):
    code = "PAYLOAD_TOO_LARGE"
    status = 413


class RequestTimeout(TrunklineError):
    """The client was too slow to send its request."""

    code = "REQUEST_TIMEOUT"
    status = 408


class GatewayDisabled(TrunklineError):
    """The operator has switched the gateway off; only health is served."""

    code = "GATEWAY_DISABLED"
    status = 503


class StorageUnavailable(TrunklineError):
    code = "STORAGE_UNAVAILABLE"
    status = 503


class KeyNotFound(TrunklineError):
    code = "KEY_NOT_FOUND"
    status = 404


class LastAdminKey(TrunklineError):
    """Without it nobody could administer the gateway any more, nor make another key."""

    code = "LAST_ADMIN_KEY"
    status = 409


# Servers


class ServerNotFound(TrunklineError):
    code = "SERVER_NOT_FOUND"
    status = 404

    def __init__(self, server_id: str) -> None:
        super().__init__(f"Server not found: {server_id}")


class ServerAlreadyExists(TrunklineError):
    code = "SERVER_ALREADY_EXISTS"
    status = 409

    def __init__(self, name: str) -> None:
        super().__init__(f"Server already exists: {name}")


class ServerUnavailable(TrunklineError):
    """The server cannot take a call now, or was lost while it had one."""

    code = "SERVER_UNAVAILABLE"
    status = 503


class SessionNotFound(TrunklineError):
    code = "SESSION_NOT_FOUND"
    status = 503


class SealBroken(TrunklineError):
    """A sealed configuration cannot be opened: wrong or missing key, or tampered with."""

    code = "CREDENTIAL_UNREADABLE"
    status = 503


# Calls


class ToolNotFound(TrunklineError):
    code = "TOOL_NOT_FOUND"
    status = 404


class ToolAmbiguous(TrunklineError):
    code = "TOOL_AMBIGUOUS"
    status = 400


class TooManyCalls(TrunklineError):
    """A key, or a server, has as many calls under way as it may."""

    code = "TOO_MANY_CALLS"
    status = 503


class RateLimited(TrunklineError):
    code = "RATE_LIMITED"
    status = 429


class ExecutionFailed(TrunklineError):
    """The upstream answered the call with an error of its own."""

    code = "EXECUTION_FAILED"
    status = 502


class CallTimeout(TrunklineError):
    code = "TIMEOUT"
    status = 504


class Declined(Exception):
    """A client cannot or will not answer what a server asks of it; code and message are for the server."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


# What an upstream connection can raise; `core` turns these into answers


class UpstreamError(Exception):
    """Base of what goes wrong between the gateway and one upstream.

    `phase` is connect, handshake, queue or call. The text is safe to show: redacted where it was made.
    """

    def __init__(self, reason: str, *, phase: str = "call") -> None:
        super().__init__(reason)
        self.reason = reason
        self.phase = phase


class NotSent(UpstreamError):
    """The request certainly did not reach the server: it may be sent again."""


class SessionGone(NotSent):
    """The server has forgotten the session: the request was refused unread."""


class ConfigurationFault(UpstreamError):
    """The registration itself cannot work: retrying soon will not help."""


class Lost(UpstreamError):
    """The connection went away after the request had left: nobody knows whether it ran."""


class UpstreamTimeout(UpstreamError):
    """No answer in time."""


class CredentialsRejected(UpstreamError):
    """The server answered 401 or 403."""


class UpstreamBusy(UpstreamError):
    """The server asked for patience (429, 503)."""

    def __init__(self, reason: str, *, retry_after: int | None, phase: str = "call") -> None:
        super().__init__(reason, phase=phase)
        self.retry_after = retry_after


class ProtocolViolation(UpstreamError):
    """What came back is not the protocol."""


class RpcError(UpstreamError):
    """The server's own JSON-RPC error."""

    def __init__(self, code: int, message: str, data: bytes | None = None) -> None:
        super().__init__(message)
        self.rpc_code = code
        self.message = message
        self.data = data
        """Raw JSON, if the server sent any."""
