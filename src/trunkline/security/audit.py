"""Makes the audit record of something somebody did. Keeping it is the store's, queueing it the core's."""

from collections.abc import Mapping
from datetime import datetime

from trunkline.model import AuditRecord, Principal, Server


def audit_record(
    event: str,
    by: Principal,
    now: datetime,
    *,
    server: Server | None = None,
    details: Mapping[str, object] | None = None,
) -> AuditRecord:
    """`details` must hold no secret: names of what changed, never values.

    Names of keys may repeat, so the id of the one that was used is kept with every record.
    """
    return AuditRecord(
        event=event,
        actor=by.name,
        timestamp=now,
        server_id=server.id if server else None,
        server_name=server.name if server else None,
        ip_address=by.ip,
        details={**(details or {}), "key_id": by.key_id},
    )
