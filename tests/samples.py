"""Ordinary values to test with; a test changes what it is about."""

import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from trunkline.model import AuditRecord, Server, ServerStatus, Transport

NOON = datetime(2026, 11, 19, 12, 0, 0, 123456, tzinfo=UTC)


def new_server(name: str = "github-mcp", **changes: object) -> Server:
    server = Server(
        id=str(uuid.uuid4()),
        name=name,
        description="Issues and pull requests",
        transport=Transport.HTTP,
        sealed_config="v1.k1.sealed",
        health_check_url=None,
        wanted=True,
        status=ServerStatus.DISCONNECTED,
        error_message=None,
        tool_count=0,
        era=None,
        registered_at=NOON,
        updated_at=NOON,
    )
    return replace(server, **changes)  # type: ignore[arg-type]


def new_record(event: str = "server.registered", *, minutes: float = 0, **changes: object) -> AuditRecord:
    """An audit record of so many minutes after noon."""
    record = AuditRecord(event, "admin", NOON + timedelta(minutes=minutes))
    return replace(record, **changes)  # type: ignore[arg-type]
