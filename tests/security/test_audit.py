"""Proves what an audit record says of who did what to which server."""

from datetime import UTC, datetime

from trunkline.model import AuditRecord, Principal, Scope, Server, ServerStatus, Transport
from trunkline.security.audit import audit_record

NOW = datetime(2026, 11, 19, tzinfo=UTC)


def test_a_record_names_event_server_actor_time_and_address() -> None:
    """R-51"""
    server = Server(
        "id-1", "github", None, Transport.SSE, "v1.sealed", None, True, ServerStatus.DISCONNECTED,
        None, 0, None, NOW, NOW,
    )  # fmt: skip
    by = Principal("k1", "ann", Scope.ADMIN, "192.0.2.1")
    record = audit_record("server.updated", by, NOW, server=server, details={"changed": ["description"]})
    assert record == AuditRecord(
        "server.updated",
        "ann",
        NOW,
        "id-1",
        "github",
        "192.0.2.1",
        {"changed": ["description"], "key_id": "k1"},
    )
    assert "sealed" not in repr(record)


def test_a_record_of_no_server_names_none() -> None:
    """R-51"""
    record = audit_record("key.created", Principal("local", "local", Scope.ADMIN), NOW)
    assert (record.server_id, record.server_name, record.ip_address) == (None, None, None)
