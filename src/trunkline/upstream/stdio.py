"""The STDIO wire: one child process, a line of JSON-RPC per message on its pipes.

Lines the server should not have printed cost nothing but a count; an answer over the limit costs only its
own exchange. Its stderr is always drained and the end of it kept, to say why it died. Where the process
comes from and how nothing of it is left over is `spawner.py`'s part; retries and status are the owner's.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, cast

from trunkline.errors import ConfigurationFault, Lost, NotSent, ProtocolViolation, UpstreamError
from trunkline.model import StdioSpec
from trunkline.ports import Redact
from trunkline.telemetry import Flood, printable
from trunkline.upstream.command_line import child_environment, command_line, start_fault
from trunkline.upstream.spawner import Child, GuardLost, Spawner
from trunkline.upstream.wires import Exchange, Inbox, rpc_error, too_large
from trunkline.wire import jsonrpc
from trunkline.wire.eras import Introduction
from trunkline.wire.lines import LineSplitter, Oversized, answered_by, later_starts

_STDERR_SHOWN = 8 * 1024
_STDERR_MARGIN = 4 * 1024
"""Kept beyond what is shown and never shown itself: a secret cut in half there would not be recognised."""
_WRITE_AHEAD = 64 * 1024
"""What may wait for a child that does not read; whoever writes more waits."""
_LAST_WORDS = 0.25
"""How long output, stderr and exit status may take to come in once one of them says that it is over."""
_CANCEL_BOUND = 1.0
_FORGOTTEN_KEPT = 4096
_LARGEST_BATCH = 1024 * 1024
_BOM = b"\xef\xbb\xbf"

_Answer = jsonrpc.Response | jsonrpc.ErrorResponse | UpstreamError


class StdioWire:
    """`close_grace` is what the child gets after its stdin was closed, `term_grace` after SIGTERM."""

    def __init__(
        self,
        spec: StdioSpec,
        *,
        name: str,
        message_limit: int,
        redact: Redact,
        spawner: Spawner,
        close_grace: float = 2.0,
        term_grace: float = 5.0,
    ) -> None:
        self._spec = spec
        self._name = name
        self._limit = message_limit
        self._redact = redact
        self._spawner = spawner
        self._close_grace = close_grace
        self._term_grace = term_grace
        self._loop = asyncio.get_running_loop()
        self._inbox: Inbox | None = None
        self._child: Child | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._turn = asyncio.Lock()
        self._input = _Pipe(on_end=self._wind_up, writable=self._writable)
        self._output = _Pipe(on_end=self._on_output_end, on_data=self._on_output)
        self._errors = _Pipe(on_end=self._wind_up, on_data=self._on_stderr)
        self._lines = LineSplitter(message_limit)
        self._stderr = bytearray()
        self._excerpts = Flood()
        self._pending: dict[int, tuple[Exchange, asyncio.Future[_Answer]]] = {}
        self._forgotten: dict[int, None] = {}
        """Exchanges nobody waits for any more, whose answer may still come; the oldest first."""
        self._changing = asyncio.Lock()
        self._closing: asyncio.Task[None] | None = None
        self._ending: str | None = None
        """Why nothing more can be sent."""
        self._last_words: asyncio.TimerHandle | None = None
        self._opened = False
        self._told = asyncio.Event()
        """The last words are in, so that also who comes too late is told how it ended."""
        self._heard = self._loop.time()

    # Opening

    async def open(self, inbox: Inbox) -> None:
        async with self._changing:
            if self._closing is not None:
                raise NotSent("the connection was closed while it was being opened", phase="connect")
            self._inbox = inbox
            try:
                await self._start()
            except ConfigurationFault as fault:
                raise ConfigurationFault(self._redact(fault.reason), phase="connect") from None
            except GuardLost as error:
                raise NotSent(str(error), phase="connect") from None
            self._heard = self._loop.time()
            self._opened = True
            self._wind_up()

    async def _start(self) -> None:
        env = child_environment(self._spec.env)
        argv = command_line(self._spec, env)
        self._child = self._spawner.start(argv, env, await self._make_pipes())
        self._child.exited.add_done_callback(lambda _: self._wind_up())
        try:
            await self._child.wait_started()
        except OSError as error:
            raise start_fault(argv[0], error) from None

    async def _make_pipes(self) -> list[int]:
        """Connects our ends and returns the child's."""
        theirs: list[int] = []
        try:
            fd, ours = os.pipe()
            theirs.append(fd)
            await _whole(self._loop.connect_write_pipe(lambda: self._input, os.fdopen(ours, "wb", 0)))
            cast(asyncio.WriteTransport, self._input.transport).set_write_buffer_limits(_WRITE_AHEAD)
            for pipe in (self._output, self._errors):
                ours, fd = os.pipe()
                theirs.append(fd)
                await _whole(self._loop.connect_read_pipe(partial(_itself, pipe), os.fdopen(ours, "rb", 0)))
        except BaseException:
            for fd in theirs:
                os.close(fd)
            raise
        return theirs

    async def introduced(self, introduction: Introduction) -> None:
        """Every version speaks alike on a pipe."""

    # Sending

    async def exchange(self, exchange: Exchange) -> bytes:
        future: asyncio.Future[_Answer] = self._loop.create_future()
        self._pending[exchange.key] = (exchange, future)
        try:
            message = jsonrpc.encode_request(exchange.key, exchange.method, exchange.params)
            await self._send(message, exchange)
            answer = await future
        finally:
            if self._pending.pop(exchange.key, None) is not None and exchange.sent:
                self._forget(exchange.key)
        if isinstance(answer, jsonrpc.Response):
            return answer.result
        if isinstance(answer, jsonrpc.ErrorResponse):
            raise rpc_error(answer, self._redact)
        raise answer

    async def cancel(self, exchange: Exchange, reason: str) -> None:
        if not exchange.sent:
            return
        params = b'{"requestId":%d,"reason":%b}' % (exchange.key, jsonrpc.quote(reason))
        try:
            async with asyncio.timeout(_CANCEL_BOUND):
                await self.notify("notifications/cancelled", params)
        except (UpstreamError, TimeoutError):
            return

    async def notify(self, method: str, params: bytes = b"") -> None:
        await self._send(jsonrpc.encode_notification(method, params))

    async def answer(self, message: bytes) -> None:
        await self._send(message)

    async def _send(self, message: bytes, exchange: Exchange | None = None) -> None:
        """Whole lines or nothing: whoever is cancelled while waiting has written no byte."""
        if self._writable.is_set() and not self._turn.locked() and self._last_words is None:
            self._write(message, exchange)
            return
        async with self._turn:
            await self._writable.wait()
            if self._last_words is not None:
                await self._told.wait()
            self._write(message, exchange)

    def _write(self, message: bytes, exchange: Exchange | None) -> None:
        if self._ending is not None or not self._opened or self._input.closed.is_set():
            raise NotSent(self._ending or "the connection is not open")
        if b"\n" in message or b"\r" in message:
            # In JSON a bare line end is only ever white space between tokens.
            message = message.replace(b"\n", b" ").replace(b"\r", b" ")
        if exchange is not None:
            exchange.sent = True
        cast(asyncio.WriteTransport, self._input.transport).write(message + b"\n")

    def _forget(self, key: int) -> None:
        self._forgotten[key] = None
        if len(self._forgotten) > _FORGOTTEN_KEPT:
            del self._forgotten[next(iter(self._forgotten))]

    # Hearing

    @property
    def last_heard(self) -> float:
        return self._heard

    def _on_output(self, data: bytes) -> None:
        self._heard = self._loop.time()
        if self._closing is None:
            for line in self._lines.feed(data):
                self._on_line(line)

    def _on_output_end(self) -> None:
        if self._closing is None and (rest := self._lines.rest().strip()):
            self._on_line(rest)
        self._wind_up()

    def _on_line(self, line: bytes | Oversized) -> None:
        if isinstance(line, Oversized):
            self._on_oversized(line)
            return
        line = line.removeprefix(_BOM)
        if line[:1] == b"{":
            self._on_message(line)
        elif line[:1] == b"[" and len(line) <= _LARGEST_BATCH:
            self._on_batch(line)
        elif line:
            self._on_noise("a line on stdout that is no message", line)

    def _on_batch(self, line: bytes) -> None:
        try:
            parts = jsonrpc.elements(line)
        except jsonrpc.Malformed:
            self._on_noise("a line on stdout that is no message", line)
            return
        for part in parts:
            self._on_message(part)

    def _on_message(self, data: bytes) -> None:
        try:
            message = jsonrpc.decode(data)
        except jsonrpc.Malformed as error:
            self._on_malformed(data, str(error))
        else:
            self._take(message)

    def _on_malformed(self, data: bytes, reason: str) -> None:
        """A whole message glued to half of one counts; who waits for the broken one hears of it now."""
        for start in later_starts(data):
            with contextlib.suppress(jsonrpc.Malformed):
                whole = jsonrpc.decode(data[start:])
                self._on_message(data[:start])
                self._take(whole)
                return
        self._on_noise(f"a line on stdout that is no message ({reason})", data)
        key = answered_by(data)
        # Half a line at the end of the output is left to the loss of the process, which says more.
        if key in self._pending and not self._output.closed.is_set():
            self._settle(key, ProtocolViolation(f"its answer cannot be read: {reason}"))

    def _take(self, message: jsonrpc.Message) -> None:
        inbox = cast(Inbox, self._inbox)
        if isinstance(message, jsonrpc.Notification):
            inbox.on_notification(message.method, message.params, None)
        elif isinstance(message, jsonrpc.Request):
            inbox.on_request(message.id, message.method, message.params, None)
        elif message.id is None and isinstance(message, jsonrpc.ErrorResponse):
            self._on_noise(f"an error that answers no request: {message.code}", message.message.encode())
        else:
            self._settle(message.id, message)

    def _on_oversized(self, line: Oversized) -> None:
        fault = too_large(self._limit)
        if line.probable_id is None:
            self._on_noise(fault.reason)
        else:
            self._settle(line.probable_id, fault)

    def _settle(self, key: jsonrpc.RpcId | None, answer: _Answer) -> None:
        exchange, future = self._pending.get(cast(int, key), (None, None))
        if exchange is not None and future is not None and exchange.sent:
            del self._pending[exchange.key]
            if not future.done():
                future.set_result(answer)
        elif key in self._forgotten:
            del self._forgotten[key]
        else:
            self._on_noise("an answer to nothing that was asked, or a second one")

    def _on_noise(self, reason: str, line: bytes = b"") -> None:
        if line and self._excerpts.passes():
            reason = f"{reason}: {self._shown(line[:2048])[:80]}"
        cast(Inbox, self._inbox).on_noise(reason)

    def _on_stderr(self, data: bytes) -> None:
        kept = _STDERR_SHOWN + _STDERR_MARGIN
        self._stderr += data[-kept:]
        del self._stderr[:-kept]

    def _shown(self, text: bytes) -> str:
        return printable(self._redact(text.decode("utf-8", "replace")))

    # Ending

    def _wind_up(self) -> None:
        """Something says that it is over: the last words are awaited, then everybody is told."""
        child = self._child
        if child is None or not self._opened or self._closing is not None:
            return
        exited, mute = child.exited.done(), self._output.closed.is_set()
        if not (exited or mute or self._input.closed.is_set()):
            return
        if self._last_words is None:
            self._stop_sending("the process is ending")
            self._last_words = self._loop.call_later(_LAST_WORDS, self._lose)
        if exited and mute and self._errors.closed.is_set():
            self._lose()

    def _lose(self) -> None:
        if self._last_words is not None:
            self._last_words.cancel()
        if self._told.is_set():
            return
        self._told.set()
        if self._closing is not None:
            return
        self._ending = self._reason()
        self._fail_pending(self._ending)
        cast(Inbox, self._inbox).on_lost(Lost(self._ending))

    def _reason(self) -> str:
        if cast(Child, self._child).exited.done():
            return "the process ended"
        return f"the process closed its {'stdout' if self._output.closed.is_set() else 'stdin'}"

    def _stop_sending(self, reason: str) -> None:
        self._ending = self._ending or reason
        self._writable.set()

    def _fail_pending(self, reason: str) -> None:
        """Those not sent yet wait for their turn to write, and find out there."""
        for exchange, future in self._pending.values():
            if exchange.sent and not future.done():
                future.set_result(Lost(reason))

    def epitaph(self) -> str:
        parts = [self._how_it_ended(), self._last_stderr()]
        return "; ".join(part for part in parts if part)

    def _how_it_ended(self) -> str:
        child = self._child
        if child is None or not self._opened or not child.exited.done():
            return ""
        status = child.exited.result()
        if status is None:
            return "its process guard was gone"
        if status < 0:
            return f"it was killed by signal {-status}"
        return f"it exited with status {status}"

    def _last_stderr(self) -> str:
        text = self._shown(bytes(self._stderr))
        if len(self._stderr) == _STDERR_SHOWN + _STDERR_MARGIN:
            text = text[_STDERR_MARGIN:]
        text = text[-_STDERR_SHOWN:].strip()
        return f"its stderr ends: {text}" if text else ""

    async def close(self) -> None:
        if self._closing is None:
            self._closing = self._loop.create_task(self._close())
            self._stop_sending("the connection was closed")
            self._fail_pending("the connection was closed")
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        async with self._changing:
            if self._child is not None:
                await self._end(self._child)
            for pipe in (self._input, self._output, self._errors):
                await pipe.drop()

    async def _end(self, child: Child) -> None:
        if self._input.transport is not None:
            self._input.transport.close()
        await asyncio.wait([child.exited], timeout=self._close_grace)
        if not child.exited.done():
            child.signal(signal.SIGTERM)
            await asyncio.wait([child.exited], timeout=self._term_grace)
        await child.sweep()


class _Pipe(asyncio.Protocol):
    """Our end of one of the child's pipes, as callbacks."""

    def __init__(
        self,
        *,
        on_end: Callable[[], None],
        on_data: Callable[[bytes], None] | None = None,
        writable: asyncio.Event | None = None,
    ) -> None:
        self.transport: asyncio.BaseTransport | None = None
        self.closed = asyncio.Event()
        self._on_end = on_end
        self._on_data = on_data
        self._writable = writable

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        if self._on_data is not None:
            self._on_data(data)

    def pause_writing(self) -> None:
        if self._writable is not None:
            self._writable.clear()

    def resume_writing(self) -> None:
        if self._writable is not None:
            self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.set()
        self._on_end()

    async def drop(self) -> None:
        """Close at once, whatever is still unwritten."""
        # A close that is already under way is let through first: aborting it again would end it twice.
        await asyncio.sleep(0)
        if self.transport is None or self.closed.is_set():
            return
        if self._writable is not None:
            cast(asyncio.WriteTransport, self.transport).abort()
        else:
            self.transport.close()
        await self.closed.wait()


async def _whole(connecting: Coroutine[Any, Any, object]) -> None:
    """Cancelled in the middle, uvloop drops the pipe and never tells its protocol that it is lost."""
    task = asyncio.ensure_future(connecting)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        raise


def _itself(pipe: _Pipe) -> _Pipe:
    return pipe
