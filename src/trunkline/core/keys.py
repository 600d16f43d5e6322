"""API keys: who may come in, and making and revoking them. The secret of a key is known to its owner alone.

Judging a token is `security/keys.py`'s; this keeps its ring in step with the store and the audit.
"""

import asyncio
from dataclasses import replace
from datetime import datetime

from trunkline.errors import KeyNotFound, LastAdminKey, ValidationError
from trunkline.model import ApiKey, Principal, Scope
from trunkline.ports import Clock, Store
from trunkline.security.audit import audit_record
from trunkline.security.keys import KeyRing, issue

LOCAL = Principal("local", "local", Scope.ADMIN)
"""Everybody, where the operator has switched keys off; possible on loopback alone."""
LONGEST_NAME = 100


class Keys:
    def __init__(self, *, store: Store, clock: Clock, required: bool) -> None:
        self._store = store
        self._clock = clock
        self._required = required
        self._keys: dict[str, ApiKey] = {}
        self._ring = KeyRing()
        self._revoking = asyncio.Lock()

    async def load(self) -> None:
        self._keys = {key.id: key for key in await self._store.load_keys()}
        self._ring.replace(self._keys.values())

    def authenticate(self, token: bytes | None, ip: str | None) -> Principal:
        """Raises `Unauthorized`."""
        if not self._required:
            return replace(LOCAL, ip=ip)
        key = self._ring.authenticate(token, self._clock.now())
        return Principal(key.id, key.name, key.scope, ip)

    def all(self) -> list[ApiKey]:
        """The newest first."""
        return sorted(self._keys.values(), key=lambda key: (key.created_at, key.id), reverse=True)

    def has_admin(self, *, beside: str | None = None) -> bool:
        """Whether a key that works now may administer, and so make others."""
        now = self._clock.now()
        return any(
            key.scope.includes(Scope.ADMIN)
            and key.revoked_at is None
            and (key.expires_at is None or key.expires_at > now)
            for key in self._keys.values()
            if key.id != beside
        )

    async def create(
        self, name: str, scope: Scope, *, expires_at: datetime | None, by: Principal
    ) -> tuple[ApiKey, str]:
        if not name.strip() or len(name) > LONGEST_NAME or not name.isprintable():
            raise ValidationError.at(
                "body", "name", msg=f"A key's name has 1 to {LONGEST_NAME} printable characters"
            )
        now = self._clock.now()
        if expires_at is not None and expires_at <= now:
            raise ValidationError.at("body", "expires_at", msg="A key must expire in the future")
        key, secret = issue(name, scope, expires_at=expires_at, now=now)
        await self.add(key, by)
        return key, secret

    async def add(self, key: ApiKey, by: Principal) -> None:
        details = {"key": key.id, "name": key.name, "scope": key.scope.value}
        await self._store.add_key(key, audit_record("key.created", by, self._clock.now(), details=details))
        self._keys[key.id] = key
        self._ring.replace(self._keys.values())

    async def revoke(self, key_id: str, by: Principal) -> ApiKey:
        async with self._revoking:  # two at once could each count on the other
            key = self._keys.get(key_id)
            if key is None:
                raise KeyNotFound(f"Key not found: {key_id}")
            if key.revoked_at is not None:
                return key
            if self.has_admin() and not self.has_admin(beside=key_id):
                raise LastAdminKey(
                    f"{key.name} is the last admin key that works: without it nobody could make another. "
                    "Make one first: trunkline keys create NAME --scope admin"
                )
            now = self._clock.now()
            details = {"key": key.id, "name": key.name}
            await self._store.revoke_key(key_id, now, audit_record("key.revoked", by, now, details=details))
            key = replace(key, revoked_at=now)
            self._keys[key_id] = key
            self._ring.replace(self._keys.values())
            return key
