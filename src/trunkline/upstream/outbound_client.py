"""The one place that opens HTTP connections: to upstreams, and to their health check addresses.

An `OutboundClient` hands out an `OutboundSession` per upstream. Every url and every address is judged by the
policy at the moment a socket is made for it; nothing is redirected, proxied, unpacked or remembered in
cookies. Foreign errors end here: what leaves is an `UpstreamError` whose text names no address. The bytes
are `http_connection.py`'s, what an answer means is decided in `http_answers.py`.
"""

import asyncio
import contextlib
import os
import re
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from ipaddress import ip_address

from trunkline import __version__
from trunkline.errors import ConfigurationFault, NotSent, TrunklineError, UpstreamError, UpstreamTimeout
from trunkline.ports import OutboundPolicy, Redact
from trunkline.upstream import http_answers
from trunkline.upstream.address import Address
from trunkline.upstream.http_answers import Asked
from trunkline.upstream.http_connection import HttpAnswer, HttpConnection
from trunkline.upstream.wires import Exchange

CONNECT_SECONDS = 10.0
NEXT_ADDRESS_SECONDS = 0.25
"""How long one address of a name may take before the next is tried beside it."""
KEEP_ALIVE_SECONDS = 4.5
"""Servers commonly close an idle connection after five seconds: ours is gone before that."""

_OURS = frozenset(
    {"connection", "content-length", "transfer-encoding", "te", "trailer", "upgrade", "expect", "keep-alive"}
    | {"accept", "accept-encoding", "content-type", "host", "proxy-authorization", "cookie2"}
)
"""Headers that belong to the transport; a registration cannot set them."""
_HEADER_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_LINE_END = re.compile(r"[\r\n\0]")
_CERTIFICATE_OF_ANOTHER_NAME = (62, 64)
"""OpenSSL's X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH, whose text quotes the name."""

_Foreign = (OSError, ValueError, TrunklineError)

Lookup = Callable[[str, int], Awaitable[Sequence[str]]]
"""The addresses of a name, the preferred one first. Raises `OSError`."""


async def system_lookup(host: str, port: int) -> Sequence[str]:
    with contextlib.suppress(ValueError):
        return [str(ip_address(host))]
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


class OutboundClient:
    def __init__(
        self, policy: OutboundPolicy, *, tls: ssl.SSLContext | None = None, lookup: Lookup = system_lookup
    ) -> None:
        self._policy = policy
        self._tls = tls
        self._lookup = lookup

    def open(self, url: str, headers: Mapping[str, str], *, accept: str) -> "OutboundSession":
        """A pool of connections to one upstream. Raises `ConfigurationFault`."""
        try:
            self._policy.judge(url)
            return OutboundSession(self, Address.of(url), _lasting_headers(headers, accept))
        except _Foreign as error:
            raise fault_of(error) from None

    async def get_status(self, url: str, seconds: float) -> int:
        """The status a plain GET is answered with; its body is not read. Raises `UpstreamError`."""
        session = self.open(url, {}, accept="*/*")
        try:
            async with asyncio.timeout(seconds):
                return (await session.get(session.address, {})).status
        except TimeoutError:
            raise UpstreamTimeout(f"no answer within {seconds:g} s", phase="connect") from None
        finally:
            session.close()

    async def connect(self, address: Address, make: Callable[[], HttpConnection]) -> HttpConnection:
        """A new connection. Raises what the system raises, and `TrunklineError` where the policy forbids."""
        allowed = await self._allowed_addresses(address)
        if address.secure and self._tls is None:
            self._tls = _tls_context()  # once for all, and not before somebody needs it: it weighs 2 MB
        made = await _first_connected(allowed, lambda found: self._connected_socket(address, found))
        try:
            _, connection = await asyncio.get_running_loop().create_connection(
                make,
                sock=made,
                ssl=self._tls if address.secure else None,
                server_hostname=address.host if address.secure else None,
            )
        except BaseException:
            made.close()
            raise
        return connection

    async def _allowed_addresses(self, address: Address) -> list[str]:
        """Only those addresses of a name that may be connected to. Raises when none may."""
        allowed: list[str] = []
        refusal: TrunklineError | None = None
        for found in await self._lookup(address.host, address.port):
            try:
                self._policy.judge_address(found, host=address.host)
            except TrunklineError as error:
                refusal = error
            else:
                allowed.append(found)
        if refusal is not None and not allowed:
            raise refusal
        return allowed

    async def _connected_socket(self, address: Address, found: str) -> socket.socket:
        self._policy.judge(address.url)
        self._policy.judge_address(found, host=address.host)
        made = socket.socket(socket.AF_INET6 if ":" in found else socket.AF_INET, socket.SOCK_STREAM)
        try:
            made.setblocking(False)
            _notice_dead_peers(made)
            await asyncio.get_running_loop().sock_connect(made, (found, address.port))
        except BaseException:
            made.close()
            raise
        return made


async def _first_connected(
    addresses: Sequence[str], connect: Callable[[str], Awaitable[socket.socket]]
) -> socket.socket:
    """The next is tried as soon as one fails or takes long; whichever connects first wins."""
    left = list(addresses)
    running: set[asyncio.Future[socket.socket]] = set()
    failure: BaseException = socket.gaierror(socket.EAI_NONAME)
    try:
        while left or running:
            if left:
                running.add(asyncio.ensure_future(connect(left.pop(0))))
            patience = NEXT_ADDRESS_SECONDS if left else None
            done, _ = await asyncio.wait(running, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
            for each in done:
                running.discard(each)
                error = each.exception()
                if error is None:
                    return each.result()
                failure = error
        raise failure
    finally:
        for late in running:
            late.cancel()
            late.add_done_callback(_close_late)


def _close_late(done: asyncio.Future[socket.socket]) -> None:
    if not done.cancelled() and done.exception() is None:
        done.result().close()


class OutboundSession:
    """The connections to one upstream. Its methods raise `UpstreamError` only."""

    def __init__(self, client: OutboundClient, address: Address, headers: Mapping[str, str]) -> None:
        self.address = address
        self._client = client
        self._headers = headers
        self._free: list[HttpConnection] = []
        """The most recently used last: the others grow old and go."""
        self._all: set[HttpConnection] = set()
        self._connecting: set[asyncio.Timeout] = set()
        self._closed = False
        self._sweep: asyncio.TimerHandle | None = None
        self._heads: dict[Address, bytes] = {}
        self._loop = asyncio.get_running_loop()

    async def post(
        self, address: Address, message: bytes, headers: Mapping[str, str], exchange: Exchange
    ) -> HttpAnswer:
        """Send a message; returns when the head of the answer is here. Marks the exchange as sent."""
        head = self._heads.get(address)
        if head is None:
            lasting = {**self._headers, "Content-Type": "application/json"}
            head = self._heads[address] = _head("POST", address, lasting)
        whole = b"%b%bContent-Length: %d\r\n\r\n%b" % (head, _lines(headers), len(message), message)
        connection = await self._connection()
        exchange.sent = True
        return await connection.request(whole)

    async def get(self, address: Address, headers: Mapping[str, str]) -> HttpAnswer:
        return await self._ask("GET", address, headers)

    async def delete(self, address: Address, headers: Mapping[str, str]) -> None:
        (await self._ask("DELETE", address, headers)).let_end()

    async def _ask(self, method: str, address: Address, headers: Mapping[str, str]) -> HttpAnswer:
        whole = _head(method, address, {**self._headers, **headers}) + b"\r\n"
        return await (await self._connection()).request(whole)

    async def refused(self, answer: HttpAnswer, asked: Asked, redact: Redact) -> UpstreamError:
        """What an answer with another status than was hoped for means."""
        body = b""
        with contextlib.suppress(UpstreamError):
            body = await answer.read_all(http_answers.LARGEST_REFUSAL)
        return http_answers.refusal(answer.status, answer.headers, body, asked, redact, datetime.now(UTC))

    def close(self) -> None:
        self._closed = True
        if self._sweep is not None:
            self._sweep.cancel()
        for scope in self._connecting:
            scope.reschedule(self._loop.time())
        for connection in list(self._all):
            connection.abort()

    # The pool

    def _check_open(self) -> None:
        if self._closed:
            raise NotSent("the connection was closed")

    async def _connection(self) -> HttpConnection:
        self._check_open()
        while self._free:
            connection = self._free.pop()
            if connection.usable:
                return connection
            connection.abort()
        try:
            async with asyncio.timeout(CONNECT_SECONDS) as scope:
                self._connecting.add(scope)
                try:
                    connection = await self._client.connect(self.address, self._new_connection)
                finally:
                    self._connecting.discard(scope)
        except TimeoutError:
            self._check_open()
            raise NotSent(f"no connection within {CONNECT_SECONDS:g} s", phase="connect") from None
        except _Foreign as error:
            raise fault_of(error) from None
        self._all.add(connection)
        try:
            self._check_open()
        except NotSent:
            connection.abort()
            raise
        return connection

    def _new_connection(self) -> HttpConnection:
        return HttpConnection(self._on_free, self._on_gone)

    def _on_free(self, connection: HttpConnection) -> None:
        self._free.append(connection)
        if self._sweep is None:
            self._sweep = self._loop.call_later(KEEP_ALIVE_SECONDS, self._sweep_old)

    def _on_gone(self, connection: HttpConnection) -> None:
        self._all.discard(connection)
        if connection in self._free:
            self._free.remove(connection)

    def _sweep_old(self) -> None:
        """Those free the longest come first."""
        oldest = self._loop.time() - KEEP_ALIVE_SECONDS
        while self._free and self._free[0].free_since <= oldest:
            self._free.pop(0).abort()
        self._sweep = None
        if self._free:
            self._sweep = self._loop.call_at(self._free[0].free_since + KEEP_ALIVE_SECONDS, self._sweep_old)


def _head(method: str, address: Address, headers: Mapping[str, str]) -> bytes:
    """Raises `ValueError` for a header that cannot be sent."""
    return b"%b %b HTTP/1.1\r\nHost: %b\r\n%b" % (
        method.encode(),
        address.target.encode(),
        address.host_header.encode(),
        _lines(headers),
    )


def _lines(headers: Mapping[str, str]) -> bytes:
    for value in headers.values():
        if _LINE_END.search(value):
            raise ConfigurationFault("a header has a line end in it", phase="connect")
    return "".join([f"{name}: {value}\r\n" for name, value in headers.items()]).encode()


def fault_of(error: OSError | ValueError | TrunklineError) -> UpstreamError:
    """Why there is no connection."""
    match error:
        case TrunklineError():
            return ConfigurationFault(error.detail, phase="connect")
        case socket.gaierror():
            return NotSent("the name of the server does not resolve", phase="connect")
        case ssl.SSLCertVerificationError():
            return NotSent(f"TLS: certificate {_certificate_trouble(error)}", phase="connect")
        case ssl.SSLError():
            return NotSent(f"TLS: the handshake failed ({_tls_reason(error)})", phase="connect")
        case OSError():
            return NotSent(_connect_trouble(error), phase="connect")
        case ValueError():
            return ConfigurationFault("the url or a header cannot be used as it is", phase="connect")


def _tls_reason(error: ssl.SSLError) -> str:
    return (error.reason or "no reason given").replace("_", " ").lower()


def _certificate_trouble(error: ssl.SSLCertVerificationError) -> str:
    if error.verify_code in _CERTIFICATE_OF_ANOTHER_NAME:
        return "is for another name"
    return f"cannot be verified ({error.verify_message})"


def _connect_trouble(error: OSError) -> str:
    match error:
        case ConnectionRefusedError():
            return "connection refused"
        case ConnectionError():
            return "connection reset"
        case TimeoutError():
            return "no answer to the attempt to connect"
    # The error's own text would name the address.
    return os.strerror(error.errno).lower() if error.errno else "cannot connect"


def _lasting_headers(registered: Mapping[str, str], accept: str) -> dict[str, str]:
    """What every request of a session carries. Raises `ValueError`."""
    made = {"User-Agent": f"trunkline/{__version__}"}
    for name, value in registered.items():
        if not _HEADER_NAME.fullmatch(name) or _LINE_END.search(value):
            raise ValueError(name)
        if name.lower() not in _OURS:
            for same in [known for known in made if known.lower() == name.lower()]:
                del made[same]
            made[name] = value
    return {**made, "Accept": accept, "Accept-Encoding": "identity"}


def _tls_context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


def _notice_dead_peers(made: socket.socket) -> None:
    """A stream may be silent for hours: the kernel asks whether the other side is still there."""
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, option):
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
