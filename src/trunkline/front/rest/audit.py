"""The admin API's audit: who did what to which server, newest first."""

from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta

from trunkline.core.gateway import Gateway
from trunkline.front.rest.routes import Routes
from trunkline.front.rest.shapes import Moment, Page, Reference, Said, moment
from trunkline.model import AuditRecord, Scope
from trunkline.ports import AuditFilter


class AuditQuery(Page):
    event: str | None = None
    server: Reference | None = None
    actor: str | None = None
    since: Annotated[
        datetime | None,
        Meta(description="ISO 8601; without a zone it is UTC.", extra_json_schema={"format": "date-time"}),
    ] = None


class AuditEntry(Said):
    event: str
    server_id: str | None
    server_name: str | None
    actor: str
    timestamp: Moment
    ip_address: str | None
    details: dict[str, Any]


class AuditList(Said):
    records: list[AuditEntry]
    total: int
    limit: int
    offset: int


def build(gateway: Gateway) -> Routes:
    routes = Routes("/api/v1/aggregator/audit", "audit")

    @routes("GET", "", Scope.READ, "Read the audit")
    async def read_audit(query: AuditQuery) -> AuditList:
        """The newest record comes first."""
        wanted = AuditFilter(
            event=query.event,
            server=query.server,
            actor=query.actor,
            since=query.since,
            limit=query.limit,
            offset=query.offset,
        )
        records, total = await gateway.read_audit(wanted)
        shown = [_entry(record) for record in records]
        return AuditList(records=shown, total=total, limit=query.limit, offset=query.offset)

    return routes


def _entry(record: AuditRecord) -> AuditEntry:
    return AuditEntry(
        event=record.event,
        server_id=record.server_id,
        server_name=record.server_name,
        actor=record.actor,
        timestamp=moment(record.timestamp),
        ip_address=record.ip_address,
        details=dict(record.details),
    )
