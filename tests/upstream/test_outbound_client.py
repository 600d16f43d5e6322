"""HTTP/1.1 towards servers that answer in every way a server may, and in some it may not."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import pytest

from tests.upstream.network import outbound_client, policy, until
from trunkline.errors import ConfigurationFault, Lost, NotSent, ProtocolViolation, UpstreamError
from trunkline.upstream import outbound_client as module
from trunkline.upstream.http_connection import LARGEST_HEAD, READ_AHEAD
from trunkline.upstream.outbound_client import OutboundClient, OutboundSession
from trunkline.upstream.wires import Exchange

Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

PLAIN = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"


class Peer:
    """A server that answers each request head by a script, and counts its connections."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self.connections = 0
        self.heads: list[bytes] = []

    async def __aenter__(self) -> "Peer":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                self.heads.append(await reader.readuntil(b"\r\n\r\n"))
                await self._script(reader, writer)
        writer.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"


def says(*answers: bytes, then_close: bool = False) -> Script:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for piece in answers:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.01)
        if then_close:
            writer.close()

    return script


@contextlib.asynccontextmanager
async def session_to(url: str) -> AsyncIterator[OutboundSession]:
    session = outbound_client().open(url, {"X-Mine": "1"}, accept="*/*")
    try:
        yield session
    finally:
        session.close()


async def get(session: OutboundSession, limit: int = 10_000_000) -> tuple[int, bytes]:
    answer = await session.get(session.address, {})
    return answer.status, await answer.read_all(limit)


@pytest.mark.parametrize(
    ("answer", "status", "body"),
    [
        ([PLAIN], 200, b"{}"),
        ([piece.to_bytes() for piece in PLAIN], 200, b"{}"),
        ([b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n", PLAIN], 200, b"{}"),
        ([b"HTTP/1.1 100 Continue\r\n\r\n" + PLAIN], 200, b"{}"),
        ([b"HTTP/1.1 204 No Content\r\n\r\n"], 204, b""),
        ([b"HTTP/1.1 304 Not Modified\r\n\r\n"], 304, b""),
        ([b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n"], 202, b""),
        (
            [
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n",
                b"0\r\nTrailer: x\r\n\r\n",
            ],
            200,
            b"{}",
        ),
    ],
)
async def test_an_answer_is_read_and_its_connection_serves_again(
    answer: list[bytes], status: int, body: bytes
) -> None:
    async with Peer(says(*answer)) as peer, session_to(peer.url) as session:
        for _ in range(3):
            assert await get(session) == (status, body)
        assert peer.connections == 1
        assert b"\r\nX-Mine: 1\r\n" in peer.heads[0]


@pytest.mark.parametrize(
    "head",
    [b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.0 200 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"],
)
async def test_a_body_without_a_length_ends_with_its_connection(head: bytes) -> None:
    async with Peer(says(head, b"one", b"two", then_close=True)) as peer, session_to(peer.url) as session:
        for _ in range(2):
            assert await get(session) == (200, b"onetwo")
        assert peer.connections == 2


async def test_a_server_that_speaks_unasked_is_not_listened_to() -> None:
    """What it said must never be taken for the answer to the next request."""
    stray = PLAIN.replace(b"{}", b"[]")
    async with Peer(says(PLAIN + stray)) as peer, session_to(peer.url) as session:
        for _ in range(3):
            assert await get(session) == (200, b"{}")
        assert peer.connections == 3


async def test_a_stray_answer_that_comes_later_costs_only_its_connection() -> None:
    async with Peer(says(PLAIN, PLAIN.replace(b"{}", b"[]"))) as peer, session_to(peer.url) as session:
        assert await get(session) == (200, b"{}")
        await asyncio.sleep(0.05)
        assert await get(session) == (200, b"{}")
        assert peer.connections == 2


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", ProtocolViolation),
        (b"HTTP/1.1 200 OK\r\n" + b"X: " + b"y" * LARGEST_HEAD + b"\r\n" * 2, ProtocolViolation),
        (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200 + b"\r\n", ProtocolViolation),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", ProtocolViolation),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            ProtocolViolation,
        ),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}", Lost),
        (b"", Lost),
    ],
)
async def test_what_is_no_answer_is_told_as_what_it_is(answer: bytes, kind: type[UpstreamError]) -> None:
    async with Peer(says(answer, then_close=True)) as peer, session_to(peer.url) as session:
        async with asyncio.timeout(5):
            with pytest.raises(kind):
                await get(session)


async def test_an_endless_header_is_not_read_for_ever() -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nX: ")
        while True:
            writer.write(b"y" * 8192)
            await writer.drain()

    async with Peer(script) as peer, session_to(peer.url) as session:
        async with asyncio.timeout(5):
            with pytest.raises(ProtocolViolation, match="not valid HTTP"):
                await get(session)


async def test_a_reader_that_is_slow_makes_the_server_wait() -> None:
    size = 64 * READ_AHEAD
    sent = 0

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        while sent < size:
            writer.write(b"x" * 65536)
            await writer.drain()
            sent += 65536

    async with Peer(script) as peer, session_to(peer.url) as session:
        answer = await session.get(session.address, {})
        await asyncio.sleep(0.3)
        assert sent < size  # it waits: in our memory there is no more than a little
        assert len(await answer.read_all(size)) == size


async def test_an_answer_that_is_let_end_gives_its_connection_back_or_loses_it() -> None:
    ending = asyncio.Event()

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n")
        await ending.wait()
        writer.write(b"0\r\n\r\n")

    async with Peer(script) as peer, session_to(peer.url) as session:
        first = await session.get(session.address, {})
        first.let_end()
        ending.set()
        await until(lambda: first.ended)
        ending.clear()
        second = await session.get(session.address, {})
        assert peer.connections == 1
        second.let_end()
        await until(lambda: second.ended, 3)
        ending.set()
        assert (await session.get(session.address, {})).status == 200
        assert peer.connections == 2


async def test_an_old_connection_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEEP_ALIVE_SECONDS", 0.05)
    async with Peer(says(PLAIN)) as peer, session_to(peer.url) as session:
        await get(session)
        await until(lambda: not session._all)
        await get(session)
        assert peer.connections == 2


async def test_a_post_says_that_it_was_sent_only_when_it_was() -> None:
    exchange = Exchange(1, "tools/call", b"")
    client = OutboundClient(policy())
    session = client.open("http://127.0.0.1:1/mcp", {}, accept="*/*")
    with pytest.raises(NotSent):
        await session.post(session.address, b"{}", {}, exchange)
    assert not exchange.sent
    session.close()
    with pytest.raises(NotSent, match="was closed"):
        await session.post(session.address, b"{}", {}, exchange)


async def test_a_header_of_the_moment_cannot_smuggle_a_line() -> None:
    async with Peer(says(PLAIN)) as peer, session_to(peer.url) as session:
        with pytest.raises(ConfigurationFault):
            await session.post(session.address, b"{}", {"X": "a\r\nEvil: b"}, Exchange(1, "x", b""))
        assert peer.connections == 0


@pytest.mark.parametrize("name", ["X Y", "X:", "", "Ä", "X\r\nEvil"])
async def test_a_registered_header_has_a_name_that_can_be_sent(name: str) -> None:
    with pytest.raises(ConfigurationFault):
        outbound_client().open("http://127.0.0.1:1/", {name: "x"}, accept="*/*")


# Names with several addresses


def resolving_to(*addresses: str) -> OutboundClient:
    async def lookup(host: str, port: int) -> Sequence[str]:
        return addresses

    return OutboundClient(policy(), lookup=lookup)


async def test_the_next_address_is_tried_when_one_refuses() -> None:
    async with Peer(says(PLAIN)) as peer:
        client = resolving_to("127.0.0.2", "127.0.0.1")  # nothing listens on the first
        session = client.open(f"http://localhost:{peer.port}/", {}, accept="*/*")
        assert await get(session) == (200, b"{}")
        session.close()


async def test_the_next_address_is_tried_when_one_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that drops everything must not cost the whole patience; the sockets are real, the pause is not."""
    async with Peer(says(PLAIN)) as peer:
        client = resolving_to("127.0.0.9", "127.0.0.1")
        connect = client._connected_socket

        async def hanging(address: object, found: str) -> object:
            if found == "127.0.0.9":
                await asyncio.sleep(60)
            return await connect(address, found)  # type: ignore[arg-type]

        monkeypatch.setattr(client, "_connected_socket", hanging)
        session = client.open(f"http://localhost:{peer.port}/", {}, accept="*/*")
        async with asyncio.timeout(3):
            assert await get(session) == (200, b"{}")
        session.close()


async def test_an_address_that_is_forbidden_is_never_connected_to() -> None:
    async with Peer(says(PLAIN)) as peer:
        session = resolving_to("169.254.169.254", "10.0.0.1").open(
            f"http://localhost:{peer.port}/", {}, accept="*/*"
        )
        with pytest.raises(ConfigurationFault):
            await get(session)
        session.close()
        mixed = resolving_to("169.254.169.254", "127.0.0.1").open(
            f"http://localhost:{peer.port}/", {}, accept="*/*"
        )
        assert await get(mixed) == (200, b"{}")
        mixed.close()


async def test_a_name_without_addresses_is_told_as_not_sent() -> None:
    session = resolving_to().open("http://localhost:1/", {}, accept="*/*")
    with pytest.raises(NotSent, match="does not resolve"):
        await get(session)


async def test_closing_while_connecting_ends_the_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    client = resolving_to("127.0.0.1")

    async def never(address: object, found: str) -> object:
        await asyncio.sleep(60)
        raise AssertionError

    monkeypatch.setattr(client, "_connected_socket", never)
    session = client.open("http://localhost:1/", {}, accept="*/*")
    asking = asyncio.create_task(get(session))
    await until(lambda: session._connecting)
    session.close()
    async with asyncio.timeout(2):
        with pytest.raises(NotSent, match="was closed"):
            await asking
