"""What becomes of each line a client writes: to which era it belongs, where it goes, and who answers it.

A message with an envelope stands for itself; one without belongs to the client's session. Requests run side
by side and are answered as they come; what is no request goes on in order. Nothing is kept but what is
under way, and of that only so much.
"""

import asyncio
import contextlib
import logging

import msgspec

from trunkline.cli.stdio import mirroring
from trunkline.cli.stdio.link import UNKNOWN_EFFECT, Link
from trunkline.cli.stdio.mirroring import Mirroring
from trunkline.cli.stdio.session import StdioSession
from trunkline.errors import Lost, NotSent, UpstreamError
from trunkline.front.mcp.envelope import Posted, RpcFailure, identity_in, read
from trunkline.wire import eras, jsonrpc
from trunkline.wire.jsonrpc import RpcId
from trunkline.wire.lines import Oversized

log = logging.getLogger(__name__)

MOST_AT_ONCE = 256
MOST_TOLD = 256
"""Notifications and responses that wait to be sent; then the client's next line waits in its pipe."""
LAST_SECONDS = 1.0
"""What is under way when stdin ends may still be answered so long."""
LISTEN = "subscriptions/listen"


class _Request:
    def __init__(self, identity: RpcId, posted: Posted, line: bytes) -> None:
        self.identity = identity
        self.posted = posted
        self.line = line
        self.modern = eras.VERSION_KEY in posted.meta
        self.withdrawn = False
        self.task: asyncio.Task[None] | None = None


class Relay:
    def __init__(self, link: Link, *, limit: int) -> None:
        self._link = link
        self._limit = limit
        self._session = StdioSession(link)
        self._mirroring = Mirroring(link)
        self._by_id: dict[RpcId, list[_Request]] = {}
        """Several, where a client gives one id to several at once; one word then cancels all of them."""
        self._running: set[_Request] = set()
        self._to_tell: asyncio.Queue[tuple[Posted, bytes]] = asyncio.Queue(MOST_TOLD)
        self._telling = asyncio.create_task(self._tell())

    async def take(self, line: bytes | Oversized) -> None:
        """One line of the client's. Never raises."""
        if isinstance(line, Oversized):
            said = f"The message is larger than {self._limit} bytes, the limit MCP_AGGREGATOR_BODY_LIMIT sets"
            await self._link.say(jsonrpc.encode_error(line.asked_id, jsonrpc.INVALID_REQUEST, said))
            return
        try:
            posted = read(line)
        except RpcFailure as failure:
            await self._refuse(identity_in(line), failure)
            return
        if posted.id is None or posted.method is None:
            if posted.method != "notifications/cancelled" or not self._withdraw(posted):
                await self._to_tell.put((posted, line))
            return
        if len(self._running) >= MOST_AT_ONCE:
            said = f"{MOST_AT_ONCE} requests are under way, which is the most there may be at once"
            await self._refuse(posted.id, RpcFailure(jsonrpc.INTERNAL_ERROR, said))
            return
        request = _Request(posted.id, posted, line)
        self._by_id.setdefault(posted.id, []).append(request)
        self._running.add(request)
        request.task = asyncio.create_task(self._serve(request))
        request.task.add_done_callback(lambda _: self._forget(request))  # also of one that never began

    async def _refuse(self, identity: RpcId | None, failure: RpcFailure) -> None:
        await self._link.say(jsonrpc.encode_error(identity, failure.code, failure.message, failure.data))

    def _withdraw(self, posted: Posted) -> bool:
        """Whether that was all there is to do. In a session the gateway is told by the same message."""
        try:
            identity = msgspec.json.decode(posted.params.get("requestId", b"null"), type=int | str | None)
        except msgspec.DecodeError:
            return True
        requests = self._by_id.get(identity, ()) if identity is not None else ()
        if not requests:
            return eras.VERSION_KEY in posted.meta or not self._session.open
        for request in requests:
            request.withdrawn = True
            if request.modern and request.task is not None:
                request.task.cancel()  # which closes its POST
        return all(request.modern for request in requests)

    async def _tell(self) -> None:
        while True:
            posted, line = await self._to_tell.get()
            try:
                await self._session.tell(posted, line)
            except UpstreamError as error:
                log.warning("A %s was not delivered: %s", posted.method or "response", error.reason)
            finally:
                self._to_tell.task_done()

    async def _serve(self, request: _Request) -> None:
        answer = await self._answer(request)
        self._forget(request)
        if answer is not None:
            await self._link.say(answer)

    def _forget(self, request: _Request) -> None:
        self._running.discard(request)
        same = self._by_id.get(request.identity, [])
        if request in same:
            same.remove(request)
        if not same:
            self._by_id.pop(request.identity, None)

    async def _answer(self, request: _Request) -> bytes | None:
        try:
            if request.modern:
                return await self._modern(request)
            return await self._session.ask(request.posted, request.identity, request.line)
        except RpcFailure as failure:
            return jsonrpc.encode_error(request.identity, failure.code, failure.message, failure.data)
        except UpstreamError as error:
            return None if request.withdrawn else _failed(request, error)
        except Exception:
            log.exception("Unexpected error at %s", request.posted.method)
            said = "Something unexpected went wrong in trunkline stdio; its log says more"
            return jsonrpc.encode_error(request.identity, jsonrpc.INTERNAL_ERROR, said)

    async def _modern(self, request: _Request) -> bytes | None:
        posted, headers = request.posted, mirroring.headers_of(request.posted)
        passed, answer = await self._link.ask(
            request.identity, request.line, {**headers, **self._mirroring.parameters(posted)}
        )
        if posted.method == "tools/call" and mirroring.refused(passed):
            await self._mirroring.learn(posted)
            if parameters := self._mirroring.parameters(posted):
                _, answer = await self._link.ask(request.identity, request.line, {**headers, **parameters})
        return answer

    async def finish(self) -> None:
        """stdin has ended, and with it the connection: calls are cancelled as the session goes."""
        waiting = [each.task for each in self._running if each.task and each.posted.method != LISTEN]
        if waiting:
            await asyncio.wait(waiting, timeout=LAST_SECONDS)
        for request in list(self._running):
            if not request.modern and request.posted.method != "initialize":
                params = b'{"requestId":%b}' % msgspec.json.encode(request.identity)
                note = jsonrpc.encode_notification("notifications/cancelled", params)
                with contextlib.suppress(asyncio.QueueFull):
                    self._to_tell.put_nowait((read(note), note))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_SECONDS):
                await self._to_tell.join()
        tasks = [self._telling, *(each.task for each in self._running if each.task)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._session.close()


def _failed(request: _Request, error: UpstreamError) -> bytes:
    method = request.posted.method or ""
    if method == LISTEN and isinstance(error, Lost):
        # As a server says that it is going: the client listens anew, and fetches what it may have missed.
        mark = b'"_meta":{"%b":%b}' % (eras.SUBSCRIPTION_KEY.encode(), msgspec.json.encode(request.identity))
        return jsonrpc.encode_result(request.identity, b'{"resultType":"complete",%b}' % mark)
    said = f"{method} was not answered: {error.reason}"
    if not isinstance(error, NotSent):
        said = f"{said}. {UNKNOWN_EFFECT}"
    return jsonrpc.encode_error(request.identity, jsonrpc.INTERNAL_ERROR, said)
