"""Between rows and nouns: how each noun lies in its table. No statement is built or run here."""

import hashlib
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Row

from trunkline.model import (
    ApiKey,
    AuditRecord,
    Era,
    HistoryEvent,
    HistoryRecord,
    Item,
    ItemKind,
    Scope,
    Server,
    ServerStatus,
    StatusMove,
    Transport,
)
from trunkline.ports import StoredTool

Values = dict[str, object]


def operator_values(server: Server) -> Values:
    """What the operator may change."""
    return {
        "description": server.description,
        "connection_config": server.sealed_config,
        "health_check_url": server.health_check_url,
        "wanted": server.wanted,
        "era": server.era,
        "updated_at": server.updated_at,
    }


def server_values(server: Server) -> Values:
    return {
        **operator_values(server),
        "id": server.id,
        "name": server.name,
        "transport_type": server.transport,
        "status": server.status,
        "error_message": server.error_message,
        "tool_count": server.tool_count,
        "registered_at": server.registered_at,
        "connected_at": server.connected_at,
        "last_health_check": server.last_health_check,
        "prefix": server.prefix,
    }


def server_of(row: Row[Any]) -> Server:
    return Server(
        id=row.id,
        name=row.name,
        description=row.description,
        transport=Transport(row.transport_type),
        sealed_config=row.connection_config,
        health_check_url=row.health_check_url,
        wanted=row.wanted,
        status=ServerStatus(row.status),
        error_message=row.error_message,
        tool_count=row.tool_count,
        era=Era(row.era) if row.era else None,
        registered_at=row.registered_at,
        updated_at=row.updated_at,
        connected_at=row.connected_at,
        last_health_check=row.last_health_check,
        prefix=row.prefix or "",
    )


def move_values(move: StatusMove) -> Values:
    values: Values = {"status": move.after, "error_message": move.error_message, "updated_at": move.at}
    # A degraded server that recovers was connected all the time.
    if move.after is ServerStatus.CONNECTED and move.before is not ServerStatus.DEGRADED:
        values["connected_at"] = move.at
    return values


def history_values(move: StatusMove) -> Values:
    details: Values = {"from": move.before, "to": move.after}
    if move.error_message is not None:
        details["error_message"] = move.error_message
    return {"server_id": move.server_id, "event_type": move.event, "details": details, "timestamp": move.at}


def history_of(row: Row[Any]) -> HistoryRecord:
    return HistoryRecord(row.server_id, HistoryEvent(row.event_type), row.details, row.timestamp)


def tool_of(row: Row[Any]) -> StoredTool:
    return StoredTool(
        id=row.id,
        server_id=row.source_server_id,
        original_name=row.original_name,
        definition=row.definition,
        fingerprint=row.fingerprint,
        discovered_at=row.discovered_at,
        skill_ids=tuple(row.skill_ids),
        primary_skill_id=row.primary_skill_id,
        is_classified=row.is_classified,
    )


def key_digest(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def item_values(item: Item) -> Values:
    return {
        "source_server_id": item.server_id,
        "kind": item.kind,
        "key_digest": key_digest(item.key),
        "key": item.key,
        "definition": item.definition,
        "fingerprint": item.fingerprint,
    }


def item_of(row: Row[Any]) -> Item:
    return Item(ItemKind(row.kind), row.source_server_id, row.key, row.definition, row.fingerprint)


def key_values(key: ApiKey) -> Values:
    return {
        "id": key.id,
        "name": key.name,
        "scope": key.scope,
        "digest": key.digest,
        "created_at": key.created_at,
        "expires_at": key.expires_at,
        "revoked_at": key.revoked_at,
    }


def key_of(row: Row[Any]) -> ApiKey:
    return ApiKey(
        row.id, row.name, Scope(row.scope), row.digest, row.created_at, row.expires_at, row.revoked_at
    )


def audit_values(record: AuditRecord) -> Values:
    details: Mapping[str, object] = record.details
    return {
        "event": record.event,
        "actor": record.actor,
        "timestamp": record.timestamp,
        "server_id": record.server_id,
        "server_name": record.server_name,
        "ip_address": record.ip_address,
        "details": dict(details),
    }


def audit_of(row: Row[Any]) -> AuditRecord:
    return AuditRecord(
        row.event, row.actor, row.timestamp, row.server_id, row.server_name, row.ip_address, row.details
    )
