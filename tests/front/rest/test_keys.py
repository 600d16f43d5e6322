"""The admin API's keys: the secret is answered once, works at once, and stops at once."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.front.conftest import Running

KEYS = "/api/v1/aggregator/keys"
STATE = "/api/v1/aggregator/state"


async def status_with(front: Running, secret: str) -> int:
    headers = {"Authorization": f"Bearer {secret}"}
    async with front.client.get(front.url + STATE, headers=headers) as answer:
        return answer.status


async def test_a_key_is_made_used_listed_and_revoked(front: Running) -> None:
    """R-47."""
    status, made = await front.ask("POST", KEYS, json={"name": "ci", "scope": "READ", "expires_in_days": 7})
    assert status == 201
    assert set(made) == {"id", "name", "scope", "created_at", "expires_at", "key"}
    assert (made["name"], made["scope"]) == ("ci", "read")
    left = datetime.fromisoformat(made["expires_at"]) - datetime.now(UTC)
    assert timedelta(days=6, hours=23) < left < timedelta(days=7, minutes=1)
    assert await status_with(front, made["key"]) == 200

    status, listed = await front.ask("GET", KEYS, params={"limit": 1000})
    assert (status, listed["total"], listed["limit"], listed["offset"]) == (200, 5, 1000, 0)
    assert made["key"] not in json.dumps(listed)
    entry = next(key for key in listed["keys"] if key["id"] == made["id"])
    assert set(entry) == {"id", "name", "scope", "created_at", "expires_at", "revoked_at"}
    _, page = await front.ask("GET", KEYS, params={"limit": 2, "offset": 4})
    assert len(page["keys"]) == 1

    for _ in range(2):
        async with front.client.delete(f"{front.url}{KEYS}/{made['id']}", headers=front.bearer()) as answer:
            assert (answer.status, await answer.read()) == (204, b"")
    assert await status_with(front, made["key"]) == 401
    status, answer = await front.ask("DELETE", f"{KEYS}/none")
    assert (status, answer["error_code"]) == (404, "KEY_NOT_FOUND")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"name": "x"}, "scope"),
        ({"scope": "read"}, "name"),
        ({"name": "x", "scope": "root"}, "scope"),
        ({"name": "", "scope": "read"}, "name"),
        ({"name": "n" * 101, "scope": "read"}, "name"),
        ({"name": "a\nb", "scope": "read"}, "name"),
        ({"name": "x", "scope": "read", "expires_in_days": 0}, "expires_in_days"),
        ({"name": "x", "scope": "read", "expires_in_days": 10**9}, "expires_in_days"),
        ({"name": "x", "scope": "read", "key": "mine"}, "key"),
    ],
)
async def test_a_key_that_cannot_be_meant_is_refused(
    front: Running, body: dict[str, Any], field: str
) -> None:
    status, answer = await front.ask("POST", KEYS, json=body)
    assert (status, answer["error_code"]) == (422, "VALIDATION_ERROR")
    assert answer["detail"][0]["loc"] == ["body", field]


async def test_the_last_admin_key_is_refused_to_be_revoked(front: Running) -> None:
    """R-47."""
    _, listed = await front.ask("GET", KEYS)
    first, second = (key["id"] for key in listed["keys"] if key["scope"] == "admin")
    assert await front.ask("DELETE", f"{KEYS}/{second}") == (204, None)
    status, answer = await front.ask("DELETE", f"{KEYS}/{first}")
    assert (status, answer["error_code"]) == (409, "LAST_ADMIN_KEY")
    assert "last admin key" in answer["detail"]
