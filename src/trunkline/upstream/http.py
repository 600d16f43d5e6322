"""The streamable-HTTP wire: one POST per request, answered with JSON or with a stream of events.

It speaks both eras: it carries the headers of the newer one, and keeps the session id of the older one and
the stream on which its server speaks unasked. HTTP has no line that could break: what loses this wire is
only a server that has forgotten the session. Connections are `outbound_client.py`'s, the meaning of a
refusal is `http_answers.py`'s.
"""

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping

import msgspec

from trunkline.errors import Lost, NotSent, ProtocolViolation, RpcError, SessionGone, UpstreamError
from trunkline.model import HttpSpec
from trunkline.ports import Redact
from trunkline.upstream import http_answers
from trunkline.upstream.http_answers import EVENTS, JSON, Asked
from trunkline.upstream.http_connection import HttpAnswer
from trunkline.upstream.listening import NotOffered, keep_listening
from trunkline.upstream.outbound_client import OutboundClient, OutboundSession
from trunkline.upstream.wires import Exchange, Inbox, rpc_error, too_large
from trunkline.wire import jsonrpc
from trunkline.wire.eras import Introduction
from trunkline.wire.jsonrpc import ErrorResponse, Malformed, Message, Notification, Request, Response
from trunkline.wire.sse import EventTooLarge, SseParser

DELETE_SECONDS = 2.0
MOST_RESUMPTIONS = 10
LONGEST_RESUMPTION = 30.0
"""Pause before a stream is taken up again, however long its server asks for."""
CANCEL_SECONDS = 5.0
SETTLE_SECONDS = 1.0
"""After a session was forgotten: how long requests that went before may still wait for their answers."""

_SESSION = "Mcp-Session-Id"
_VERSION = "MCP-Protocol-Version"
_NOT_OFFERED = (400, 404, 405, 501)


class HttpWire:
    def __init__(
        self, spec: HttpSpec, *, name: str, client: OutboundClient, message_limit: int, redact: Redact
    ) -> None:
        self._spec = spec
        self._name = name
        self._client = client
        self._limit = message_limit
        self._redact = redact
        self._rng = random.Random()  # noqa: S311 - spreads reconnects, guards nothing
        self._opened: OutboundSession | None = None
        self._inbox: Inbox | None = None
        self._session_id: str | None = None
        self._headers: dict[str, str] = {}
        """What a request of the session era carries beside the lasting headers."""
        self._legacy = False
        self._gone: SessionGone | None = None
        self._gone_reported = False
        self._closed = False
        self._under_way = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._heard_before = False
        self._last_event_id: str | None = None
        self._last_heard = 0.0
        self._now = asyncio.get_running_loop().time

    # Life

    async def open(self, inbox: Inbox) -> None:
        self._inbox = inbox
        accept = f"{JSON}, {EVENTS}"
        self._opened = self._client.open(self._spec.base_url, self._spec.headers, accept=accept)

    async def introduced(self, introduction: Introduction) -> None:
        if introduction.modern:
            return
        self._legacy = True
        self._headers[_VERSION] = introduction.version
        self._start(self._listen_legacy())

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._opened is None:
            return
        if self._session_id is not None and self._gone is None:
            with contextlib.suppress(UpstreamError, TimeoutError):
                async with asyncio.timeout(DELETE_SECONDS):
                    await self._opened.delete(self._opened.address, self._headers)
        self._opened.close()

    @property
    def last_heard(self) -> float:
        return self._last_heard

    def epitaph(self) -> str:
        return ""

    # Requests

    async def exchange(self, exchange: Exchange) -> bytes:
        message = jsonrpc.encode_request(exchange.key, exchange.method, exchange.params)
        return await self._converse(exchange, message, self._read_answer)

    async def notify(self, method: str, params: bytes = b"") -> None:
        message = jsonrpc.encode_notification(method, params)
        await self._converse(Exchange(0, method, params), message, self._read_receipt)

    async def answer(self, message: bytes) -> None:
        await self._converse(Exchange(0, "", b""), message, self._read_receipt)

    async def cancel(self, exchange: Exchange, reason: str) -> None:
        """In the newer era the end of the request's stream has said it. Nobody waits for this message."""
        if self._legacy and not self._closed and self._gone is None:
            params = msgspec.json.encode({"requestId": exchange.key, "reason": reason})
            self._start(self._notify_in_time("notifications/cancelled", params))

    async def _notify_in_time(self, method: str, params: bytes) -> None:
        with contextlib.suppress(UpstreamError, TimeoutError):
            async with asyncio.timeout(CANCEL_SECONDS):
                await self.notify(method, params)

    async def _converse(self, exchange: Exchange, message: bytes, read: "_Reader") -> bytes:
        """POST, then read what comes back; ends when the wire is closed."""
        session = self._usable()
        headers: Mapping[str, str] = {} if exchange.method == "initialize" else self._headers
        if exchange.headers:
            headers = {**headers, **exchange.headers}
        self._under_way += 1
        try:
            return await self._post(session, message, headers, exchange, read)
        except SessionGone as error:
            self._forgotten(error)
            raise
        finally:
            self._under_way -= 1
            if self._gone is not None and not self._under_way:
                self._report_gone()

    async def _post(
        self,
        session: OutboundSession,
        message: bytes,
        headers: Mapping[str, str],
        exchange: Exchange,
        read: "_Reader",
    ) -> bytes:
        response = await session.post(session.address, message, headers, exchange)
        self._last_heard = self._now()
        try:
            return await read(session, response, exchange)
        except RpcError:
            response.let_end()
            raise
        except BaseException:
            response.close()
            raise

    def _usable(self) -> OutboundSession:
        if self._gone is not None:
            raise SessionGone(self._gone.reason)
        if self._opened is None or self._closed:
            raise NotSent("the connection is not open")
        return self._opened

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work, name=f"{self._name}: beside its requests")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # Answers

    async def _read_answer(self, session: OutboundSession, response: HttpAnswer, exchange: Exchange) -> bytes:
        if response.status != 200:
            in_session = self._session_id is not None and exchange.method != "initialize"
            raise await session.refused(response, Asked(exchange.key, in_session), self._redact)
        http_answers.check_encoding(response.headers)
        if exchange.method == "initialize":
            self._keep_session(response.headers.get("mcp-session-id"))
        kind = http_answers.media_type(response.headers)
        if kind == JSON:
            return self._answer_in(await response.read_all(self._limit), exchange.key)
        if kind == EVENTS:
            return await self._answer_among(session, response, exchange.key)
        raise http_answers.unexpected_type(kind)

    async def _read_receipt(
        self, session: OutboundSession, response: HttpAnswer, exchange: Exchange
    ) -> bytes:
        if response.status >= 300:
            raise await session.refused(response, Asked(None, self._session_id is not None), self._redact)
        response.let_end()
        return b""

    def _keep_session(self, session_id: str | None) -> None:
        if session_id is None:
            return
        if not (session_id.isascii() and session_id.isprintable()):
            raise ProtocolViolation("gave a session id that cannot travel in a header", phase="handshake")
        self._session_id = session_id
        self._headers = {_SESSION: session_id}

    def _answer_in(self, body: bytes, key: int) -> bytes:
        try:
            messages = jsonrpc.decode_all(body)
        except Malformed as error:
            raise ProtocolViolation(f"what it answered is {error}") from None
        for message in messages:
            answer = self._take(message, key)
            if answer is not None:
                return answer
        raise ProtocolViolation("answered something else than what was asked")

    async def _answer_among(self, session: OutboundSession, response: HttpAnswer, key: int) -> bytes:
        parser = SseParser(self._limit)
        answer = await self._read_until_answer(session, response, parser, key)
        for _ in range(MOST_RESUMPTIONS):
            if answer is not None:
                return answer
            if not self._legacy or parser.last_id is None:
                break
            pause = (parser.retry_ms if parser.retry_ms is not None else 1000) / 1000
            await asyncio.sleep(min(LONGEST_RESUMPTION, pause))
            answer = await self._resume(session, parser, key)
        if answer is None:
            raise Lost("the server ended the stream of its answer before the answer")
        return answer

    async def _resume(self, session: OutboundSession, parser: SseParser, key: int) -> bytes | None:
        """A server of the session era may end a stream and go on with it on another one."""
        headers = {**self._headers, "Accept": EVENTS, "Last-Event-ID": parser.last_id or ""}
        response = await session.get(session.address, headers)
        try:
            self._check_stream(response)
            return await self._read_until_answer(session, response, parser, key)
        except NotOffered:
            raise Lost("the server ended the stream of its answer and does not go on with it") from None
        finally:
            response.close()

    async def _read_until_answer(
        self, session: OutboundSession, response: HttpAnswer, parser: SseParser, key: int
    ) -> bytes | None:
        """None when the stream has ended without it."""
        while chunk := await response.read():
            for message in self._messages(parser, chunk):
                answer = self._take(message, key)
                if answer is not None:
                    response.let_end()
                    return answer
        return None

    def _messages(self, parser: SseParser, chunk: bytes) -> Iterator[Message]:
        """What a piece of an event stream completes."""
        self._last_heard = self._now()
        try:
            events = parser.feed(chunk)
        except EventTooLarge:
            raise too_large(self._limit) from None
        for event in events:
            if not event.data:
                continue  # an event without data only carries an id to resume from
            try:
                yield from jsonrpc.decode_all(event.data)
            except Malformed as error:
                self._to_inbox.on_noise(f"an event that is {error}")

    def _take(self, message: Message, key: int | None) -> bytes | None:
        """The result, if this is the answer to `key`; everything else is handed on. Raises `RpcError`."""
        match message:
            case Response() if message.id == key and key is not None:
                return message.result
            case ErrorResponse() if message.id in (key, None) and key is not None:
                raise rpc_error(message, self._redact)
            case Notification():
                self._to_inbox.on_notification(message.method, message.params, key)
            case Request():
                self._to_inbox.on_request(message.id, message.method, message.params, key)
            case _:
                self._to_inbox.on_noise("an answer to nothing that was asked")
        return None

    @property
    def _to_inbox(self) -> Inbox:
        if self._inbox is None:
            raise AssertionError("the wire was not opened")
        return self._inbox

    # The end of a session

    def _forgotten(self, error: SessionGone) -> None:
        """No request goes out on this session any more; those that went may still be answered, briefly."""
        if self._gone is None:
            self._gone = error
            settled = SETTLE_SECONDS if self._under_way else 0
            asyncio.get_running_loop().call_later(settled, self._report_gone)

    def _report_gone(self) -> None:
        if self._gone is not None and not self._gone_reported and not self._closed:
            self._gone_reported = True
            self._to_inbox.on_lost(SessionGone(self._gone.reason))

    # What the server says unasked

    async def _listen_legacy(self) -> None:
        await keep_listening(self._hear_legacy, self._rng)

    async def _hear_legacy(self) -> float:
        session = self._usable()
        headers = {**self._headers, "Accept": EVENTS}
        if self._last_event_id is not None:
            headers["Last-Event-ID"] = self._last_event_id
        response = await session.get(session.address, headers)
        try:
            if response.status != 200:
                # Only who had this stream before can tell a lost session from a server that has none.
                asked = Asked(None, self._heard_before and self._session_id is not None)
                refusal = await session.refused(response, asked, self._redact)
                if isinstance(refusal, SessionGone):
                    self._forgotten(refusal)
            self._check_stream(response)
            self._heard_before = True
            return await self._follow(session, response)
        finally:
            response.close()

    def _check_stream(self, response: HttpAnswer) -> None:
        found = http_answers.media_type(response.headers)
        if response.status in _NOT_OFFERED or (response.status < 300 and found != EVENTS):
            raise NotOffered
        if response.status != 200:
            raise ProtocolViolation(f"answered {response.status}")
        http_answers.check_encoding(response.headers)

    async def _follow(self, session: OutboundSession, response: HttpAnswer) -> float:
        """Hand on what comes until the stream ends; returns the pause the server asks for."""
        parser = SseParser(self._limit)
        while chunk := await response.read():
            for message in self._messages(parser, chunk):
                if not isinstance(message, Response | ErrorResponse):
                    self._take(message, None)
            self._last_event_id = parser.last_id or self._last_event_id
        return (parser.retry_ms or 0) / 1000


_Reader = Callable[[OutboundSession, HttpAnswer, Exchange], Awaitable[bytes]]
