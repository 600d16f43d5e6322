"""What the admin API takes and says of servers.

Pure. Statuses and transports are in upper case in answers and in any case in requests. `servers.py` has the
routes, `tools.py` how a tool looks.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from msgspec import UNSET, Meta, UnsetType

from trunkline.front.rest.shapes import Moment, Order, Page, Said, moment, moment_or_none
from trunkline.front.rest.tools import ServerTool
from trunkline.model import (
    Disconnection,
    Era,
    Health,
    HistoryEvent,
    HistoryRecord,
    ItemKind,
    Problem,
    Server,
    ServerStatus,
    Transport,
)

# Taken


class ServerQuery(Page):
    status: ServerStatus | None = None
    include_tools: bool = False


class HistoryQuery(Order):
    limit: Annotated[int, Meta(ge=1, le=1000)] = 50


# What the registry judges is told here for those who read the document; it is not judged twice.
Name = Annotated[str, Meta(extra_json_schema={"pattern": "^[a-z][a-z0-9_-]*$", "maxLength": 255})]
Description = Annotated[str, Meta(extra_json_schema={"maxLength": 1000})]
Configuration = Annotated[
    dict[str, Any], Meta(description="STDIO takes command, SSE url, HTTP base_url: docs/SERVERS.md.")
]


class ServerRegistration(Order, kw_only=True):
    name: Name
    transport_type: Annotated[str, Meta(description="STDIO, SSE or HTTP, in any case.")]
    connection_config: Configuration
    description: Description | None = None
    health_check_url: str | None = None
    auto_connect: bool = True


class ServerChange(Order):
    """What is not given stays. A server is not renamed: remove it and add it again."""

    description: Description | UnsetType | None = UNSET
    connection_config: Configuration | UnsetType | None = UNSET
    health_check_url: str | UnsetType | None = UNSET


class DisconnectOrder(Order):
    force: Annotated[bool, Meta(description="Cancels calls in flight instead of waiting.")] = False


# Said


class RegisteredServer(Said, kw_only=True):
    id: str
    name: str
    description: str | None
    transport_type: Transport
    status: ServerStatus
    health_check_url: str | None
    tool_count: int
    registered_at: Moment
    connected_at: Moment | None


def registered_server(server: Server) -> RegisteredServer:
    return RegisteredServer(
        id=server.id,
        name=server.name,
        description=server.description,
        transport_type=server.transport,
        status=server.status,
        health_check_url=server.health_check_url,
        tool_count=server.tool_count,
        registered_at=moment(server.registered_at),
        connected_at=moment_or_none(server.connected_at),
    )


class ListedServer(Said, kw_only=True):
    id: str
    name: str
    description: str | None
    transport_type: Transport
    status: ServerStatus
    tool_count: int
    last_health_check: Moment | None
    registered_at: Moment
    connected_at: Moment | None
    tools: list[ServerTool] | UnsetType = UNSET


def listed_server(server: Server, tools: list[ServerTool] | UnsetType) -> ListedServer:
    return ListedServer(
        id=server.id,
        name=server.name,
        description=server.description,
        transport_type=server.transport,
        status=server.status,
        tool_count=server.tool_count,
        last_health_check=moment_or_none(server.last_health_check),
        registered_at=moment(server.registered_at),
        connected_at=moment_or_none(server.connected_at),
        tools=tools,
    )


class ServerList(Said):
    servers: list[ListedServer]
    total: int
    limit: int
    offset: int


class WhyMissing(Said):
    """Why something of a server is missing, in words for the person who looks."""

    kind: str
    name: str
    reason: str


class FullServer(Said, kw_only=True):
    id: str
    name: str
    description: str | None
    transport_type: Transport
    connection_config: Annotated[
        dict[str, Any] | None, Meta(description="Secrets are masked; null if it cannot be unsealed.")
    ]
    status: ServerStatus
    health_check_url: str | None
    last_health_check: Moment | None
    tool_count: int
    prompt_count: int
    resource_count: int
    resource_template_count: int
    error_message: str | None
    era: Era | None
    problems: list[WhyMissing]
    registered_at: Moment
    connected_at: Moment | None
    updated_at: Moment


def full_server(
    server: Server,
    masked_config: dict[str, object] | None,
    problems: Sequence[Problem],
    items: Mapping[ItemKind, int],
) -> FullServer:
    return FullServer(
        id=server.id,
        name=server.name,
        description=server.description,
        transport_type=server.transport,
        connection_config=masked_config,
        status=server.status,
        health_check_url=server.health_check_url,
        last_health_check=moment_or_none(server.last_health_check),
        tool_count=server.tool_count,
        prompt_count=items.get(ItemKind.PROMPT, 0),
        resource_count=items.get(ItemKind.RESOURCE, 0),
        resource_template_count=items.get(ItemKind.TEMPLATE, 0),
        error_message=server.error_message,
        era=server.era,
        problems=[WhyMissing(kind=each.kind, name=each.name, reason=each.reason) for each in problems],
        registered_at=moment(server.registered_at),
        connected_at=moment_or_none(server.connected_at),
        updated_at=moment(server.updated_at),
    )


class ConnectAnswer(Said):
    server_id: str
    status: ServerStatus
    message: str


class DisconnectAnswer(Said):
    server_id: str
    status: ServerStatus
    pending_requests: int
    message: str


def disconnect_answer(found: Disconnection) -> DisconnectAnswer:
    waiting = found.pending_requests
    message = "Server disconnected successfully"
    if found.status is ServerStatus.DISCONNECTING:
        message = f"Waiting for {waiting} pending request{'' if waiting == 1 else 's'} to complete"
    return DisconnectAnswer(
        server_id=found.server_id, status=found.status, pending_requests=waiting, message=message
    )


class RefreshAnswer(Said):
    server_id: str
    status: str
    message: str


class ServerTools(Said):
    tools: list[ServerTool]
    total: int
    classified: int
    unclassified: int


class ServerHealth(Said):
    server_id: str
    name: str
    status: ServerStatus
    last_health_check: Moment | None
    response_time_ms: float | None
    consecutive_failures: int
    last_error: str | None


def server_health(server: Server, health: Health) -> ServerHealth:
    return ServerHealth(
        server_id=server.id,
        name=server.name,
        status=server.status,
        last_health_check=moment_or_none(health.last_check or server.last_health_check),
        response_time_ms=health.response_time_ms,
        consecutive_failures=health.consecutive_failures,
        last_error=health.last_error,
    )


class HistoryEntry(Said):
    event: HistoryEvent
    timestamp: Moment
    details: dict[str, Any]


class History(Said):
    server_id: str
    history: list[HistoryEntry]
    limit: int


def history(server_id: str, records: Sequence[HistoryRecord], limit: int) -> History:
    entries = [
        HistoryEntry(event=each.event, timestamp=moment(each.timestamp), details=dict(each.details))
        for each in records
    ]
    return History(server_id=server_id, history=entries, limit=limit)
