"""Makes what is what should be: connects, drains, resumes and takes down one server at a time.

The registry says what is wanted; the gateway's verbs change that and then come here, holding the server's
lock. Status moves first and connections after it, so that whoever is cut off is told how the server is now.
"""

import asyncio
import logging

from trunkline.core.server_registry import ServerRegistry
from trunkline.core.supervision import Supervision
from trunkline.core.tool_aggregator import ToolAggregator
from trunkline.errors import Lost
from trunkline.model import Server, ServerStatus
from trunkline.telemetry import start_apart
from trunkline.upstream.session_manager import SessionManager

log = logging.getLogger(__name__)

S = ServerStatus


class Reconciler:
    def __init__(
        self,
        *,
        registry: ServerRegistry,
        supervision: Supervision,
        sessions: SessionManager,
        aggregator: ToolAggregator,
        drain_timeout: float,
    ) -> None:
        self._registry = registry
        self._supervision = supervision
        self._sessions = sessions
        self._aggregator = aggregator
        self._drain_timeout = drain_timeout
        self._locks: dict[str, asyncio.Lock] = {}
        self._drains: dict[str, asyncio.Task[None]] = {}

    def lock(self, server_id: str) -> asyncio.Lock:
        """Of one server: what is wanted of it is done one after the other."""
        return self._locks.setdefault(server_id, asyncio.Lock())

    def begin(self, server: Server) -> None:
        """Its upkeep connects it; the status says so at once."""
        self._sessions.keep(server.id, server.name, server.era)
        self._supervision.on_connecting(server.id)

    async def connect(self, server: Server) -> None:
        if drain := self._drains.pop(server.id, None):
            drain.cancel()
        if server.status is S.DISCONNECTING:
            await self.resume(server.id)
        else:
            self.begin(server)

    async def resume(self, server_id: str) -> None:
        """It was draining, and is as it should be again."""
        server = self._registry.get(server_id)
        if server.wanted and self._sessions.get(server_id) is not None:
            self._supervision.move(server_id, S.CONNECTED)
            return
        await self.take_down(server, "the server was disconnected")
        if server.wanted:
            self.begin(server)

    def drain(self, server: Server) -> None:
        """Refuse new calls, and take it down when those under way have ended."""
        self._supervision.move(server.id, S.DISCONNECTING)
        self._drains[server.id] = start_apart(self._drain(server.id))

    async def _drain(self, server_id: str) -> None:
        await self.wait_idle(server_id)
        async with self.lock(server_id):
            server = self._registry.find(server_id)
            if server is not None and server.status is S.DISCONNECTING:
                await self.take_down(server, "the server was disconnected")

    async def wait_idle(self, server_id: str) -> None:
        """Until its calls have ended, within the time they get."""
        connection = self._sessions.get(server_id)
        if connection is not None and connection.in_flight:
            try:
                await asyncio.wait_for(connection.wait_idle(), self._drain_timeout)
            except TimeoutError:
                log.warning("%s: %d calls are cut off", connection.name, connection.in_flight)

    async def take_down(self, server: Server, reason: str) -> None:
        if self._registry.get(server.id).status is not S.DISCONNECTED:
            self._supervision.move(server.id, S.DISCONNECTED)
        self._sessions.fail(server.id, Lost(reason))
        await self._sessions.drop(server.id)
        await self._aggregator.stop(server.id)

    async def forget(self, server_id: str) -> None:
        """It was removed: nothing of it stays."""
        self._sessions.fail(server_id, Lost("the server was removed"))
        await self._sessions.drop(server_id)
        await self._aggregator.forget(server_id)
        self._locks.pop(server_id, None)
        self._drains.pop(server_id, None)
        self._supervision.forget(server_id)

    async def close(self) -> None:
        for drain in self._drains.values():
            drain.cancel()
        await asyncio.gather(*self._drains.values(), return_exceptions=True)
