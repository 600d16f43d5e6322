"""The admin API's tools: the catalogue of all servers, and one tool with its definition verbatim.

Calling a tool is not here: `front/tool_call.py` serves `POST /api/v1/tools/call` without a framework.
"""

from typing import Annotated

from fastapi import APIRouter, Path, Query

from trunkline.core.gateway import Gateway
from trunkline.front.rest import shapes
from trunkline.front.rest.access import READ
from trunkline.front.rest.requests import ToolQuery
from trunkline.front.rest.shapes import Json
from trunkline.front.tool_call import LONGEST_NAME


def build(gateway: Gateway) -> APIRouter:
    router = APIRouter(prefix="/api/v1/tools", tags=["tools"])

    @router.get("", dependencies=[READ])
    async def list_tools(query: Annotated[ToolQuery, Query()]) -> Json:
        tools, total = gateway.list_tools(server=query.server, limit=query.limit, offset=query.offset)
        owners = {tool.server_id for tool in tools}
        statuses = {server: gateway.get_server(server).status for server in owners}
        listed = [shapes.catalogue_tool(tool, statuses[tool.server_id]) for tool in tools]
        return Json({"tools": listed, "total": total, "limit": query.limit, "offset": query.offset})

    @router.get("/{name:path}", dependencies=[READ])
    async def get_tool(name: Annotated[str, Path(max_length=LONGEST_NAME)]) -> Json:
        tool = gateway.get_tool(name)
        return Json(shapes.full_tool(tool, gateway.get_server(tool.server_id).status))

    return router
