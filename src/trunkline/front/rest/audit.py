"""The admin API's audit: who did what to which server, newest first."""

from typing import Annotated

from fastapi import APIRouter, Query

from trunkline.core.gateway import Gateway
from trunkline.front.rest import shapes
from trunkline.front.rest.access import READ
from trunkline.front.rest.requests import AuditQuery
from trunkline.front.rest.shapes import Json
from trunkline.ports import AuditFilter


def build(gateway: Gateway) -> APIRouter:
    router = APIRouter(prefix="/api/v1/aggregator/audit", tags=["audit"])

    @router.get("", dependencies=[READ])
    async def read_audit(query: Annotated[AuditQuery, Query()]) -> Json:
        records, total = await gateway.read_audit(AuditFilter(**dict(query)))
        listed = [shapes.audit_record(record) for record in records]
        return Json({"records": listed, "total": total, "limit": query.limit, "offset": query.offset})

    return router
