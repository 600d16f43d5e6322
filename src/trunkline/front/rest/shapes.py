"""How the nouns look in answers: each as the contract spells it, as a plain object ready for JSON.

Pure. Times are ISO 8601 in UTC with a Z, statuses and transports in upper case. Parts of a tool's definition
go in as the bytes its server sent.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import msgspec
from fastapi import Response

from trunkline.front.answers import encode
from trunkline.model import (
    ApiKey,
    AuditRecord,
    GatewayState,
    Health,
    HealthReport,
    HistoryRecord,
    ItemKind,
    Problem,
    Server,
    ServerStatus,
    Tool,
)
from trunkline.wire.jsonrpc import Malformed, fields

Object = dict[str, object]

STOPPING = "stopping"
"""The health of a gateway that takes no more calls; answered with 503, so that probes send nobody here."""


class Json(Response):
    media_type = "application/json"

    def render(self, content: object) -> bytes:
        return encode(content)


def moment(at: datetime | None) -> str | None:
    if at is None:
        return None
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def registered_server(server: Server) -> Object:
    return {
        "id": server.id,
        "name": server.name,
        "description": server.description,
        "transport_type": server.transport,
        "status": server.status,
        "health_check_url": server.health_check_url,
        "tool_count": server.tool_count,
        "registered_at": moment(server.registered_at),
        "connected_at": moment(server.connected_at),
    }


def listed_server(server: Server) -> Object:
    return {
        "id": server.id,
        "name": server.name,
        "description": server.description,
        "transport_type": server.transport,
        "status": server.status,
        "tool_count": server.tool_count,
        "last_health_check": moment(server.last_health_check),
        "registered_at": moment(server.registered_at),
        "connected_at": moment(server.connected_at),
    }


def full_server(
    server: Server,
    masked_config: Object | None,
    problems: Sequence[Problem],
    items: Mapping[ItemKind, int],
) -> Object:
    return {
        "id": server.id,
        "name": server.name,
        "description": server.description,
        "transport_type": server.transport,
        "connection_config": masked_config,
        "status": server.status,
        "health_check_url": server.health_check_url,
        "last_health_check": moment(server.last_health_check),
        "tool_count": server.tool_count,
        **{f"{kind}_count": items.get(kind, 0) for kind in ItemKind},
        "error_message": server.error_message,
        "era": server.era,
        "problems": [
            {"kind": problem.kind, "name": problem.name, "reason": problem.reason} for problem in problems
        ],
        "registered_at": moment(server.registered_at),
        "connected_at": moment(server.connected_at),
        "updated_at": moment(server.updated_at),
    }


def server_tool(tool: Tool) -> Object:
    return {
        "id": str(tool.id),
        "name": tool.name,
        "original_name": tool.original_name,
        "description": tool.description,
        "skill_ids": list(tool.skill_ids),
        "primary_skill_id": tool.primary_skill_id,
        "is_classified": tool.is_classified,
        "discovered_at": moment(tool.discovered_at),
    }


def catalogue_tool(tool: Tool, status: ServerStatus) -> Object:
    return {
        **server_tool(tool),
        "server": {"id": tool.server_id, "name": tool.server_name, "status": status},
        "input_schema": _input_schema(tool.definition),
    }


def full_tool(tool: Tool, status: ServerStatus) -> Object:
    return {**catalogue_tool(tool, status), "definition": msgspec.Raw(tool.definition)}


def _input_schema(definition: bytes) -> msgspec.Raw:
    try:
        return msgspec.Raw(fields(definition).get("inputSchema", b"{}"))
    except Malformed:
        return msgspec.Raw(b"{}")


def server_health(server: Server, health: Health) -> Object:
    return {
        "server_id": server.id,
        "name": server.name,
        "status": server.status,
        "last_health_check": moment(health.last_check or server.last_health_check),
        "response_time_ms": health.response_time_ms,
        "consecutive_failures": health.consecutive_failures,
        "last_error": health.last_error,
    }


def history_entry(record: HistoryRecord) -> Object:
    return {
        "event": record.event,
        "timestamp": moment(record.timestamp),
        "details": dict(record.details),
    }


def api_key(key: ApiKey) -> Object:
    return {
        "id": key.id,
        "name": key.name,
        "scope": key.scope,
        "created_at": moment(key.created_at),
        "expires_at": moment(key.expires_at),
        "revoked_at": moment(key.revoked_at),
    }


def new_key(key: ApiKey, secret: str) -> Object:
    return {
        "id": key.id,
        "name": key.name,
        "scope": key.scope,
        "created_at": moment(key.created_at),
        "expires_at": moment(key.expires_at),
        "key": secret,
    }


def audit_record(record: AuditRecord) -> Object:
    return {
        "event": record.event,
        "server_id": record.server_id,
        "server_name": record.server_name,
        "actor": record.actor,
        "timestamp": moment(record.timestamp),
        "ip_address": record.ip_address,
        "details": dict(record.details),
    }


def state(found: GatewayState) -> Object:
    count = found.servers.get
    disconnected = count(ServerStatus.DISCONNECTED, 0) + count(ServerStatus.DISCONNECTING, 0)
    interval = found.health_interval
    return {
        "total_servers": sum(found.servers.values()),
        "connected_servers": _connected(found.servers),
        "disconnected_servers": disconnected,
        "error_servers": count(ServerStatus.ERROR, 0),
        "connecting_servers": count(ServerStatus.CONNECTING, 0),
        "total_tools": found.total_tools,
        "classified_tools": found.classified_tools,
        "unclassified_tools": found.total_tools - found.classified_tools,
        "last_sync": moment(found.last_sync),
        "health_check_interval_seconds": int(interval) if interval == int(interval) else interval,
        "uptime_seconds": int(found.uptime_seconds),
    }


def health_report(report: HealthReport) -> Object:
    shown: Object = {
        "status": report.status,
        "checks": dict(report.checks),
        "servers": {
            "total": sum(report.servers.values()),
            "connected": _connected(report.servers),
            "error": report.servers.get(ServerStatus.ERROR, 0),
        },
    }
    if report.issues:
        shown["issues"] = list(report.issues)
    return shown


def _connected(servers: Mapping[ServerStatus, int]) -> int:
    """A degraded server is connected: it takes calls."""
    return sum(number for status, number in servers.items() if status.callable)
