"""The admin API's tools: the catalogue of all servers, and one tool with its definition verbatim.

Calling a tool is only described here: `front/tool_call.py` answers `POST /api/v1/tools/call`, and is asked
before the table of routes is.
"""

from typing import Annotated, Any

import msgspec
from msgspec import Meta, field

from trunkline.core.gateway import Gateway
from trunkline.front import tool_call
from trunkline.front.rest.routes import Operation, Routes
from trunkline.front.rest.shapes import Moment, Order, Page, Reference, Said, moment
from trunkline.model import Scope, ServerStatus, Tool
from trunkline.wire.jsonrpc import Malformed, fields

RawObject = Annotated[msgspec.Raw, Meta(extra_json_schema={"type": "object"})]
"""As the bytes its server sent."""


class ToolQuery(Page):
    server: Reference | None = None


class ServerTool(Said, kw_only=True):
    id: str
    name: str
    original_name: str
    description: str
    skill_ids: list[str]
    primary_skill_id: str | None
    is_classified: bool
    discovered_at: Moment


class ServerOfTool(Said):
    id: str
    name: str
    status: ServerStatus


class CatalogueTool(ServerTool, kw_only=True):
    server: ServerOfTool
    input_schema: RawObject


class ToolList(Said):
    tools: list[CatalogueTool]
    total: int
    limit: int
    offset: int


class FullTool(CatalogueTool, kw_only=True):
    definition: RawObject


class ToolCall(Order, kw_only=True):
    """How `tool_call.read_call` reads a body, in words."""

    name: Annotated[str, Meta(min_length=1, max_length=tool_call.LONGEST_NAME)]
    arguments: dict[str, Any] | None = None
    server_id: str | None = None


class ToolResult(Said, kw_only=True):
    """What the server sent, with `metadata`; further fields of the server's pass unchanged."""

    content: list[Any]
    is_error: bool = field(name="isError")
    metadata: dict[str, Any]


CALL = Operation(
    method="POST",
    path=tool_call.PATH,
    scope=Scope.CALL,
    name="call_tool",
    summary="Call a tool",
    description="The result comes back as the server sent it, with `metadata`: isError says whether the tool "
    "is content.",
    tag="tools",
    body=ToolCall,
    says=ToolResult,
)


def build(gateway: Gateway) -> Routes:
    routes = Routes("/api/v1/tools", "tools")
    routes.elsewhere.append(CALL)

    def status_of(tool: Tool) -> ServerStatus:
        return gateway.get_server(tool.server_id).status

    @routes("GET", "", Scope.READ, "List the tools of all servers")
    async def list_tools(query: ToolQuery) -> ToolList:
        tools, total = gateway.list_tools(server=query.server, limit=query.limit, offset=query.offset)
        listed = [catalogue_tool(tool, status_of(tool)) for tool in tools]
        return ToolList(tools=listed, total=total, limit=query.limit, offset=query.offset)

    @routes("GET", "/{name:path}", Scope.READ, "Show a tool")
    async def get_tool(name: Annotated[str, Meta(max_length=tool_call.LONGEST_NAME)]) -> FullTool:
        """With its definition as its server sent it."""
        tool = gateway.get_tool(name)
        return full_tool(tool, status_of(tool))

    return routes


def server_tool(tool: Tool) -> ServerTool:
    return ServerTool(**_in_every_list(tool))


def catalogue_tool(tool: Tool, status: ServerStatus) -> CatalogueTool:
    return CatalogueTool(**_in_every_list(tool), **_in_the_catalogue(tool, status))


def full_tool(tool: Tool, status: ServerStatus) -> FullTool:
    return FullTool(
        **_in_every_list(tool),
        **_in_the_catalogue(tool, status),
        definition=msgspec.Raw(tool.definition),
    )


def _in_every_list(tool: Tool) -> dict[str, Any]:
    return {
        "id": str(tool.id),
        "name": tool.name,
        "original_name": tool.original_name,
        "description": tool.description,
        "skill_ids": list(tool.skill_ids),
        "primary_skill_id": tool.primary_skill_id,
        "is_classified": tool.is_classified,
        "discovered_at": moment(tool.discovered_at),
    }


def _in_the_catalogue(tool: Tool, status: ServerStatus) -> dict[str, Any]:
    return {
        "server": ServerOfTool(id=tool.server_id, name=tool.server_name, status=status),
        "input_schema": _input_schema(tool.definition),
    }


def _input_schema(definition: bytes) -> msgspec.Raw:
    try:
        return msgspec.Raw(fields(definition).get("inputSchema", b"{}"))
    except Malformed:
        return msgspec.Raw(b"{}")
