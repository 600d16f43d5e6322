"""The admin API's keys: make one, list them, revoke one. A secret is answered once, when it is made."""

from datetime import UTC, datetime, timedelta
from typing import Annotated

from msgspec import Meta

from trunkline.core.gateway import Gateway
from trunkline.front.rest.routes import Routes
from trunkline.front.rest.shapes import Moment, Order, Page, Said, moment, moment_or_none
from trunkline.model import ApiKey, Principal, Scope


class KeyOrder(Order, kw_only=True):
    name: Annotated[str, Meta(min_length=1, max_length=100, pattern=r"^[^\x00-\x1f\x7f]+$")]
    scope: Scope
    expires_in_days: Annotated[int, Meta(ge=1, le=36_500)] | None = None


class Key(Said):
    id: str
    name: str
    scope: Scope
    created_at: Moment
    expires_at: Moment | None
    revoked_at: Moment | None


class KeyList(Said):
    keys: list[Key]
    total: int
    limit: int
    offset: int


class NewKey(Said):
    id: str
    name: str
    scope: Scope
    created_at: Moment
    expires_at: Moment | None
    key: str


def build(gateway: Gateway) -> Routes:
    routes = Routes("/api/v1/aggregator/keys", "keys")

    @routes("POST", "", Scope.ADMIN, "Make a key", status=201)
    async def create_key(body: KeyOrder, by: Principal) -> NewKey:
        """The answer is the only one that has the key itself."""
        expires_at = None
        if body.expires_in_days is not None:
            expires_at = datetime.now(UTC) + timedelta(days=body.expires_in_days)
        key, secret = await gateway.create_key(body.name, body.scope, expires_at=expires_at, by=by)
        return NewKey(
            id=key.id,
            name=key.name,
            scope=key.scope,
            created_at=moment(key.created_at),
            expires_at=moment_or_none(key.expires_at),
            key=secret,
        )

    @routes("GET", "", Scope.READ, "List the keys")
    async def list_keys(query: Page) -> KeyList:
        keys = gateway.list_keys()
        shown = [_key(key) for key in keys[query.offset : query.offset + query.limit]]
        return KeyList(keys=shown, total=len(keys), limit=query.limit, offset=query.offset)

    @routes("DELETE", "/{key_id}", Scope.ADMIN, "Revoke a key")
    async def revoke_key(key_id: str, by: Principal) -> None:
        """It is no key from now on, and stays in the list. The last admin key is kept."""
        await gateway.revoke_key(key_id, by)

    return routes


def _key(key: ApiKey) -> Key:
    return Key(
        id=key.id,
        name=key.name,
        scope=key.scope,
        created_at=moment(key.created_at),
        expires_at=moment_or_none(key.expires_at),
        revoked_at=moment_or_none(key.revoked_at),
    )
