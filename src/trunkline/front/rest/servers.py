"""The admin API's servers: register, list, show, change, connect, disconnect, remove; their tools and health.

Parses and answers; `core/gateway.py` decides. `{server}` in a path is an id or a name.
"""

from msgspec import UNSET

from trunkline.core.gateway import Gateway
from trunkline.errors import SealBroken
from trunkline.front.rest import server_shapes as shapes
from trunkline.front.rest.reading import given_in
from trunkline.front.rest.routes import Routes
from trunkline.front.rest.server_shapes import (
    ConnectAnswer,
    DisconnectAnswer,
    DisconnectOrder,
    FullServer,
    History,
    HistoryQuery,
    RefreshAnswer,
    RegisteredServer,
    ServerChange,
    ServerHealth,
    ServerList,
    ServerQuery,
    ServerRegistration,
    ServerTools,
)
from trunkline.front.rest.shapes import Reference
from trunkline.front.rest.tools import server_tool
from trunkline.model import Principal, Problem, Scope, ServerDraft, ServerPatch, ServerStatus


def build(gateway: Gateway) -> Routes:
    routes = Routes("/api/v1/aggregator/servers", "servers")

    def full(server: str) -> FullServer:
        found = gateway.get_server(server)
        problems, items = gateway.problems(found.id), gateway.item_counts(found.id)
        try:
            return shapes.full_server(found, gateway.masked_config(found.id), problems, items)
        except SealBroken as error:
            unreadable = Problem("configuration", found.name, error.detail)
            return shapes.full_server(found, None, (unreadable, *problems), items)

    @routes("POST", "", Scope.ADMIN, "Register a server", status=201)
    async def register(body: ServerRegistration, by: Principal) -> RegisteredServer:
        """It is stored when this is answered; unless auto_connect is false it is being connected then."""
        draft = ServerDraft(
            name=body.name,
            transport_type=body.transport_type,
            connection_config=body.connection_config,
            description=body.description,
            health_check_url=body.health_check_url,
            auto_connect=body.auto_connect,
        )
        return shapes.registered_server(await gateway.register(draft, by))

    @routes("GET", "", Scope.READ, "List the servers")
    async def list_servers(query: ServerQuery) -> ServerList:
        found, total = gateway.list_servers(status=query.status, limit=query.limit, offset=query.offset)
        listed = [
            shapes.listed_server(
                server,
                [server_tool(tool) for tool in gateway.tools_of(server.id)] if query.include_tools else UNSET,
            )
            for server in found
        ]
        return ServerList(servers=listed, total=total, limit=query.limit, offset=query.offset)

    @routes("GET", "/{server}", Scope.READ, "Show a server")
    async def get_server(server: Reference) -> FullServer:
        """With its configuration, in which secrets are masked, and why something of it is missing."""
        return full(server)

    @routes("PATCH", "/{server}", Scope.ADMIN, "Change a server")
    async def change(server: Reference, body: ServerChange, by: Principal) -> FullServer:
        """What is not given stays, and so does a secret whose mask is sent back."""
        changed = await gateway.change(server, ServerPatch(given_in(body)), by)
        return full(changed.id)

    @routes("DELETE", "/{server}", Scope.ADMIN, "Remove a server")
    async def remove(server: Reference, by: Principal) -> None:
        """Its calls in flight may end first; its tools go with it."""
        await gateway.remove(server, by)

    @routes("POST", "/{server}/connect", Scope.ADMIN, "Connect a server")
    async def connect(server: Reference, by: Principal) -> ConnectAnswer:
        found, was_connected = await gateway.connect(server, by)
        if was_connected:
            return ConnectAnswer(server_id=found.id, status=found.status, message="Server already connected")
        return ConnectAnswer(
            server_id=found.id, status=ServerStatus.CONNECTING, message="Connection initiated"
        )

    @routes("POST", "/{server}/disconnect", Scope.ADMIN, "Disconnect a server")
    async def disconnect(server: Reference, body: DisconnectOrder | None, by: Principal) -> DisconnectAnswer:
        """At once if no call is in flight; else it is DISCONNECTING until they have ended."""
        force = body is not None and body.force
        return shapes.disconnect_answer(await gateway.disconnect(server, force=force, by=by))

    @routes("GET", "/{server}/tools", Scope.READ, "List the tools of a server")
    async def tools_of(server: Reference) -> ServerTools:
        tools = gateway.tools_of(server)
        classified = sum(tool.is_classified for tool in tools)
        return ServerTools(
            tools=[server_tool(tool) for tool in tools],
            total=len(tools),
            classified=classified,
            unclassified=len(tools) - classified,
        )

    @routes("POST", "/{server}/tools/refresh", Scope.ADMIN, "List a server's tools anew", status=202)
    async def refresh(server: Reference, by: Principal) -> RefreshAnswer:
        found = await gateway.refresh(server, by)
        return RefreshAnswer(server_id=found.id, status="REFRESHING", message="Tool discovery initiated")

    @routes("GET", "/{server}/health", Scope.READ, "Show the health of a server")
    async def health_of(server: Reference) -> ServerHealth:
        return shapes.server_health(gateway.get_server(server), gateway.health_of(server))

    @routes("GET", "/{server}/history", Scope.READ, "Show the connection history of a server")
    async def history(server: Reference, query: HistoryQuery) -> History:
        found = gateway.get_server(server)
        return shapes.history(found.id, await gateway.history(found.id, limit=query.limit), query.limit)

    return routes
