"""Desired state: which servers there are, how to reach them, whether they should be connected.

Validates, seals and persists; holds every server in memory; moves their status along the one state
machine. A change the operator asked for is durable when it returns. It opens no connection: the gateway
reconciles what is wanted with what is.
"""

import logging
import re
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from trunkline.core.journal import Journal
from trunkline.errors import FieldError, SealBroken, ServerAlreadyExists, ServerNotFound, ValidationError
from trunkline.model import (
    Era,
    HistoryEvent,
    Principal,
    ReachableSpec,
    Server,
    ServerDraft,
    ServerPatch,
    ServerSpec,
    ServerStatus,
    StatusMove,
)
from trunkline.ports import Cipher, Clock, SpecPolicy, Store
from trunkline.security.audit import audit_record
from trunkline.security.configuration import (
    has_mask,
    masked,
    merge_masked,
    read_spec,
    spec_from_json,
    spec_to_json,
)
from trunkline.settings import CREDENTIAL_KEY
from trunkline.wire.names import prefix_of

log = logging.getLogger(__name__)

_NAME = re.compile(r"[a-z][a-z0-9_-]*")
LONGEST_NAME = 255
LONGEST_DESCRIPTION = 1000
HEALTHY_SHARE = 0.8
"""Of the servers that should be connected; the share below which the alert warns too."""

S = ServerStatus
MOVES: Mapping[ServerStatus, frozenset[ServerStatus]] = {
    S.DISCONNECTED: frozenset({S.CONNECTING}),
    S.CONNECTING: frozenset({S.CONNECTED, S.ERROR, S.DISCONNECTED}),
    S.CONNECTED: frozenset({S.DEGRADED, S.ERROR, S.DISCONNECTING, S.DISCONNECTED}),
    S.DEGRADED: frozenset({S.CONNECTED, S.ERROR, S.DISCONNECTING, S.DISCONNECTED}),
    S.ERROR: frozenset({S.CONNECTING, S.DISCONNECTED}),
    S.DISCONNECTING: frozenset({S.DISCONNECTED, S.CONNECTED}),
}
"""DISCONNECTING goes back to CONNECTED when somebody connects the server before it has drained."""

_EVENTS: Mapping[ServerStatus, HistoryEvent] = {
    S.CONNECTED: HistoryEvent.CONNECTED,
    S.DEGRADED: HistoryEvent.DEGRADED,
    S.ERROR: HistoryEvent.ERROR,
    S.DISCONNECTED: HistoryEvent.DISCONNECTED,
}


class IllegalMove(AssertionError):
    """A status move that the state machine does not have: a programming error."""


class ServerRegistry:
    def __init__(
        self,
        *,
        store: Store,
        cipher: Cipher,
        policy: SpecPolicy,
        clock: Clock,
        journal: Journal,
        max_servers: int,
    ) -> None:
        self._store = store
        self._cipher = cipher
        self._policy = policy
        self._clock = clock
        self._journal = journal
        self._max_servers = max_servers
        self._arriving = 0
        """Servers the database is just storing. They count: several at once must not exceed the limit."""
        self._servers: dict[str, Server] = {}
        self.version = 0
        """Another one whenever a server is another than before."""
        self._by_name: dict[str, str] = {}
        self._checks: dict[str, datetime] = {}
        """Health checks that are not stored yet: the last one of each server."""

    async def load(self) -> None:
        """After a start nothing is connected yet, whatever the database remembers.

        What an older key has sealed is sealed again, so that the operator can drop that key after one start.
        """
        resealed = 0
        for server in await self._store.load_servers():
            if server.status is not S.DISCONNECTED:
                move = StatusMove(server.id, server.status, S.DISCONNECTED, self._clock.now())
                await self._store.record_move(move)
            server = replace(server, status=S.DISCONNECTED)
            if not server.prefix:
                server = replace(server, prefix=self._free_prefix(server.name))
                await self._store.set_prefix(server.id, server.prefix)
            fresh = await self._sealed_by_current_key(server)
            resealed += fresh is not server
            self._put(fresh)
        self._warn_of_lost_keys()
        if resealed:
            log.info(
                "sealed again with the credential key that is first now: %d of %d",
                resealed,
                len(self._servers),
            )

    async def _sealed_by_current_key(self, server: Server) -> Server:
        """A row is a write of its own: a start that ends in between is continued by the next one."""
        if self._cipher.is_current(server.sealed_config):
            return server
        row = _row(server.id)
        try:
            plain = self._cipher.unseal(server.sealed_config, bound_to=row)
        except SealBroken:
            return server
        fresh = replace(server, sealed_config=self._cipher.seal(plain, bound_to=row))
        await self._store.update_server(fresh)
        return fresh

    def _warn_of_lost_keys(self) -> None:
        """Once for all of them, at the start: their operator may still have the key, and must be told."""
        shut = [server.name for server in self.all() if not self._opens(server)]
        if shut:
            log.warning(
                "%d of %d servers cannot be opened with the present credential key and stay unconnected: %s. "
                "Put the key that sealed them back, into %s or the file credential.key in the data folder, "
                "and start again; if it is lost, give each its whole configuration anew, or remove it",
                len(shut), len(self._servers), ", ".join(shut), CREDENTIAL_KEY,
            )  # fmt: skip

    def _opens(self, server: Server) -> bool:
        try:
            self.spec(server)
        except SealBroken:
            return False
        return True

    # Looking

    def get(self, reference: str) -> Server:
        """By id or by name. Raises `ServerNotFound`."""
        server = self.find(reference)
        if server is None:
            raise ServerNotFound(reference)
        return server

    def find(self, reference: str) -> Server | None:
        return self._servers.get(reference) or self.named(reference)

    def named(self, name: str) -> Server | None:
        server_id = self._by_name.get(name)
        return self._servers[server_id] if server_id else None

    def all(self) -> list[Server]:
        """Ordered by name."""
        return sorted(self._servers.values(), key=lambda server: server.name)

    def counts(self) -> dict[ServerStatus, int]:
        counts = dict.fromkeys(ServerStatus, 0)
        for server in self._servers.values():
            counts[server.status] += 1
        return counts

    def enough_serve(self) -> bool:
        """Whether so many of those that should be connected can be called that the whole is healthy."""
        wanted = [server for server in self._servers.values() if server.wanted]
        return sum(server.status.callable for server in wanted) >= HEALTHY_SHARE * len(wanted)

    def masked_config(self, server: Server) -> dict[str, Any]:
        return masked(self.spec(server))

    def spec(self, server: Server) -> ServerSpec:
        """Raises `SealBroken`."""
        return spec_from_json(self._cipher.unseal(server.sealed_config, bound_to=_row(server.id)))

    def reachable(self, server: Server) -> tuple[ReachableSpec, frozenset[str]]:
        """The configuration with everything filled in, and the secrets in it; for connecting only."""
        return self._policy.resolve(self.spec(server))

    # Changing, durable on return

    async def register(self, draft: ServerDraft, by: Principal) -> Server:
        faults = list(_plain_faults(draft.name, draft.description))
        if faults:
            raise ValidationError(faults)
        spec = self._admitted(draft.transport_type, draft.connection_config)
        if draft.health_check_url is not None:
            self._policy.admit_url(draft.health_check_url, "body", "health_check_url")
        if draft.name in self._by_name:
            raise ServerAlreadyExists(draft.name)
        present = len(self._servers) + self._arriving
        if present >= self._max_servers:
            raise ValidationError.at(
                "body",
                msg=f"There are {present} servers already, and the limit is {self._max_servers}: "
                "remove one, or raise MCP_AGGREGATOR_MAX_SERVERS",
            )
        now = self._clock.now()
        server_id = str(uuid.uuid4())
        server = Server(
            id=server_id,
            name=draft.name,
            description=draft.description,
            transport=spec.transport,
            sealed_config=self._seal(server_id, spec),
            health_check_url=draft.health_check_url,
            wanted=draft.auto_connect,
            status=S.DISCONNECTED,
            error_message=None,
            tool_count=0,
            era=None,
            registered_at=now,
            updated_at=now,
            prefix=self._free_prefix(draft.name),
        )
        self._arriving += 1
        try:
            await self._store.add_server(server, audit_record("server.registered", by, now, server=server))
            self._put(server)
        finally:
            self._arriving -= 1
        return server

    async def change(self, server: Server, patch: ServerPatch, by: Principal) -> Server:
        """Also answers whether the way to the server changed: then its `sealed_config` is another."""
        changed = server
        changes = patch.changes
        if "description" in changes:
            description = changes["description"]
            if description is not None and not isinstance(description, str):
                raise ValidationError.at("body", "description", msg="The description must be a text")
            faults = list(_plain_faults(server.name, description))
            if faults:
                raise ValidationError(faults)
            changed = replace(changed, description=description)
        if "health_check_url" in changes:
            url = changes["health_check_url"]
            if url is not None:
                if not isinstance(url, str):
                    raise ValidationError.at("body", "health_check_url", msg="It must be a URL")
                self._policy.admit_url(url, "body", "health_check_url")
            changed = replace(changed, health_check_url=url)
        if "connection_config" in changes:
            config = changes["connection_config"]
            if not isinstance(config, Mapping):
                raise ValidationError.at("body", "connection_config", msg="It must be an object")
            old = self._spec_under(config, server)
            merged = config if old is None else merge_masked(old, config)
            spec = self._admitted(server.transport.value, merged)
            if spec != old:
                changed = replace(changed, sealed_config=self._seal(server.id, spec), era=None)
        if changed == server:
            return server
        now = self._clock.now()
        changed = replace(changed, updated_at=now)
        details = {"changed": sorted(changes)}
        record = audit_record("server.updated", by, now, server=server, details=details)
        await self._store.update_server(changed, record)
        # Status and health may have moved on while the database worked.
        kept = self.get(server.id)
        changed = replace(
            kept,
            description=changed.description,
            health_check_url=changed.health_check_url,
            sealed_config=changed.sealed_config,
            era=changed.era,
            updated_at=now,
        )
        self._put(changed)
        return changed

    async def want(self, server: Server, wanted: bool, event: str, by: Principal) -> None:
        """Whether it should be connected, also after a restart."""
        now = self._clock.now()
        record = audit_record(event, by, now, server=server)
        await self._store.update_server(replace(server, wanted=wanted, updated_at=now), record)
        self._put(replace(self.get(server.id), wanted=wanted, updated_at=now))

    async def remove(self, server: Server, by: Principal) -> None:
        await self._journal.settle()
        record = audit_record("server.removed", by, self._clock.now(), server=server)
        await self._store.remove_server(server.id, record)
        self._servers.pop(server.id, None)
        self.version += 1
        self._by_name.pop(server.name, None)

    # Moving, stored behind the scenes

    def move(self, server_id: str, after: ServerStatus, error_message: str | None = None) -> Server | None:
        """One step along the state machine; None when the server is gone. Raises `IllegalMove`."""
        server = self._servers.get(server_id)
        if server is None:
            return None
        if after not in MOVES[server.status]:
            raise IllegalMove(f"{server.name}: {server.status} → {after}")
        now = self._clock.now()
        event = _EVENTS.get(after)
        if after is S.CONNECTING and server.status is S.ERROR:
            event = HistoryEvent.RECONNECT
        fresh = after is S.CONNECTED and server.status is S.CONNECTING
        moved = replace(
            server,
            status=after,
            error_message=error_message,
            connected_at=now if fresh else server.connected_at,
            updated_at=now,
        )
        self._put(moved)
        move = StatusMove(server_id, server.status, after, now, error_message, event)
        self._journal.write(lambda: self._store.record_move(move))
        return moved

    def say(self, server_id: str, error_message: str) -> None:
        """Why it is not connected yet, while it still tries."""
        server = self._servers.get(server_id)
        if server is not None:
            self._put(replace(server, error_message=error_message))

    def note_era(self, server_id: str, era: Era) -> None:
        server = self._servers.get(server_id)
        if server is not None and server.era is not era:
            self._put(replace(server, era=era))
            self._journal.write_state(("era", server_id), lambda: self._store.remember_era(server_id, era))

    def note_tool_count(self, server_id: str, count: int) -> None:
        server = self._servers.get(server_id)
        if server is not None and server.tool_count != count:
            self._put(replace(server, tool_count=count))
            self._journal.write_state(
                ("tools", server_id), lambda: self._store.set_tool_count(server_id, count)
            )

    def note_checks(self, server_ids: Iterable[str]) -> None:
        now = self._clock.now()
        checked = {server_id: now for server_id in server_ids if server_id in self._servers}
        for server_id in checked:
            self._put(replace(self._servers[server_id], last_health_check=now))
        if checked:
            self._checks |= checked
            self._journal.write_state("checks", self._store_checks)

    async def _store_checks(self) -> None:
        """All that were made since they were stored the last time."""
        storing = dict(self._checks)
        await self._store.record_health(storing)
        self._checks = {
            server_id: at for server_id, at in self._checks.items() if storing.get(server_id) != at
        }

    # Inside

    def _spec_under(self, config: Mapping[str, object], server: Server) -> ServerSpec | None:
        """What a new configuration replaces; None where nobody can read that, nor has to."""
        try:
            return self.spec(server)
        except SealBroken:
            if has_mask(config):
                raise
            return None

    def _free_prefix(self, name: str) -> str:
        return prefix_of(name, {server.prefix for server in self._servers.values()})

    def _put(self, server: Server) -> None:
        self.version += 1
        self._servers[server.id] = server
        self._by_name[server.name] = server.id

    def _admitted(self, transport: str, config: Mapping[str, object]) -> ServerSpec:
        spec = read_spec(transport, config)
        self._policy.admit(spec)
        return spec

    def _seal(self, server_id: str, spec: ServerSpec) -> str:
        return self._cipher.seal(spec_to_json(spec), bound_to=_row(server_id))


def _row(server_id: str) -> str:
    return f"external_servers|{server_id}|connection_config"


def _plain_faults(name: str, description: str | None) -> Iterable[FieldError]:
    if not _NAME.fullmatch(name):
        yield FieldError(
            ("body", "name"),
            "A name starts with a lower-case letter and has only lower-case letters, digits, hyphens and "
            "underscores (^[a-z][a-z0-9_-]*$)",
        )
    if len(name) > LONGEST_NAME:
        yield FieldError(("body", "name"), f"A name has at most {LONGEST_NAME} characters, not {len(name)}")
    if description is not None and len(description) > LONGEST_DESCRIPTION:
        yield FieldError(
            ("body", "description"),
            f"A description has at most {LONGEST_DESCRIPTION} characters, not {len(description)}",
        )
