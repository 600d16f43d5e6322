"""The admin API's keys: make one, list them, revoke one. A secret is answered once, when it is made."""

from datetime import UTC, datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Query, Response

from trunkline.core.gateway import Gateway
from trunkline.front.rest import shapes
from trunkline.front.rest.access import ADMIN, READ
from trunkline.front.rest.requests import KeyOrder, Page
from trunkline.front.rest.shapes import Json
from trunkline.model import Principal


def build(gateway: Gateway) -> APIRouter:
    router = APIRouter(prefix="/api/v1/aggregator/keys", tags=["keys"])

    @router.post("", status_code=201)
    async def create_key(body: KeyOrder, by: Principal = ADMIN) -> Json:
        expires_at = None
        if body.expires_in_days is not None:
            expires_at = datetime.now(UTC) + timedelta(days=body.expires_in_days)
        key, secret = await gateway.create_key(body.name, body.scope, expires_at=expires_at, by=by)
        return Json(shapes.new_key(key, secret), 201)

    @router.get("", dependencies=[READ])
    async def list_keys(query: Annotated[Page, Query()]) -> Json:
        keys = gateway.list_keys()
        shown = keys[query.offset : query.offset + query.limit]
        listed = [shapes.api_key(key) for key in shown]
        return Json({"keys": listed, "total": len(keys), "limit": query.limit, "offset": query.offset})

    @router.delete("/{key_id}", status_code=204)
    async def revoke_key(key_id: str, by: Principal = ADMIN) -> Response:
        await gateway.revoke_key(key_id, by)
        return Response(status_code=204)

    return router
