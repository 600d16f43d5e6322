"""Every seam of the house on one page: what the core needs from outside, as protocols.

Each has at least one real implementation in the room named beside it; `app.py` alone knows which.
The contract suites under `tests/contracts/` say what an implementation owes.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from trunkline.model import (
    ApiKey,
    AuditRecord,
    Era,
    HistoryRecord,
    Item,
    ReachableSpec,
    Server,
    ServerSpec,
    StatusMove,
)


class Clock(Protocol):
    """Time, so that tests can move it."""

    def now(self) -> datetime:
        """The wall clock, in UTC."""
        ...

    def monotonic(self) -> float: ...

    async def sleep(self, seconds: float) -> None: ...


@dataclass(frozen=True, slots=True)
class ToolDraft:
    """A tool as discovered, on its way into the store."""

    original_name: str
    description: str
    definition: bytes
    fingerprint: str
    input_schema: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class StoredTool:
    """A tool as it lies in the store; the aggregator reads the rest out of its definition again."""

    id: int
    server_id: str
    original_name: str
    definition: bytes
    fingerprint: str
    discovered_at: datetime
    skill_ids: tuple[str, ...] = ()
    primary_skill_id: str | None = None
    is_classified: bool = False


@dataclass(frozen=True, slots=True)
class AuditFilter:
    event: str | None = None
    server: str | None = None
    """Id or name."""
    actor: str | None = None
    since: datetime | None = None
    limit: int = 100
    offset: int = 0


class Store(Protocol):
    """What must survive: durable when the call returns. Implemented in `store/sql.py`.

    Raises `StorageUnavailable` when the database cannot be reached, whatever its own error was.
    """

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def ping(self) -> None:
        """Raises when the database does not answer, or has taken no write since one failed."""
        ...

    # Servers
    async def load_servers(self) -> list[Server]: ...

    async def add_server(self, server: Server, audit: AuditRecord) -> None:
        """Insert with its audit record in one transaction. Raises `ServerAlreadyExists`."""
        ...

    async def update_server(self, server: Server, audit: AuditRecord | None = None) -> None:
        """Write what the operator may change: description, sealed config, health URL, wanted, era."""
        ...

    async def record_move(self, move: StatusMove) -> None:
        """Status, error message and `connected_at` of a server, with its history row if the move has one."""
        ...

    async def record_health(self, checks: Mapping[str, datetime]) -> None:
        """`last_health_check` of each server id."""
        ...

    async def set_tool_count(self, server_id: str, count: int) -> None: ...

    async def set_prefix(self, server_id: str, prefix: str) -> None: ...

    async def remember_era(self, server_id: str, era: Era | None) -> None: ...

    async def remove_server(self, server_id: str, audit: AuditRecord) -> None:
        """Delete with everything that belongs to it."""
        ...

    async def history(self, server_id: str, limit: int = 50) -> list[HistoryRecord]:
        """Newest first."""
        ...

    # Definitions
    async def load_tools(self) -> list[StoredTool]: ...

    async def apply_tools(
        self, server_id: str, upserts: Sequence[ToolDraft], removed: Sequence[str], at: datetime
    ) -> dict[str, int]:
        """Write new and changed tools, delete the removed ones (by original name); ids of the upserted.

        A changed tool keeps its id and `discovered_at`, and loses its classification.
        """
        ...

    async def load_items(self) -> list[Item]: ...

    async def apply_items(
        self, server_id: str, upserts: Sequence[Item], removed: Sequence[tuple[str, str]]
    ) -> None:
        """Prompts, resources and templates; `removed` are (kind, key)."""
        ...

    # Keys
    async def load_keys(self) -> list[ApiKey]: ...

    async def add_key(self, key: ApiKey, audit: AuditRecord) -> None: ...

    async def revoke_key(self, key_id: str, at: datetime, audit: AuditRecord) -> None: ...

    # Audit
    async def append_audit(self, records: Sequence[AuditRecord]) -> None: ...

    async def read_audit(self, query: AuditFilter) -> tuple[list[AuditRecord], int]:
        """Newest first, and the number of all that match."""
        ...

    async def prune_audit(self, before: datetime) -> int: ...

    # Marks: small named values of the installation itself
    async def get_mark(self, name: str) -> str | None: ...

    async def set_mark(self, name: str, value: str) -> None: ...


class Cipher(Protocol):
    """Seals configurations at rest. Implemented in `security/cipher.py`."""

    def seal(self, plain: bytes, *, bound_to: str) -> str:
        """Encrypt; the text opens only with the same `bound_to` (the row it belongs to)."""
        ...

    def unseal(self, sealed: str, *, bound_to: str) -> bytes:
        """Raises `SealBroken`."""
        ...

    def is_current(self, sealed: str) -> bool:
        """Whether it is sealed under the key that seals now."""
        ...


class SpecPolicy(Protocol):
    """What may be registered and how it becomes reachable. Implemented in `security/admission.py`."""

    def admit(self, spec: ServerSpec) -> None:
        """Raises `ValidationError` (loc below `body.connection_config`) or `Forbidden`."""
        ...

    def admit_url(self, url: str, *loc: str) -> None:
        """The same for a single address such as `health_check_url`."""
        ...

    def resolve(self, spec: ServerSpec) -> tuple[ReachableSpec, frozenset[str]]:
        """Profiles and `${VAR}` filled in, and every secret value in it, for redaction.

        Raises `ValidationError`, naming a variable that is not allowed or not set, never its value.
        """
        ...


class OutboundPolicy(Protocol):
    """Where the gateway may connect. Implemented in `security/outbound.py`."""

    def judge(self, url: str) -> None:
        """Scheme, credentials, literal addresses, TLS. Raises `Forbidden` with what to do."""
        ...

    def judge_address(self, address: str, *, host: str) -> None:
        """One resolved IP address, just before the socket connects to it. Raises `Forbidden`."""
        ...


Redact = Callable[[str], str]
Sleep = Callable[[float], Awaitable[None]]
