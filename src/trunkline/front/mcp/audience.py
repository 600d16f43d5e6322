"""Who wants to hear of changes, and telling them: at most once a second, and only what did change.

A listener (an older client's session, a newer one's stream) sees one address. When a server was listed or
came or went, what that address shows is compared with what the listener was last told of.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping

from trunkline.core.gateway import Gateway
from trunkline.errors import ServerNotFound, TrunklineError
from trunkline.front.mcp.notices import KINDS_OF
from trunkline.model import Event
from trunkline.wire import eras, jsonrpc

log = logging.getLogger(__name__)

REST_SECONDS = 1.0
MOST_VISITS = 100
"""So many visits of one client may be waited for; word of older ones is dropped."""

Tell = Callable[[str, bytes], None]
"""Takes a notification's method and the members of its params; returns at once."""


class Ear:
    def __init__(self, view: str | None, kinds: set[str], tell: Tell) -> None:
        self.view = view
        self.kinds = kinds
        self.tell = tell
        self.known: Mapping[str, int] = {}
        self.uris: dict[tuple[str, str], str] = {}
        """(server id, URI there) → the URI as this listener knows it."""
        self._visits: deque[str] = deque(maxlen=MOST_VISITS)
        """Addresses its client's user was sent to, by the ids of the elicitations."""

    def expect(self, visit: str) -> None:
        """Its client wants to hear when this visit is over."""
        self._visits.append(visit)

    def on_visited(self, visit: str) -> None:
        """Said once, and only to whom was sent."""
        if visit in self._visits:
            self._visits.remove(visit)
            self.tell(eras.ELICITATION_COMPLETE, b'"elicitationId":' + jsonrpc.quote(visit))


class Audience:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._ears: set[Ear] = set()
        self._dirty = False
        self._timer: asyncio.TimerHandle | None = None
        self._closed = asyncio.Event()
        self._end = gateway.events.subscribe(self._on_event)

    @contextlib.asynccontextmanager
    async def listening(self, ear: Ear) -> AsyncIterator[None]:
        self.add(ear)
        try:
            yield
        finally:
            await self.remove(ear)

    def add(self, ear: Ear) -> None:
        ear.known = self._marks(ear)
        self._ears.add(ear)

    async def remove(self, ear: Ear) -> None:
        self._ears.discard(ear)
        for server_id, uri in list(ear.uris):
            with contextlib.suppress(TrunklineError):
                await self._gateway.unsubscribe(server_id, uri)
        ear.uris.clear()

    async def subscribe(self, ear: Ear, uri: str) -> bool:
        """Whether changes of this resource will be heard."""
        try:
            found = self._gateway.shelf(ear.view).resource_at(uri)
            if found is None:
                return False
            key = (found.server_id, found.key)
            if key not in ear.uris:
                await self._gateway.subscribe(*key)
                ear.uris[key] = uri
        except TrunklineError:
            return False
        return True

    async def unsubscribe(self, ear: Ear, uri: str) -> None:
        for key, known in list(ear.uris.items()):
            if known == uri:
                del ear.uris[key]
                with contextlib.suppress(TrunklineError):
                    await self._gateway.unsubscribe(*key)

    async def wait_closed(self) -> None:
        await self._closed.wait()

    def close(self) -> None:
        if self._closed.is_set():
            return
        self._end()
        self._closed.set()
        if self._timer is not None:
            self._timer.cancel()

    def _on_event(self, event: Event) -> None:
        if event.kind == "resource.updated":
            self._tell_updated(event)
            return
        if event.kind == "elicitation.completed":
            for ear in list(self._ears):
                ear.on_visited(event.subject or "")
            return
        self._dirty = True
        if self._timer is None and self._ears:
            self._timer = asyncio.get_running_loop().call_later(REST_SECONDS / 10, self._tell_changes)

    def _tell_updated(self, event: Event) -> None:
        for ear in list(self._ears):
            uri = ear.uris.get((event.server_id, event.subject or ""))
            if uri is not None:
                ear.tell(eras.RESOURCE_UPDATED, b'"uri":' + jsonrpc.quote(uri))

    def _tell_changes(self) -> None:
        """Then rest for a second, and look again if something happened meanwhile."""
        self._timer = None
        if not self._dirty:
            return
        self._dirty = False
        self._timer = asyncio.get_running_loop().call_later(REST_SECONDS, self._tell_changes)
        for ear in list(self._ears):
            now = self._marks(ear)
            changed = {KINDS_OF[method] for method in KINDS_OF if now.get(method) != ear.known.get(method)}
            ear.known = now
            for kind in sorted(changed & ear.kinds):
                ear.tell(f"notifications/{kind}/list_changed", b"")

    def _marks(self, ear: Ear) -> Mapping[str, int]:
        try:
            return self._gateway.shelf(ear.view).marks
        except ServerNotFound:
            return {}
