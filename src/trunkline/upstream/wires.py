"""The seam inside `upstream`: what a wire owes the connection, and what it may tell it.

A wire carries JSON-RPC to one server and back; there is one class per transport (`stdio.py`, `sse.py`,
`http.py`). It knows envelopes, ids and its own way of dying. It knows nothing of eras as a decision, of
retries, status or tools: `connection.py` probes, decides and owns the task that opens and closes it.
"""

from dataclasses import dataclass, field
from typing import Protocol

from trunkline.errors import ProtocolViolation, RpcError, UpstreamError
from trunkline.ports import Redact
from trunkline.upstream.told_errors import told_data, told_message
from trunkline.wire.eras import Introduction
from trunkline.wire.jsonrpc import ErrorResponse, RpcId


class Inbox(Protocol):
    """What comes from the server unasked. Every method returns at once and never raises."""

    def on_request(self, identity: RpcId, method: str, params: bytes, asked_by: int | None) -> None:
        """The server asks us. `asked_by` is the key of the exchange on whose stream it came, if known."""
        ...

    def on_notification(self, method: str, params: bytes, asked_by: int | None) -> None: ...

    def on_noise(self, reason: str) -> None:
        """Something came that is no message, or answers nothing that was asked."""
        ...

    def on_lost(self, error: UpstreamError) -> None:
        """The wire is dead: every exchange has already failed. Comes at most once, never after `close`."""
        ...


@dataclass(slots=True)
class Exchange:
    """One request on its way. `key` is the gateway's own id for it, unique for the connection's life."""

    key: int
    method: str
    params: bytes
    """Complete, `_meta` included."""
    headers: dict[str, str] = field(default_factory=dict)
    """For HTTP: the headers that mirror the request. Other wires ignore them."""
    sent: bool = False
    """Set by the wire just before the first byte may have reached the server."""


class Wire(Protocol):
    """Opened, used and closed by one owner task; `exchange` and `notify` may be called from any task."""

    async def open(self, inbox: Inbox) -> None:
        """Make the way (start the process, open the stream). Raises `UpstreamError` with phase `connect`."""
        ...

    async def introduced(self, introduction: Introduction) -> None:
        """The handshake is done: the wire knows the version and opens what it listens on, if anything."""
        ...

    async def exchange(self, exchange: Exchange) -> bytes:
        """Send the request and return the raw `result`.

        Raises `RpcError` for the server's own error; `NotSent` when it certainly did not arrive; `Lost`
        when nobody knows; `CredentialsRejected`, `UpstreamBusy`, `ProtocolViolation` for what they say.
        When cancelled it forgets the exchange; a late answer is then dropped without a word. Where closing
        the request's stream is how this wire cancels, cancelling does that. It sets no time limit.
        """
        ...

    async def cancel(self, exchange: Exchange, reason: str) -> None:
        """Tell the server that nobody waits any more, where that is a message. Never raises."""
        ...

    async def notify(self, method: str, params: bytes = b"") -> None:
        """Raises `UpstreamError`."""
        ...

    async def answer(self, message: bytes) -> None:
        """Send a complete response to a request of the server's. Raises `UpstreamError`."""
        ...

    @property
    def last_heard(self) -> float:
        """`loop.time()` of the last byte that came."""
        ...

    def epitaph(self) -> str:
        """What the wire knows of why it is dying, to be added to an error; redacted; may be empty."""
        ...

    async def close(self) -> None:
        """Close in good order, then by force; returns when nothing is left. Never raises. Idempotent."""
        ...


def too_large(limit: int) -> ProtocolViolation:
    """What every wire says of a message that it did not read to its end."""
    whole, rest = divmod(limit, 1024 * 1024)
    size = f"{limit} bytes" if rest or not whole else f"{whole} MiB"
    return ProtocolViolation(f"sent more than {size} in one message (MCP_AGGREGATOR_MESSAGE_LIMIT)")


def rpc_error(error: ErrorResponse, redact: Redact) -> RpcError:
    """What every wire raises for the server's own error: servers repeat in them what they were given."""
    return RpcError(error.code, told_message(error.message, redact), told_data(error.data, redact))
