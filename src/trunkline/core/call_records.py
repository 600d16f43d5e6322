"""What the audit keeps of a call and of what was done to a task: who, which and how it ended, never contents.

Pure. `gateway.py` queues them.
"""

from datetime import datetime

from trunkline.model import AuditRecord, Call, Errand, Principal, Server
from trunkline.security.audit import audit_record
from trunkline.wire import tasks


def record_of_call(call: Call, server: Server | None, ended: str, now: datetime) -> AuditRecord:
    details = {"tool": _canonical(call, server), "request_id": call.request_id, "outcome": ended}
    return audit_record("tool.called", call.principal, now, server=server, details=details)


def record_of_task(
    errand: Errand, by: Principal, server: Server | None, ended: str, request_id: str, now: datetime
) -> AuditRecord:
    """Not which task: a server's id of one may be all that protects it."""
    event = "task.cancelled" if errand.method == tasks.CANCEL else "task.updated"
    details = {"request_id": request_id, "outcome": ended}
    return audit_record(event, by, now, server=server, details=details)


def _canonical(call: Call, server: Server | None) -> str:
    """What was called, as people name it; a call that names its server apart may leave that out."""
    if server is None or call.server_id is None or call.name.startswith(f"{server.name}."):
        return call.name
    return f"{server.name}.{call.name}"
