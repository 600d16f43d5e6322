"""The admin API's servers: register, list, show, change, connect, disconnect, remove; their tools and health.

Parses and answers; `core/gateway.py` decides. `{server}` in an address is an id or a name.
"""

from typing import Annotated

from fastapi import APIRouter, Query, Response

from trunkline.core.gateway import Gateway
from trunkline.errors import SealBroken
from trunkline.front.rest import shapes
from trunkline.front.rest.access import ADMIN, READ
from trunkline.front.rest.requests import (
    DisconnectOrder,
    HistoryQuery,
    ServerChange,
    ServerQuery,
    ServerRegistration,
)
from trunkline.front.rest.shapes import Json, Object
from trunkline.model import Disconnection, Principal, Problem, ServerDraft, ServerPatch, ServerStatus


def build(gateway: Gateway) -> APIRouter:
    router = APIRouter(prefix="/api/v1/aggregator/servers", tags=["servers"])

    def full(server: str) -> Object:
        found = gateway.get_server(server)
        problems, items = gateway.problems(found.id), gateway.item_counts(found.id)
        try:
            return shapes.full_server(found, gateway.masked_config(found.id), problems, items)
        except SealBroken as error:
            unreadable = Problem("configuration", found.name, error.detail)
            return shapes.full_server(found, None, (unreadable, *problems), items)

    @router.post("", status_code=201)
    async def register(body: ServerRegistration, by: Principal = ADMIN) -> Json:
        draft = ServerDraft(
            name=body.name,
            transport_type=body.transport_type,
            connection_config=body.connection_config,
            description=body.description,
            health_check_url=body.health_check_url,
            auto_connect=body.auto_connect,
        )
        return Json(shapes.registered_server(await gateway.register(draft, by)), 201)

    @router.get("", dependencies=[READ])
    async def list_servers(query: Annotated[ServerQuery, Query()]) -> Json:
        servers, total = gateway.list_servers(status=query.status, limit=query.limit, offset=query.offset)
        listed = [shapes.listed_server(server) for server in servers]
        if query.include_tools:
            for entry, server in zip(listed, servers, strict=True):
                entry["tools"] = [shapes.server_tool(tool) for tool in gateway.tools_of(server.id)]
        return Json({"servers": listed, "total": total, "limit": query.limit, "offset": query.offset})

    @router.get("/{server}", dependencies=[READ])
    async def get_server(server: str) -> Json:
        return Json(full(server))

    @router.patch("/{server}")
    async def change(server: str, body: ServerChange, by: Principal = ADMIN) -> Json:
        changes = body.model_dump(exclude_unset=True)
        changed = await gateway.change(server, ServerPatch(changes), by)
        return Json(full(changed.id))

    @router.delete("/{server}", status_code=204)
    async def remove(server: str, by: Principal = ADMIN) -> Response:
        await gateway.remove(server, by)
        return Response(status_code=204)

    @router.post("/{server}/connect")
    async def connect(server: str, by: Principal = ADMIN) -> Json:
        found, was_connected = await gateway.connect(server, by)
        if was_connected:
            return Json(_connection(found.id, found.status, "Server already connected"))
        return Json(_connection(found.id, ServerStatus.CONNECTING, "Connection initiated"))

    @router.post("/{server}/disconnect")
    async def disconnect(server: str, body: DisconnectOrder | None = None, by: Principal = ADMIN) -> Json:
        force = body is not None and body.force
        return Json(_disconnection(await gateway.disconnect(server, force=force, by=by)))

    @router.get("/{server}/tools", dependencies=[READ])
    async def tools_of(server: str) -> Json:
        tools = gateway.tools_of(server)
        classified = sum(tool.is_classified for tool in tools)
        return Json(
            {
                "tools": [shapes.server_tool(tool) for tool in tools],
                "total": len(tools),
                "classified": classified,
                "unclassified": len(tools) - classified,
            }
        )

    @router.post("/{server}/tools/refresh", status_code=202)
    async def refresh(server: str, by: Principal = ADMIN) -> Json:
        found = await gateway.refresh(server, by)
        answer = {"server_id": found.id, "status": "REFRESHING", "message": "Tool discovery initiated"}
        return Json(answer, 202)

    @router.get("/{server}/health", dependencies=[READ])
    async def health_of(server: str) -> Json:
        return Json(shapes.server_health(gateway.get_server(server), gateway.health_of(server)))

    @router.get("/{server}/history", dependencies=[READ])
    async def history(server: str, query: Annotated[HistoryQuery, Query()]) -> Json:
        found = gateway.get_server(server)
        records = await gateway.history(found.id, limit=query.limit)
        entries = [shapes.history_entry(record) for record in records]
        return Json({"server_id": found.id, "history": entries, "limit": query.limit})

    return router


def _connection(server_id: str, status: ServerStatus, message: str) -> Object:
    return {"server_id": server_id, "status": status, "message": message}


def _disconnection(found: Disconnection) -> Object:
    waiting = found.pending_requests
    message = "Server disconnected successfully"
    if found.status is ServerStatus.DISCONNECTING:
        message = f"Waiting for {waiting} pending request{'' if waiting == 1 else 's'} to complete"
    return {
        "server_id": found.server_id,
        "status": found.status,
        "pending_requests": waiting,
        "message": message,
    }
