"""From a call to its outcome: which server, which connection, once or twice, and what a failure means.

The look-up is a dictionary's; nothing here touches the database. A call is sent again only when it had
certainly not been sent, or when its tool says that repeating it does no harm; else the caller is told
that the outcome is unknown. Foreign errors become answers here and nowhere else.
"""

import time
from collections.abc import Awaitable, Callable
from dataclasses import replace

import msgspec

from trunkline.core.catalog import Catalog
from trunkline.core.server_registry import ServerRegistry
from trunkline.core.tool_aggregator import ToolAggregator
from trunkline.errors import (
    CallTimeout,
    CredentialsRejected,
    ExecutionFailed,
    Lost,
    NotSent,
    ProtocolViolation,
    RpcError,
    ServerUnavailable,
    SessionNotFound,
    ToolAmbiguous,
    ToolNotFound,
    TooManyCalls,
    TrunklineError,
    UpstreamBusy,
    UpstreamError,
    UpstreamTimeout,
)
from trunkline.model import Call, Errand, Outcome, Server, ServerStatus, Tool
from trunkline.telemetry import CallMeters, Metrics
from trunkline.upstream.connection import Connection
from trunkline.upstream.session_manager import SessionManager
from trunkline.upstream.waiting import carry_to_the_end, takes_task
from trunkline.wire import tasks
from trunkline.wire.jsonrpc import quote

RETURN_SECONDS = 5.0
"""How long a call that was not sent waits for a connection that is just being made again."""
LISTING_SECONDS = 5.0
"""How long a call to an unknown tool waits for a listing of its server that is under way."""
RETRY_AFTER = 5


class RequestRouter:
    def __init__(
        self,
        *,
        registry: ServerRegistry,
        aggregator: ToolAggregator,
        sessions: SessionManager,
        metrics: Metrics,
        on_attempt: Callable[[Server, Connection, UpstreamError | None], None],
        most_calls: int,
    ) -> None:
        self._registry = registry
        self._aggregator = aggregator
        self._sessions = sessions
        self._metrics = metrics
        self._most_calls = most_calls
        self._on_attempt = on_attempt
        """Passive health: hears of every attempt how it ended."""

    def look_up(self, name: str) -> Tool:
        """Raises `ToolNotFound`, `ToolAmbiguous`."""
        catalog = self._aggregator.catalog
        return catalog.by_name.get(name) or self._by_original(name, catalog)

    async def route(self, call: Call) -> Outcome:
        """Raises `TrunklineError` only."""
        started = time.perf_counter()
        tool, server = await self._resolve(call)
        errand = Errand(
            method="tools/call",
            params=b'"name":%b,"arguments":%b%b%b'
            % (quote(tool.original_name), call.arguments, b"," if call.members else b"", call.members),
            subject=tool.original_name,
            mirrored=tool.header_parameters,
            arguments=call.arguments,
            answers=call.answers,
            counterpart=call.counterpart,
        )
        meters = self._metrics.calls_of(server.name)
        try:
            return await self._execute(errand, tool.read_only or tool.idempotent, server, meters, started)
        except UpstreamError as error:
            meters.ended(_verdict(error))
            server = self._registry.find(server.id) or replace(server, status=ServerStatus.DISCONNECTED)
            raise _refusal(error, server, tool.original_name, time.perf_counter() - started) from None
        except TrunklineError:
            meters.ended("unavailable")
            raise

    async def relay(self, server_id: str, errand: Errand) -> Outcome:
        """Any other request, which does no harm when it is sent twice. Raises `TrunklineError` only."""
        started = time.perf_counter()
        server = self._registry.get(server_id)
        try:
            return await self._execute(errand, True, server, None, started)
        except UpstreamError as error:
            subject = errand.method if errand.method in tasks.METHODS else errand.subject or errand.method
            raise _refusal(error, server, subject, time.perf_counter() - started) from None

    async def on_connection(
        self, server_id: str, subject: str, act: Callable[[Connection], Awaitable[None]]
    ) -> None:
        """Do something with a server's connection. Raises `TrunklineError` only."""
        started = time.perf_counter()
        server = self._registry.get(server_id)
        try:
            await act(await self._connection(server))
        except UpstreamError as error:
            raise _refusal(error, server, subject, time.perf_counter() - started) from None

    # Which tool

    async def _resolve(self, call: Call) -> tuple[Tool, Server]:
        try:
            return self._look_up(call)
        except ToolNotFound:
            server = self._server_meant(call)
            if server is None:
                raise
            if self._aggregator.is_listing(server.id):
                await self._aggregator.settled(server.id, LISTING_SECONDS)
                return self._look_up(call)
            if not server.status.callable and server.id not in self._aggregator.catalog.by_server:
                raise _unavailable(server) from None  # nobody knows yet what it has
            raise

    def _look_up(self, call: Call) -> tuple[Tool, Server]:
        if call.server_id is None:
            tool = self.look_up(call.name)
            return tool, self._registry.get(tool.server_id)
        server = self._registry.get(call.server_id)
        catalog = self._aggregator.catalog
        tools = catalog.tools_of(server.id)
        found = tools.get(call.name) or tools.get(call.name.removeprefix(server.name + "."))
        if found is None:
            raise _not_found(call.name, catalog)
        return found, server

    def _by_original(self, name: str, catalog: Catalog) -> Tool:
        found = catalog.by_original.get(name, ())
        if not found:
            raise _not_found(name, catalog)
        if len(found) > 1:
            candidates = sorted(tool.name for tool in found)
            raise ToolAmbiguous(
                f"Several servers have a tool named {name}: call {candidates[0]}, or give a server_id",
                extra={"candidates": candidates},
            )
        return found[0]

    def _server_meant(self, call: Call) -> Server | None:
        if call.server_id is not None:
            return self._registry.find(call.server_id)
        prefix, dot, _ = call.name.partition(".")
        return self._registry.named(prefix) if dot else None

    # Doing it

    async def _execute(
        self, errand: Errand, repeatable: bool, server: Server, meters: CallMeters | None, started: float
    ) -> Outcome:
        connection = await self._connection(server)
        if connection.in_flight >= self._most_calls:
            raise _busy(server, self._most_calls)
        attempt = 1
        routing = time.perf_counter() - started
        if meters is not None:
            meters.routed(routing)
        while True:
            sending = time.perf_counter()
            if meters is not None:
                meters.sent()
            try:
                result = await carry_to_the_end(connection, errand)
            except UpstreamError as error:
                self._on_attempt(server, connection, error)
                unsent = isinstance(error, NotSent)
                harmless = isinstance(error, Lost) and repeatable
                if attempt > 1 or not (unsent or harmless):
                    raise
                attempt += 1
                connection = await self._returned(server, connection, error)
                continue
            finally:
                if meters is not None:
                    meters.returned()
            self._on_attempt(server, connection, None)
            ended = time.perf_counter()
            task = takes_task(errand) and tasks.is_task(result)
            if meters is not None:
                meters.ended("task" if task else "ok", ended - sending)
            return Outcome(
                result=result,
                server_id=server.id,
                server_name=server.name,
                routing_ms=routing * 1000,
                execution_ms=(ended - sending) * 1000,
                warning=_warning(self._registry.find(server.id) or server),
                modern=connection.introduction.modern,
                task=task,
            )

    async def _connection(self, server: Server) -> Connection:
        connection = self._sessions.get(server.id)
        if server.status.callable:
            connection = connection or await self._sessions.wait_for(server.id, RETURN_SECONDS)
            if connection is None:
                raise SessionNotFound(
                    f"No session with {server.name}, and it could not be made again in time",
                    extra=_server_part(server),
                    retry_after=RETRY_AFTER,
                )
            return connection
        coming = server.status is ServerStatus.CONNECTING  # its tools may be listed a moment before it serves
        returning = server.status is ServerStatus.ERROR and server.connected_at is not None
        if coming or returning:
            connection = await self._sessions.wait_for(server.id, RETURN_SECONDS)
            if connection is not None:
                return connection
        raise _unavailable(self._registry.find(server.id) or server)

    async def _returned(self, server: Server, failed: Connection, error: UpstreamError) -> Connection:
        """The connection to try again on: another one, or the same when it is still good."""
        if failed.alive:
            return failed
        connection = await self._sessions.wait_for(server.id, RETURN_SECONDS)
        if connection is None:
            raise error
        return connection


def _warning(server: Server) -> str | None:
    if server.status is not ServerStatus.DEGRADED:
        return None
    return f"{server.name} is degraded: its last health checks failed"


def _not_found(name: str, catalog: Catalog) -> ToolNotFound:
    near = catalog.near(name)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    return ToolNotFound(f"Tool not found: {name}{hint}", context={"nearest": near})


def _server_part(server: Server) -> dict[str, object]:
    return {"server": {"id": server.id, "name": server.name, "status": server.status.value}}


def _unavailable(server: Server) -> ServerUnavailable:
    context = {"reason": server.error_message} if server.error_message else {}
    return ServerUnavailable(
        f"Server unavailable: {server.name}",
        extra=_server_part(server),
        context=context,
        retry_after=RETRY_AFTER,
    )


def _busy(server: Server, most: int) -> TooManyCalls:
    return TooManyCalls(
        f"{server.name} has {most} calls under way, the most MCP_AGGREGATOR_MAX_CALLS_PER_SERVER allows",
        extra=_server_part(server),
        retry_after=1,
    )


def _verdict(error: UpstreamError) -> str:
    match error:
        case RpcError():
            return "rpc_error"
        case UpstreamTimeout():
            return "timeout"
        case Lost():
            return "lost"
        case _:
            return "unavailable"


def _refusal(error: UpstreamError, server: Server, subject: str, seconds: float) -> TrunklineError:
    context: dict[str, object] = {
        "tool": f"{server.name}.{subject}",
        "transport": server.transport.value,
        "phase": error.phase,
        "elapsed_ms": round(seconds * 1000, 1),
        "reason": error.reason,
    }
    extra = _server_part(server)
    match error:
        case RpcError():
            data = msgspec.Raw(error.data) if error.data else None
            context |= {"code": error.rpc_code, "message": error.message, "data": data}
            return ExecutionFailed(
                f"{server.name} answered with an error: {error.message}", context=context, extra=extra
            )
        case ProtocolViolation():
            return ExecutionFailed(
                f"{server.name} did not answer as the protocol asks: {error.reason}",
                context=context | {"outcome": "unknown"},
                extra=extra,
            )
        case UpstreamTimeout():
            return CallTimeout(
                f"{server.name} gave {error.reason}; the call was cancelled",
                context=context | {"outcome": "unknown"},
                extra=extra,
            )
        case Lost():
            return ServerUnavailable(
                f"The connection to {server.name} was lost while {subject} was running: "
                f"outcome unknown, it may or may not have been carried out ({error.reason})",
                context=context | {"outcome": "unknown"},
                extra=extra,
                retry_after=RETRY_AFTER,
            )
        case UpstreamBusy():
            return ServerUnavailable(
                f"{server.name} asks for patience: {error.reason}",
                context=context | {"outcome": "not_sent"},
                extra=extra,
                retry_after=error.retry_after or RETRY_AFTER,
            )
        case CredentialsRejected():
            return ServerUnavailable(
                f"{server.name} refused the gateway's credentials: {error.reason}",
                context=context | {"outcome": "failed"},
                extra=extra,
            )
        case _:
            return ServerUnavailable(
                f"Server unavailable: {server.name}",
                context=context | {"outcome": "not_sent"},
                extra=extra,
                retry_after=RETRY_AFTER,
            )
