"""The one place that opens HTTP connections: to upstreams, and to their health check addresses.

An `OutboundClient` hands out an `OutboundSession` per upstream. Every url and every address is judged by the
policy at the moment a socket is made for it; nothing is redirected, proxied, unpacked or remembered in
cookies. Foreign errors end here: what leaves is an `UpstreamError` whose text names no address. What an
answer means is decided in `http_answers.py`.
"""

import asyncio
import contextlib
import os
import select
import socket
import ssl
from collections.abc import Mapping
from datetime import UTC, datetime

import aiohttp
from aiohttp.abc import AbstractResolver, AbstractStreamWriter, ResolveResult
from aiohttp.payload import Payload
from multidict import CIMultiDict, istr
from yarl import URL

from trunkline import __version__
from trunkline.errors import (
    ConfigurationFault,
    Lost,
    NotSent,
    ProtocolViolation,
    TrunklineError,
    UpstreamError,
    UpstreamTimeout,
)
from trunkline.ports import OutboundPolicy, Redact
from trunkline.upstream import http_answers
from trunkline.upstream.http_answers import Asked
from trunkline.upstream.wires import Exchange, too_large

CONNECT_SECONDS = 10.0
KEEP_ALIVE_SECONDS = 4.5
"""Servers commonly close an idle connection after five seconds: ours is gone before that."""
LARGEST_HEADER = 16 * 1024
MOST_HEADERS = 128
CLOSE_SECONDS = 1.0
LINGER_SECONDS = 0.5
"""How long an answered stream may take to end before its connection is given up."""
WATCH_SECONDS = 1.0
STALE_CONNECTIONS = 3
"""How many pooled connections in a row may turn out to be closed before the request is given up."""

_OURS = frozenset(
    {"connection", "content-length", "transfer-encoding", "te", "trailer", "upgrade", "expect", "keep-alive"}
    | {"accept", "accept-encoding", "content-type", "proxy-authorization", "cookie2"}
)
"""Headers that belong to the transport; a registration cannot set them."""
_CERTIFICATE_OF_ANOTHER_NAME = (62, 64)
"""OpenSSL's X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH, whose text quotes the name."""

_Foreign = (aiohttp.ClientError, OSError, ValueError, TrunklineError)


class OutboundClient:
    def __init__(
        self,
        policy: OutboundPolicy,
        *,
        tls: ssl.SSLContext | None = None,
        lookup: AbstractResolver | None = None,
    ) -> None:
        self._policy = policy
        self._tls = tls or _tls_context()
        self._lookup = lookup

    def open(self, url: str, headers: Mapping[str, str], *, accept: str) -> "OutboundSession":
        """A pool of connections to one upstream. Raises `ConfigurationFault`."""
        try:
            self._policy.judge(url)
            return OutboundSession(URL(url), _lasting_headers(headers, accept), self._connector(url))
        except _Foreign as error:
            raise fault_of(error, sent=False) from None

    async def get_status(self, url: str, seconds: float) -> int:
        """The status a plain GET is answered with; its body is not read. Raises `UpstreamError`."""
        session = self.open(url, {}, accept="*/*")
        try:
            async with asyncio.timeout(seconds):
                response = await session.get(session.url, {})
        except TimeoutError:
            raise UpstreamTimeout(f"no answer within {seconds:g} s", phase="connect") from None
        else:
            response.close()
            return response.status
        finally:
            await session.close()

    def _connector(self, url: str) -> aiohttp.TCPConnector:
        policy = self._policy
        host = URL(url).raw_host or ""

        def judged_socket(target: aiohttp.AddrInfoType) -> socket.socket:
            family, kind, protocol, _, address = target
            policy.judge(url)
            policy.judge_address(str(address[0]), host=host)
            made = socket.socket(family, kind, protocol)
            _notice_dead_peers(made)
            return made

        return aiohttp.TCPConnector(
            resolver=JudgingResolver(policy, self._lookup or aiohttp.ThreadedResolver()),
            use_dns_cache=False,
            socket_factory=judged_socket,
            ssl=self._tls,
            limit=0,  # how many calls run at once is decided in front of the wire
            keepalive_timeout=KEEP_ALIVE_SECONDS,
        )


class JudgingResolver(AbstractResolver):
    """Hands out only those addresses of a name that may be connected to."""

    def __init__(self, policy: OutboundPolicy, lookup: AbstractResolver) -> None:
        self._policy = policy
        self._lookup = lookup

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        allowed: list[ResolveResult] = []
        refusal: TrunklineError | None = None
        for found in await self._lookup.resolve(host, port, family):
            try:
                self._policy.judge_address(found["host"], host=host)
            except TrunklineError as error:
                refusal = error
            else:
                allowed.append(found)
        if refusal is not None and not allowed:
            raise refusal
        return allowed

    async def close(self) -> None:
        await self._lookup.close()


class OutboundSession:
    """The connections to one upstream. Its methods raise `UpstreamError` only."""

    def __init__(self, url: URL, headers: CIMultiDict[str], connector: aiohttp.TCPConnector) -> None:
        self.url = url
        self._reading: set[aiohttp.ClientResponse] = set()
        self._watch: asyncio.TimerHandle | None = None
        self._session = aiohttp.ClientSession(
            connector=connector,
            headers=headers,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
            max_line_size=LARGEST_HEADER,
            max_field_size=LARGEST_HEADER,
            max_headers=MOST_HEADERS,
        )

    async def post(
        self, url: URL, message: bytes, headers: Mapping[str, str], exchange: Exchange
    ) -> aiohttp.ClientResponse:
        """Send a message; returns when the head of the answer is here. Marks the exchange as sent."""
        for attempt in range(STALE_CONNECTIONS + 1):
            try:
                return await self._session.post(
                    url, data=_Outgoing(message, exchange), headers=headers, allow_redirects=False
                )
            except _Foreign as error:
                fault = fault_of(error, sent=exchange.sent)
                went_stale = isinstance(fault, NotSent) and fault.phase != "connect"
                if not went_stale or attempt == STALE_CONNECTIONS:
                    raise fault from None
        raise AssertionError("unreachable")

    async def get(self, url: URL, headers: Mapping[str, str]) -> aiohttp.ClientResponse:
        try:
            return await self._session.get(url, headers=headers, allow_redirects=False)
        except _Foreign as error:
            raise fault_of(error, sent=True) from None

    async def delete(self, url: URL, headers: Mapping[str, str]) -> None:
        try:
            response = await self._session.delete(url, headers=headers, allow_redirects=False)
        except _Foreign as error:
            raise fault_of(error, sent=True) from None
        response.release()

    async def read(self, response: aiohttp.ClientResponse) -> bytes:
        """Some more of the body; empty at its end."""
        self._reading.add(response)
        if self._watch is None:
            self._watch = asyncio.get_running_loop().call_later(WATCH_SECONDS, self._end_the_dead)
        try:
            return await response.content.readany()
        except _Foreign as error:
            raise fault_of(error, sent=True) from None
        finally:
            self._reading.discard(response)

    async def read_all(self, response: aiohttp.ClientResponse, limit: int) -> bytes:
        """The body. Raises `ProtocolViolation` as soon as it is certain to be larger than the limit."""
        if (response.content_length or 0) > limit:
            raise too_large(limit)
        parts: list[bytes] = []
        size = 0
        while part := await self.read(response):
            size += len(part)
            if size > limit:
                raise too_large(limit)
            parts.append(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def refused(self, response: aiohttp.ClientResponse, asked: Asked, redact: Redact) -> UpstreamError:
        """What an answer with another status than was hoped for means."""
        body = b""
        with contextlib.suppress(UpstreamError):
            body = await self.read_all(response, http_answers.LARGEST_REFUSAL)
        return http_answers.refusal(response.status, response.headers, body, asked, redact, datetime.now(UTC))

    def _end_the_dead(self) -> None:
        # aiohttp wakes no reader when a body turns out to be garbage: it only closes the connection.
        for response in self._reading:
            connection, content = response.connection, response.content
            if (connection is None or connection.closed) and not content.is_eof():
                content.set_exception(aiohttp.ClientPayloadError("the connection is gone"))
        self._watch = None
        if self._reading:
            self._watch = asyncio.get_running_loop().call_later(WATCH_SECONDS, self._end_the_dead)

    async def close(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
        # A peer that reads nothing could hold the close up for as long as it likes.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._session.close()


class _Outgoing(Payload):
    """A message, which marks its exchange as sent when it begins to leave."""

    _value: bytes
    _autoclose = True

    def __init__(self, message: bytes, exchange: Exchange) -> None:
        super().__init__(message, content_type="application/json")
        self._size = len(message)
        self._exchange = exchange

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return self._value.decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        # aiohttp holds the request's head back until the body: nothing has left before this.
        if _closed_by_peer(writer.transport):
            raise ConnectionResetError
        self._exchange.sent = True
        await writer.write(self._value)


def let_end(response: aiohttp.ClientResponse) -> None:
    """Done with it: the connection serves again if the body ends soon, and is closed otherwise."""
    if response.closed:
        return
    handle = asyncio.get_running_loop().call_later(LINGER_SECONDS, response.close)
    response.content.on_eof(handle.cancel)


def fault_of(error: Exception, *, sent: bool) -> UpstreamError:
    """What a foreign error means for a request that had, or had not, begun to leave."""
    match error:
        case TrunklineError():
            return ConfigurationFault(error.detail, phase="connect")
        case aiohttp.ClientConnectorDNSError():
            return NotSent("the name of the server does not resolve", phase="connect")
        case aiohttp.ClientConnectorCertificateError():
            return NotSent(f"TLS: certificate {_certificate_trouble(error)}", phase="connect")
        case aiohttp.ClientConnectorSSLError():
            return NotSent(f"TLS: the handshake failed ({_tls_reason(error.os_error)})", phase="connect")
        case aiohttp.ClientConnectorError():
            return NotSent(_connect_trouble(error.os_error), phase="connect")
        case aiohttp.ServerTimeoutError():
            return NotSent(f"no connection within {CONNECT_SECONDS:g} s", phase="connect")
        case aiohttp.ClientResponseError():
            return ProtocolViolation("what it answered is not valid HTTP")
        case aiohttp.InvalidURL() | ValueError():
            return ConfigurationFault("the url or a header cannot be used as it is", phase="connect")
    if sent:
        return Lost("the connection was closed before the answer was complete")
    return NotSent("the connection was closed before the request had left")


def _tls_reason(error: OSError) -> str:
    reason = error.reason if isinstance(error, ssl.SSLError) else None
    return (reason or "no reason given").replace("_", " ").lower()


def _certificate_trouble(error: aiohttp.ClientConnectorCertificateError) -> str:
    cause = error.certificate_error
    if not isinstance(cause, ssl.SSLCertVerificationError):
        return "cannot be verified"
    if cause.verify_code in _CERTIFICATE_OF_ANOTHER_NAME:
        return "is for another name"
    return f"cannot be verified ({cause.verify_message})"


def _connect_trouble(error: OSError) -> str:
    match error:
        case ConnectionRefusedError():
            return "connection refused"
        case ConnectionResetError():
            return "connection reset"
        case TimeoutError():
            return "no answer to the attempt to connect"
    # The error's own text would name the address.
    return os.strerror(error.errno).lower() if error.errno else "cannot connect"


def _lasting_headers(registered: Mapping[str, str], accept: str) -> CIMultiDict[str]:
    """What every request of a session carries."""
    made: CIMultiDict[str] = CIMultiDict()
    made[istr("User-Agent")] = f"trunkline/{__version__}"
    for name, value in registered.items():
        if any(character in name + value for character in "\r\n\0"):
            raise ValueError(name)
        if name.lower() not in _OURS:
            made[istr(name)] = value
    made[istr("Accept")] = accept
    made[istr("Accept-Encoding")] = "identity"
    return made


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


def _closed_by_peer(transport: asyncio.WriteTransport | None) -> bool:
    """Whether the peer has hung up already, also where the event loop has not come to notice.

    Nobody may speak before our request: whatever is there to read is the end of the connection. Under TLS
    there may be session tickets, so there the event loop's word has to do.
    """
    if transport is None or transport.is_closing():
        return True
    made = transport.get_extra_info("socket")
    if made is None or transport.get_extra_info("sslcontext") is not None or not hasattr(select, "poll"):
        return False
    poll = select.poll()
    poll.register(made.fileno(), select.POLLIN)
    return bool(poll.poll(0))
