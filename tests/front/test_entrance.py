"""What every request passes: request id, host, key, body; and the shapes of what is refused."""

import asyncio
import json
import logging
import uuid
from typing import Any

import aiohttp
import pytest

from tests.front.conftest import Running, StartFront
from trunkline.front.entrance import HEALTH_PATHS
from trunkline.front.rest.admin import admin_api
from trunkline.model import Scope

CALL = "/api/v1/tools/call"
SERVERS = "/api/v1/aggregator/servers"
EXPECTED: dict[tuple[str, str], Scope] = {
    ("GET", SERVERS): Scope.READ,
    ("POST", SERVERS): Scope.ADMIN,
    ("GET", SERVERS + "/{server}"): Scope.READ,
    ("PATCH", SERVERS + "/{server}"): Scope.ADMIN,
    ("DELETE", SERVERS + "/{server}"): Scope.ADMIN,
    ("POST", SERVERS + "/{server}/connect"): Scope.ADMIN,
    ("POST", SERVERS + "/{server}/disconnect"): Scope.ADMIN,
    ("GET", SERVERS + "/{server}/tools"): Scope.READ,
    ("POST", SERVERS + "/{server}/tools/refresh"): Scope.ADMIN,
    ("GET", SERVERS + "/{server}/health"): Scope.READ,
    ("GET", SERVERS + "/{server}/history"): Scope.READ,
    ("GET", "/api/v1/aggregator/keys"): Scope.READ,
    ("POST", "/api/v1/aggregator/keys"): Scope.ADMIN,
    ("DELETE", "/api/v1/aggregator/keys/{key_id}"): Scope.ADMIN,
    ("GET", "/api/v1/aggregator/audit"): Scope.READ,
    ("GET", "/api/v1/aggregator/state"): Scope.READ,
    ("GET", "/api/v1/aggregator/health"): Scope.READ,
    ("HEAD", "/api/v1/aggregator/health"): Scope.READ,
    ("GET", "/health"): Scope.READ,
    ("HEAD", "/health"): Scope.READ,
    ("GET", "/metrics"): Scope.READ,
    ("GET", "/openapi.json"): Scope.READ,
    ("GET", "/api/v1/tools"): Scope.READ,
    ("GET", "/api/v1/tools/{name:path}"): Scope.READ,
    ("POST", CALL): Scope.CALL,
}
"""Every address once, with what it needs: a route that is not listed here fails the tests."""

WRONG_TOKENS: list[list[bytes]] = [
    [],
    [b"Bearer"],
    [b"Bearer "],
    [b"Bearer wrong"],
    [b"bearer wrong wrong"],
    [b"Basic dXNlcjpwYXNz"],
    [b"\xff\xfe\x80"],
    [b"Bearer \xc3\xa9\xff"],
    [b"Bearer " + b"k" * 60_000],
    [b"Bearer tk_aaaaaaaa_" + b"k" * 43],
]


def plain_path(path: str) -> str:
    return path.replace("{server}", "nobody").replace("{key_id}", "none").replace("{name:path}", "no.tool")


async def test_every_route_states_its_scope_and_is_listed(front: Running) -> None:
    """R-47: none is there twice; that a route cannot be written without one, `rest/test_routes.py` proves."""
    operations = admin_api(front.gateway).operations
    stated = [((operation.method, operation.path), operation.scope) for operation in operations]
    assert len(stated) == len(EXPECTED)
    assert dict(stated) == EXPECTED


async def test_the_openapi_document_has_every_address(front: Running) -> None:
    status, document = await front.ask("GET", "/openapi.json", scope=Scope.READ)
    assert status == 200
    described = {(method.upper(), path) for path, item in document["paths"].items() for method in item}
    spelled = {(method, path.replace(":path", "")) for method, path in EXPECTED}
    assert described == {
        (method, path) for method, path in spelled if method != "HEAD" and path != "/openapi.json"
    }


async def test_no_address_answers_to_a_missing_or_wrong_key(front: Running) -> None:
    """R-47: 401 with a challenge, never 500, whatever shape the header has."""
    for method, path in EXPECTED:
        for values in WRONG_TOKENS:
            if path in HEALTH_PATHS and not values:
                continue
            head = b"".join(b"Authorization: " + value + b"\r\n" for value in values)
            answer = await front.raw(
                f"{method} {plain_path(path)} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n".encode()
                + head
                + b"\r\n"
            )
            assert answer.startswith(b"HTTP/1.1 401 "), (method, path, values, answer)
            assert b"www-authenticate: Bearer" in answer


async def test_a_key_given_twice_is_no_key(front: Running) -> None:
    good = f"Authorization: Bearer {front.keys[Scope.ADMIN]}\r\n"
    request = "GET /api/v1/aggregator/state HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{}\r\n"
    assert (await front.raw(request.format(good).encode())).startswith(b"HTTP/1.1 200 ")
    assert (await front.raw(request.format(good + good).encode())).startswith(b"HTTP/1.1 401 ")
    mixed = "Authorization: Bearer wrong\r\n" + good
    assert (await front.raw(request.format(mixed).encode())).startswith(b"HTTP/1.1 401 ")


async def test_a_key_of_too_small_a_scope_is_refused_and_a_sufficient_one_is_not(front: Running) -> None:
    """R-47: 403; nothing but the scope decides."""
    for (method, path), needed in EXPECTED.items():
        for scope in Scope:
            url = front.url + plain_path(path)
            async with front.client.request(method, url, headers=front.bearer(scope)) as answer:
                if scope.includes(needed):
                    assert answer.status not in (401, 403), (method, path, scope)
                else:
                    assert answer.status == 403, (method, path, scope)
                    assert (await answer.json())["error_code"] == "FORBIDDEN"


@pytest.mark.parametrize("path", sorted(HEALTH_PATHS))
async def test_without_a_key_health_says_only_the_status(front: Running, path: str) -> None:
    """R-33, R-47."""
    async with front.client.get(front.url + path) as answer:
        assert (answer.status, await answer.json()) == (200, {"status": "healthy"})
    async with front.client.head(front.url + path) as answer:
        assert (answer.status, await answer.read()) == (200, b"")
    status, report = await front.ask("GET", path, scope=Scope.READ)
    assert status == 200
    assert report["status"] == "healthy"
    assert report["checks"]["database"] == "ok"
    assert report["servers"] == {"total": 0, "connected": 0, "error": 0}
    assert "issues" not in report
    async with front.client.post(front.url + path) as answer:
        assert answer.status == 401


async def test_only_the_exact_health_addresses_are_open(front: Running) -> None:
    targets = """
        /health/ //health /HEALTH /health%2f /health;x=1 /health/../api/v1/aggregator/state /nothing /docs
        /api/v1/aggregator/health/x /api/v1/aggregator/state?/health http://localhost/x/health /redoc
        /openapi.json /api/v1/aggregator/servers/x/../../health
    """
    for target in targets.split():
        for host in ("localhost", "127.0.0.1", "localhost:1"):
            answer = await front.raw(
                f"GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode()
            )
            assert answer.startswith(b"HTTP/1.1 401 "), (target, answer)


async def test_a_host_that_spells_an_open_address_opens_nothing(front: Running) -> None:
    """The host can make an address put together from it look harmless; it is not what decides."""
    for host in ("localhost/health?", "localhost:80/health#", "localhost/health", "x/health?"):
        answer = await front.raw(
            f"GET /api/v1/aggregator/state HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode()
        )
        assert answer.startswith(b"HTTP/1.1 403 "), answer


async def test_foreign_hosts_and_origins_are_refused_everywhere(front: Running) -> None:
    """403 on every mount, also with a key; no origin is served; no CORS header is ever sent."""
    for method, path in EXPECTED:
        for headers in ({"Host": "evil.example"}, {"Origin": "http://evil.example"}, {"Origin": "null"}):
            async with front.client.request(
                method, front.url + plain_path(path), headers={**front.bearer(), **headers}
            ) as answer:
                assert answer.status == 403, (method, path, headers)
                assert not [name for name in answer.headers if name.lower().startswith("access-control")]
    headers = {**front.bearer(), "Origin": "http://localhost:3000"}
    async with front.client.get(front.url + "/api/v1/aggregator/state", headers=headers) as answer:
        assert answer.status == 200
        assert not [name for name in answer.headers if name.lower().startswith("access-control")]


async def test_the_request_id_comes_back(front: Running) -> None:
    for path in ("/health", "/api/v1/aggregator/state", "/nothing", CALL):
        headers = {**front.bearer(), "X-Request-Id": "mine-42"}
        method = "POST" if path == CALL else "GET"
        async with front.client.request(method, front.url + path, headers=headers) as answer:
            assert answer.headers.getall("X-Request-Id") == ["mine-42"]
        for strange in ("a b", "x" * 129, "é", '"><script>', ""):
            headers["X-Request-Id"] = strange
            async with front.client.request(method, front.url + path, headers=headers) as answer:
                assert uuid.UUID(answer.headers["X-Request-Id"]).version == 4


async def test_unknown_addresses_and_methods_are_refused_in_json(front: Running) -> None:
    status, answer = await front.ask("GET", "/api/v1/nothing")
    assert (status, answer["error_code"]) == (404, "NOT_FOUND")
    async with front.client.put(front.url + SERVERS, headers=front.bearer()) as refused:
        assert refused.status == 405
        assert (await refused.json())["error_code"] == "METHOD_NOT_ALLOWED"
        assert refused.headers["Allow"] == "GET, POST"
    async with front.client.delete(front.url + CALL, headers=front.bearer()) as refused:
        assert (refused.status, refused.headers["Allow"]) == (405, "GET, POST")
        assert (await refused.json())["error_code"] == "METHOD_NOT_ALLOWED"
    status, answer = await front.ask("GET", SERVERS + "/")
    assert status in (404, 405)


async def test_what_is_unexpected_is_logged_and_not_shown(
    front: Running, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("inner detail")

    monkeypatch.setattr(front.gateway, "state", broken)
    monkeypatch.setattr(front.gateway, "call", broken)
    for method, path, body in (
        ("GET", "/api/v1/aggregator/state", None),
        ("POST", CALL, {"name": "x"}),
    ):
        caplog.clear()
        status, answer = await front.ask(method, path, json=body, headers={"X-Request-Id": "find-me"})
        assert status == 500
        assert answer["error_code"] == "INTERNAL_ERROR"
        assert answer["context"] == {"request_id": "find-me"}
        assert "inner detail" not in json.dumps(answer)
        ours = [record for record in caplog.records if record.name.startswith("trunkline.front")]
        assert [record.levelno for record in ours] == [logging.ERROR]
        assert "inner detail" in caplog.text


async def test_a_body_over_the_limit_is_refused_on_every_route(start_front: StartFront) -> None:
    """413, by what it declares and by what it is."""
    front = await start_front(body_limit=2048)
    for method, path in EXPECTED:
        if method == "HEAD":
            continue
        url = front.url + plain_path(path)
        for body in (b"x" * 2049, chunked(3000)):
            headers = {**front.bearer(), "Content-Type": "application/json"}
            async with front.client.request(method, url, data=body, headers=headers) as answer:
                assert answer.status == 413, (method, path)
                assert (await answer.json())["error_code"] == "PAYLOAD_TOO_LARGE"


async def chunked(size: int) -> Any:
    for _ in range(size // 100):
        yield b"x" * 100


async def test_ten_mebibytes_are_refused_before_they_are_read(front: Running) -> None:
    body = b'{"name":"' + b"x" * (10 * 1024 * 1024) + b'"}'
    for path in (CALL, SERVERS):
        status, answer = await front.ask("POST", path, data=body)
        assert (status, answer["error_code"]) == (413, "PAYLOAD_TOO_LARGE")
    head = f"POST {CALL} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 999999999999\r\nConnection: close\r\n"
    key = f"Authorization: Bearer {front.keys[Scope.CALL]}\r\n\r\n"
    assert (await front.raw((head + key).encode(), seconds=3)).startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize("path", [CALL, SERVERS])
async def test_a_body_that_does_not_arrive_is_given_up(start_front: StartFront, path: str) -> None:
    """408 in bounded time, and the connection is closed."""
    front = await start_front(body_timeout=0.3)
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50\r\n"
    key = f"Authorization: Bearer {front.keys[Scope.ADMIN]}\r\n\r\n"
    for sent in (b"", b'{"name":'):
        answer = await front.raw((head + key).encode() + sent, seconds=5)
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b'"REQUEST_TIMEOUT"' in answer


async def test_a_body_is_json_or_refused(front: Running) -> None:
    for path in (CALL, SERVERS):
        for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "x"):
            status, answer = await front.ask("POST", path, data=b"{}", headers={"Content-Type": kind})
            assert (status, answer["error_code"]) == (422, "VALIDATION_ERROR"), kind
            assert answer["detail"][0]["loc"] == ["header", "content-type"]
        for body in (b"{", b"\xff", b'{"name":"\\ud800"}', b"NaN", b"[" * 90_000, b"\x00"):
            headers = {"Content-Type": "application/json; charset=utf-8"}
            status, answer = await front.ask("POST", path, data=body, headers=headers)
            assert status == 422, body[:20]
            assert answer["detail"][0]["loc"] == ["body"]
            assert answer["detail"][0]["type"] == "json_invalid"


async def test_switched_off_only_health_is_served(start_front: StartFront) -> None:
    """R-53."""
    front = await start_front(enabled=False)
    for method, path in EXPECTED:
        if path in HEALTH_PATHS:
            continue
        async with front.client.request(
            method, front.url + plain_path(path), headers=front.bearer()
        ) as answer:
            assert answer.status == 503
            refusal = await answer.json()
            assert refusal["error_code"] == "GATEWAY_DISABLED"
            assert "MCP_AGGREGATOR_ENABLED" in refusal["detail"]
    async with front.client.get(front.url + "/health") as answer:
        assert answer.status == 200


async def test_with_keys_switched_off_everybody_is_let_in(start_front: StartFront) -> None:
    front = await start_front(auth="off")
    for headers in ({}, {"Authorization": "Bearer nonsense"}, {"Authorization": "Basic x"}):
        async with front.client.get(front.url + "/api/v1/aggregator/state", headers=headers) as answer:
            assert answer.status == 200
        async with front.client.get(front.url + "/health", headers=headers) as answer:
            assert "checks" in await answer.json()
    async with front.client.get(
        front.url + "/api/v1/aggregator/state", headers={"Origin": "http://evil.example"}
    ) as answer:
        assert answer.status == 403


async def test_while_it_stops_health_says_so(front: Running) -> None:
    """Probes look here to send nobody any more."""
    await front.gateway.drain()
    async with front.client.get(front.url + "/health") as answer:
        assert (answer.status, await answer.json()) == (503, {"status": "stopping"})
    status, report = await front.ask("GET", "/health")
    assert (status, report["status"]) == (503, "stopping")


async def test_pipelined_requests_are_answered_in_order(front: Running) -> None:
    request = (
        "GET {} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "
        + front.keys[Scope.READ]
        + "\r\nX-Request-Id: {}\r\nConnection: {}\r\n\r\n"
    )
    sent = "".join(
        request.format("/health", f"n{number}", "close" if number == 9 else "keep-alive")
        for number in range(10)
    )
    answer = await front.raw(sent.encode())
    assert answer.count(b"HTTP/1.1 200 OK") == 10
    positions = [answer.index(b"x-request-id: n%d" % number) for number in range(10)]
    assert positions == sorted(positions)


async def test_many_clients_at_once_each_get_their_own_answer(front: Running) -> None:
    async def one(number: int) -> None:
        headers = {**front.bearer(), "X-Request-Id": f"r{number}"}
        async with front.client.get(front.url + f"{SERVERS}/none-{number}", headers=headers) as answer:
            assert answer.headers["X-Request-Id"] == f"r{number}"
            assert (await answer.json())["detail"] == f"Server not found: none-{number}"

    assert isinstance(front.client, aiohttp.ClientSession)
    await asyncio.gather(*(one(number) for number in range(50)))
