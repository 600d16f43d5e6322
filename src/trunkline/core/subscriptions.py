"""Which resources somebody wants to hear of: one subscription at a server, however many clients want it.

A connection that is made again is told of all of them once more. What changed is published as an event
that names the resource; its listeners decide whom it concerns.
"""

import asyncio
import logging
from collections import Counter

from trunkline.core.events import Events
from trunkline.core.request_router import RequestRouter
from trunkline.errors import UpstreamError
from trunkline.model import Event
from trunkline.telemetry import start_apart
from trunkline.upstream.connection import Connection
from trunkline.wire import eras

log = logging.getLogger(__name__)


class Subscriptions:
    def __init__(self, *, router: RequestRouter, events: Events) -> None:
        self._router = router
        self._events = events
        self._wanted: dict[str, Counter[str]] = {}
        self._renewals: set[asyncio.Task[None]] = set()

    async def add(self, server_id: str, uri: str) -> None:
        """Raises `TrunklineError`; then nothing is subscribed."""
        wanted = self._wanted.setdefault(server_id, Counter())
        if not wanted[uri]:
            await self._router.on_connection(server_id, uri, lambda connection: connection.subscribe(uri))
        wanted[uri] += 1

    async def remove(self, server_id: str, uri: str) -> None:
        wanted = self._wanted.get(server_id, Counter())
        if wanted[uri] > 1:
            wanted[uri] -= 1
        elif wanted.pop(uri, 0):
            await self._router.on_connection(server_id, uri, lambda connection: connection.unsubscribe(uri))

    def on_connected(self, server_id: str, connection: Connection) -> None:
        """A new connection knows of none."""
        uris = [uri for uri, count in self._wanted.get(server_id, Counter()).items() if count]
        if uris:
            task = start_apart(self._renew(connection, uris))
            self._renewals.add(task)
            task.add_done_callback(self._renewals.discard)

    async def _renew(self, connection: Connection, uris: list[str]) -> None:
        for uri in uris:
            try:
                await connection.subscribe(uri)
            except UpstreamError as error:
                log.warning("%s: a subscription could not be renewed: %s", connection.name, error)

    def on_updated(self, server_id: str, server_name: str, params: bytes) -> None:
        uri = eras.updated_uri(params)
        if uri is not None:
            self._events.publish(Event("resource.updated", server_id, server_name, subject=uri))

    def forget(self, server_id: str) -> None:
        self._wanted.pop(server_id, None)

    async def close(self) -> None:
        for task in self._renewals:
            task.cancel()
        await asyncio.gather(*self._renewals, return_exceptions=True)
