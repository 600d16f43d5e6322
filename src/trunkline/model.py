"""The nouns of the gateway: frozen values without I/O and without a library.

Every room speaks in these. They know nothing of sockets, tables or clocks; what may happen to them
(a status move, a wire call) is decided elsewhere. `ports.py` says who stores and carries them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Protocol

MASK = "********"
"""What an answer shows in the place of a secret; sent back in an update it leaves the secret as it was."""


class Transport(StrEnum):
    STDIO = "STDIO"
    SSE = "SSE"
    HTTP = "HTTP"


class ServerStatus(StrEnum):
    DISCONNECTED = "DISCONNECTED"
    CONNECTING = "CONNECTING"
    CONNECTED = "CONNECTED"
    DEGRADED = "DEGRADED"
    ERROR = "ERROR"
    DISCONNECTING = "DISCONNECTING"

    @property
    def callable(self) -> bool:
        return self in (ServerStatus.CONNECTED, ServerStatus.DEGRADED)


class Era(StrEnum):
    """The two protocol eras an upstream may speak."""

    LEGACY = "legacy"
    MODERN = "modern"


class Scope(StrEnum):
    """What a key may do; each scope includes the ones before it."""

    READ = "read"
    CALL = "call"
    ADMIN = "admin"

    def includes(self, other: "Scope") -> bool:
        order = list(Scope)
        return order.index(self) >= order.index(other)


@dataclass(frozen=True, slots=True)
class StdioSpec:
    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)

    transport = Transport.STDIO


@dataclass(frozen=True, slots=True)
class ProfileSpec:
    """A command line named in the operator's profile file; becomes a `StdioSpec` when connecting."""

    profile: str
    parameters: Mapping[str, str | int | bool] = field(default_factory=dict)

    transport = Transport.STDIO


@dataclass(frozen=True, slots=True)
class SseSpec:
    url: str
    headers: Mapping[str, str] = field(default_factory=dict)

    transport = Transport.SSE


@dataclass(frozen=True, slots=True)
class HttpSpec:
    base_url: str
    headers: Mapping[str, str] = field(default_factory=dict)

    transport = Transport.HTTP


ServerSpec = StdioSpec | ProfileSpec | SseSpec | HttpSpec
"""How to reach a server, as registered: `${VAR}` unresolved. It lives sealed in `Server`."""

ReachableSpec = StdioSpec | SseSpec | HttpSpec
"""A spec after profiles and variables were resolved; exists only while connecting."""


@dataclass(frozen=True, slots=True)
class ServerDraft:
    """A registration as it came in; the registry judges it and makes the `Server`."""

    name: str
    transport_type: str
    connection_config: Mapping[str, object]
    description: str | None = None
    health_check_url: str | None = None
    auto_connect: bool = True


@dataclass(frozen=True, slots=True)
class ServerPatch:
    """The fields to change, by name; what is not in `changes` stays."""

    changes: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Server:
    """One registered upstream: what the operator wants and what is known of it."""

    id: str
    name: str
    description: str | None
    transport: Transport
    sealed_config: str
    health_check_url: str | None
    wanted: bool
    """Whether it should be connected: survives a restart."""
    status: ServerStatus
    error_message: str | None
    tool_count: int
    era: Era | None
    registered_at: datetime
    updated_at: datetime
    connected_at: datetime | None = None
    last_health_check: datetime | None = None
    prefix: str = ""
    """What the aliases of its tools begin with; its own for good, whichever servers come and go."""


class HistoryEvent(StrEnum):
    CONNECTED = "CONNECTED"
    DISCONNECTED = "DISCONNECTED"
    ERROR = "ERROR"
    RECONNECT = "RECONNECT"
    DEGRADED = "DEGRADED"


@dataclass(frozen=True, slots=True)
class StatusMove:
    """One step of a server along the state machine, as it is stored and published."""

    server_id: str
    before: ServerStatus
    after: ServerStatus
    at: datetime
    error_message: str | None = None
    event: HistoryEvent | None = None
    """The row it leaves in the connection history; CONNECTING for the first time leaves none."""


@dataclass(frozen=True, slots=True)
class HistoryRecord:
    server_id: str
    event: HistoryEvent
    details: Mapping[str, object]
    timestamp: datetime


class ItemKind(StrEnum):
    """What a server can list besides its tools."""

    PROMPT = "prompt"
    RESOURCE = "resource"
    TEMPLATE = "resource_template"


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool of an upstream: its definition byte for byte, and what was read out of it."""

    id: int
    server_id: str
    server_name: str
    original_name: str
    definition: bytes
    """The JSON object the server sent, verbatim."""
    fingerprint: str
    description: str
    read_only: bool
    idempotent: bool
    header_parameters: tuple[tuple[str, tuple[str, ...]], ...]
    """(header suffix, path of properties) for arguments an HTTP upstream of the modern era wants mirrored."""
    discovered_at: datetime
    skill_ids: tuple[str, ...] = ()
    primary_skill_id: str | None = None
    is_classified: bool = False

    @property
    def name(self) -> str:
        return f"{self.server_name}.{self.original_name}"


@dataclass(frozen=True, slots=True)
class Item:
    """A prompt, a resource or a resource template of an upstream, verbatim."""

    kind: ItemKind
    server_id: str
    key: str
    """The prompt's name, the resource's URI, the template's URI template."""
    definition: bytes
    fingerprint: str


@dataclass(frozen=True, slots=True)
class Problem:
    """Why something of a server is missing, in words for the person who looks."""

    kind: str
    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Principal:
    """Who is asking."""

    key_id: str
    name: str
    scope: Scope
    ip: str | None = None


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key as stored: the secret itself is known to its owner alone."""

    id: str
    name: str
    scope: Scope
    digest: bytes
    created_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None


class Counterpart(Protocol):
    """The client at the far end of a request: what a server may know of it, and how it is reached.

    The one seam between the eras: each front implements it, each upstream era calls it.
    """

    @property
    def modern(self) -> bool:
        """Whether it understands what only the newer era has, such as a result that asks for input."""
        ...

    @property
    def capabilities(self) -> bytes:
        """A JSON object: what it declared, in the newer era's words."""
        ...

    @property
    def info(self) -> bytes:
        """A JSON object: who it says it is; may be empty."""
        ...

    @property
    def meta(self) -> bytes:
        """The members of its `_meta` that travel on, without braces."""
        ...

    @property
    def log_level(self) -> str | None:
        """The least level of the log messages it wants; None for none."""
        ...

    def on_progress(self, params: bytes) -> None:
        """Returns at once. The token in it is not the client's."""
        ...

    def on_log(self, params: bytes) -> None: ...

    async def ask(self, method: str, params: bytes) -> bytes:
        """Have the client answer a server's question: the raw result. Raises `Declined`."""
        ...


@dataclass(slots=True)
class Call:
    """One tool call on its way through the gateway."""

    principal: Principal
    name: str
    arguments: bytes
    """The JSON object of arguments, untouched."""
    server_id: str | None = None
    request_id: str = ""
    members: bytes = b""
    """Further members of the request's params, as they came."""
    answers: bytes = b""
    """Those of them that answer a question; only a server of the newer era knows them."""
    counterpart: Counterpart | None = None


@dataclass(slots=True)
class Errand:
    """One request for one server, in that server's own words."""

    method: str
    params: bytes
    """The members of its params but `_meta`, without braces."""
    subject: str | None = None
    """The name or URI in it, which the newer era also wants in a header."""
    mirrored: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """As `Tool.header_parameters`; read from `arguments`."""
    arguments: bytes = b"{}"
    answers: bytes = b""
    """As `Call.answers`."""
    counterpart: Counterpart | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """A tool ran: `result` is what its server answered, byte for byte, also when the tool says it failed."""

    result: bytes
    server_id: str
    server_name: str
    routing_ms: float
    execution_ms: float
    warning: str | None = None
    modern: bool = False
    """Whether the result is in the newer era's words."""
    task: bool = False
    """Whether the tool goes on as a task, which `result` tells of under its server's own id."""


@dataclass(frozen=True, slots=True)
class Health:
    """What is known of a server's health; `core` moves it by a pure function."""

    consecutive_failures: int = 0
    last_check: datetime | None = None
    response_time_ms: float | None = None
    last_error: str | None = None


@dataclass(frozen=True, slots=True)
class AuditRecord:
    event: str
    actor: str
    timestamp: datetime
    server_id: str | None = None
    server_name: str | None = None
    ip_address: str | None = None
    details: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Event:
    """Something happened to a server: `kind` is `server.registered`, `server.status_changed`, …

    An event says what is dirty; whoever hears it reads the truth again.
    """

    kind: str
    server_id: str
    server_name: str
    status: ServerStatus | None = None
    subject: str | None = None
    """The URI of the resource that changed, or the id of the elicitation that is over."""


@dataclass(frozen=True, slots=True)
class Disconnection:
    """What a disconnect found: DISCONNECTED at once, or DISCONNECTING with calls still in flight."""

    server_id: str
    status: ServerStatus
    pending_requests: int


@dataclass(frozen=True, slots=True)
class GatewayState:
    """The figures of `GET /state`."""

    servers: Mapping[ServerStatus, int]
    total_tools: int
    classified_tools: int
    last_sync: datetime | None
    health_interval: float
    uptime_seconds: float


@dataclass(frozen=True, slots=True)
class HealthReport:
    """`GET /health`: each part `ok`, `degraded` or `failed`, and what is wrong in words."""

    checks: Mapping[str, str]
    servers: Mapping[ServerStatus, int]
    issues: tuple[str, ...]
    """Also what is too little to make the whole degraded."""

    @property
    def status(self) -> str:
        return "healthy" if all(how == "ok" for how in self.checks.values()) else "degraded"
