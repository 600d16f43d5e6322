"""Clients that are slow, large or malformed: a clear 4xx, and the connection closed in bounded time."""

import asyncio
import contextlib
import time
from pathlib import Path

import pytest

from tests.front.conftest import Running, StartFront, registered
from trunkline.front.connections import Patience
from trunkline.model import Scope

IMPATIENT = Patience(head_seconds=0.4, idle_seconds=1, unread_seconds=0.4)
HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
BOUND = 5


async def trickle(front: Running, start: bytes, piece: bytes) -> tuple[bytes, float]:
    """Send `start`, then piece after piece until the other side closes: what came, and after how long."""
    reader, writer = await asyncio.open_connection("127.0.0.1", front.port)
    began = time.monotonic()
    writer.write(start)

    async def feed() -> None:
        with contextlib.suppress(ConnectionError):
            while True:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0.05)

    feeding = asyncio.create_task(feed())
    try:
        heard = b""
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(BOUND):
                while chunk := await reader.read(65536):
                    heard += chunk
        return heard, time.monotonic() - began
    finally:
        feeding.cancel()
        writer.close()


async def test_a_connection_that_never_says_anything_is_closed(start_front: StartFront) -> None:
    front = await start_front(patience=IMPATIENT)
    assert await front.raw(b"", seconds=BOUND) == b""


@pytest.mark.parametrize(
    ("start", "piece"),
    [
        (b"GET /health HTTP/1.1\r\n", b"X-More: x\r\n"),
        (b"GET /", b"x"),
        (HEALTH + b"\r\n", b"\r\n"),
        (HEALTH + b"\r\nGET ", b"/"),
    ],
    ids=["headers", "address", "empty lines after an answer", "the second request"],
)
async def test_a_head_that_trickles_in_is_given_up(
    start_front: StartFront, start: bytes, piece: bytes
) -> None:
    """Each byte in time does not make the whole in time."""
    front = await start_front(patience=IMPATIENT)
    heard, took = await trickle(front, start, piece)
    assert took < BOUND - 1
    assert heard.endswith(b"}")
    assert b"HTTP/1.1 408 " in heard


async def test_a_body_that_trickles_in_after_its_answer_is_cut_off(start_front: StartFront) -> None:
    front = await start_front(patience=IMPATIENT)
    start = b"POST /health HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n"
    heard, took = await trickle(front, start, b"x")
    assert heard.startswith(b"HTTP/1.1 401 ")
    assert took < BOUND - 1


async def test_an_idle_connection_is_closed_and_a_used_one_is_not(start_front: StartFront) -> None:
    front = await start_front(patience=IMPATIENT)
    reader, writer = await asyncio.open_connection("127.0.0.1", front.port)
    began = time.monotonic()
    for _ in range(10):
        writer.write(HEALTH + b"\r\n")
        assert (await reader.readuntil(b"}")).startswith(b"HTTP/1.1 200 ")
        await asyncio.sleep(0.08)
    assert time.monotonic() - began > IMPATIENT.head_seconds
    assert await asyncio.wait_for(reader.read(), BOUND) == b""
    writer.close()


async def test_a_client_that_does_not_read_is_cut_off(start_front: StartFront, tmp_path: Path) -> None:
    front = await start_front(patience=IMPATIENT)
    await registered(front, tmp_path)
    reader, writer = await asyncio.open_connection("127.0.0.1", front.port, limit=1024)
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    request = (
        "GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n"
        f"Authorization: Bearer {front.keys[Scope.READ]}\r\n\r\n"
    ).encode()
    began = time.monotonic()
    with contextlib.suppress(ConnectionError):
        async with asyncio.timeout(BOUND):
            while not writer.is_closing():
                writer.write(request * 20)
                await writer.drain()
                await asyncio.sleep(0.01)
    assert writer.is_closing() or reader.at_eof()
    assert time.monotonic() - began < BOUND
    writer.close()
    assert (await front.ask("GET", "/health"))[0] == 200


@pytest.mark.parametrize(
    "head",
    [
        HEALTH + b"X-Large: " + b"x" * 70_000 + b"\r\n\r\n",
        HEALTH + b"".join(b"X-%d: y\r\n" % number for number in range(9000)) + b"\r\n",
        b"GET /health?" + b"x" * 70_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        HEALTH + b"X-Endless: " + b"x" * 300_000,
        HEALTH + b"\r\n" + HEALTH + b"X-Endless: " + b"x" * 500_000,
    ],
    ids=["one header", "many headers", "address", "unfinished", "second request"],
)
async def test_a_head_that_is_too_large_is_refused(front: Running, head: bytes) -> None:
    answer = await front.raw(head, seconds=BOUND)
    assert b"HTTP/1.1 431 " in answer
    assert b'"HEADERS_TOO_LARGE"' in answer


async def test_a_head_just_below_the_limit_is_served(front: Running) -> None:
    head = HEALTH + b"Connection: close\r\nX-Large: " + b"x" * 60_000 + b"\r\n\r\n"
    assert (await front.raw(head)).startswith(b"HTTP/1.1 200 ")


async def test_a_large_body_does_not_count_as_head(front: Running) -> None:
    body = b'{"name":"none","arguments":{"x":"' + b"x" * 1_000_000 + b'"}}'
    head = (
        f"POST /api/v1/tools/call HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        f"Authorization: Bearer {front.keys[Scope.CALL]}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    assert (await front.raw(head.encode() + body)).startswith(b"HTTP/1.1 404 ")


@pytest.mark.parametrize(
    "garbage",
    [
        b"nonsense\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 100,
        b"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n",
        b"GET /\xff\xfe HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"CONNECT evil.example:443 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n",
        HEALTH + b"Bad Header: x\r\n\r\n",
        HEALTH + b"X: a\x00b\r\n\r\n",
        b"POST /health HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"POST /health HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
        b"POST /health HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /health HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
        b"GET /health HTTP/1.1\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n",
    ],
)
async def test_malformed_http_is_refused_with_a_4xx(start_front: StartFront, garbage: bytes) -> None:
    front = await start_front(patience=IMPATIENT)
    answer = await front.raw(garbage, seconds=BOUND)
    assert answer[:10] == b"HTTP/1.1 4", answer
    assert b"application/json" in answer
    assert answer.endswith(b"}")


@pytest.mark.parametrize("upgrade", ["websocket", "h2c"])
async def test_an_upgrade_is_declined_by_serving_the_request(front: Running, upgrade: str) -> None:
    head = HEALTH + f"Connection: Upgrade\r\nUpgrade: {upgrade}\r\n\r\n".encode()
    answer = await front.raw(head, seconds=BOUND)
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b"connection: close" in answer


async def test_a_client_may_ask_whether_to_send_its_body(front: Running) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", front.port)
    head = (
        "POST /api/v1/tools/call HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n"
        f"Authorization: Bearer {front.keys[Scope.CALL]}\r\nConnection: close\r\nContent-Length: 15\r\n\r\n"
    )
    writer.write(head.encode())
    assert await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), BOUND) == b"HTTP/1.1 100 Continue\r\n\r\n"
    writer.write(b'{"name":"none"}')
    assert (await asyncio.wait_for(reader.read(), BOUND)).startswith(b"HTTP/1.1 404 ")
    writer.close()


async def test_slow_clients_do_not_disturb_good_ones(start_front: StartFront) -> None:
    front = await start_front(patience=IMPATIENT, body_timeout=0.4)
    body_head = (
        f"POST /api/v1/tools/call HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n"
        f"Authorization: Bearer {front.keys[Scope.CALL]}\r\n\r\n"
    ).encode()
    slow = [asyncio.create_task(trickle(front, start, b"x")) for start in [b"GET /", body_head] * 50]
    for _ in range(30):
        assert (await front.ask("GET", "/api/v1/aggregator/state"))[0] == 200
    for heard, took in await asyncio.gather(*slow):
        assert took < BOUND
        assert heard.startswith(b"HTTP/1.1 408 ")


async def test_requests_sent_at_once_are_answered_in_their_order(front: Running, echo: str) -> None:
    """Also where the first takes longest, and where one of them is refused by its head."""
    key = f"Authorization: Bearer {front.keys[Scope.CALL]}\r\n"

    def call(tool: str, arguments: str) -> bytes:
        body = f'{{"name":"{tool}","arguments":{arguments}}}'
        head = (
            f"POST /api/v1/tools/call HTTP/1.1\r\nHost: localhost\r\n{key}Content-Length: {len(body)}\r\n\r\n"
        )
        return (head + body).encode()

    requests = [
        call("echo.wait", '{"seconds":0.3}'),
        call("echo.none", "{}"),
        HEALTH + b"\r\n",
        call("echo.bare", "{}").replace(b"Bearer", b"Basic"),
        HEALTH + b"Connection: close\r\n\r\n",
    ]
    answer = await front.raw(b"".join(requests), seconds=BOUND)
    statuses = [part[:3] for part in answer.split(b"HTTP/1.1 ")[1:]]
    assert statuses == [b"200", b"404", b"200", b"401", b"200"]


async def test_garbage_behind_a_request_does_not_take_its_answer_away(front: Running, echo: str) -> None:
    body = b'{"name":"echo.wait","arguments":{"seconds":0.2}}'
    head = (
        "POST /api/v1/tools/call HTTP/1.1\r\nHost: localhost\r\n"
        f"Authorization: Bearer {front.keys[Scope.CALL]}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    answer = await front.raw(head.encode() + body + b"nonsense\r\n\r\n", seconds=BOUND)
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b"connection: close" in answer


@pytest.mark.parametrize("more", [b"", b"Connection: keep-alive\r\n"])
async def test_an_old_client_is_answered_and_let_go(front: Running, more: bytes) -> None:
    answer = await front.raw(b"GET /health HTTP/1.0\r\n" + more + b"\r\n", seconds=BOUND)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 ")
    assert b"\r\nconnection: close" in head
    assert b"\r\ndate: " in head
    assert body == b'{"status":"healthy"}'


async def test_an_old_client_gets_a_stream_that_ends_with_its_connection(front: Running) -> None:
    """There are no chunks before HTTP/1.1."""
    reader, writer = await asyncio.open_connection("127.0.0.1", front.port)
    head = f"GET /sse HTTP/1.0\r\nHost: localhost\r\nAuthorization: Bearer {front.keys[Scope.CALL]}\r\n\r\n"
    writer.write(head.encode())
    answered = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), BOUND)
    assert b"transfer-encoding" not in answered
    assert await asyncio.wait_for(reader.readline(), BOUND) == b"event: endpoint\r\n".replace(b"\r", b"")
    writer.close()
