"""The load generator: so many callers, each with one kept connection and one call under way at a time.

Raw HTTP/1.1 on an asyncio protocol, one process. Three modes: `mcp-modern` and `mcp-legacy` call a tool of
an MCP endpoint, `rest` calls it by `POST /api/v1/tools/call`. An answer counts only when its status is 200
and it carries the id and the very text of its call; with `--list` the MCP modes ask for `tools/list`, and it
counts when it names so many different tools. Reads JSON answers, not event streams. Prints one line of JSON.
Run it with `python -m bench.load --url URL --mode MODE --tool NAME`.
"""

import argparse
import asyncio
import time
from collections import Counter
from pathlib import Path
from typing import Literal, cast
from urllib.parse import urlsplit

import httptools
import msgspec
import uvloop

from bench import protocol
from bench.processes import BenchError, Usage, usage
from bench.upstream import Stats

Mode = Literal["mcp-legacy", "mcp-modern", "rest"]
MODES: tuple[Mode, ...] = ("mcp-legacy", "mcp-modern", "rest")

_PATIENCE = 30.0
_FAILURES_IN_A_ROW = 20


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    url: str
    mode: Mode
    tool: str
    callers: int
    seconds: float
    warmup: float = 0.5
    token: str | None = None
    server_pid: int | None = None
    """Whose processor time and memory is measured, with all its children."""
    text_bytes: int = 32
    listed: int = 0
    """When set, lists are asked for instead of calls, and so many tools are expected."""
    stats_url: str | None = None
    """Where the upstream counts, to tell new connections within the window from those before it."""


class Measurement(msgspec.Struct, kw_only=True):
    """What one run of the load saw. Rates and times are of the window after the warm-up."""

    calls: int
    per_second: float
    p50_ms: float
    p99_ms: float
    server_cpu_ms: float
    """Processor time per call."""
    server_rss_mb: float
    generator_cpu: float
    """Share of one core the generator used: near 1.0, it is the limit itself."""
    elapsed: float
    """Seconds from the first call to the last answer, the warm-up included."""
    all_calls: int
    """Every call made, the warm-up included: what the upstream's count is compared with."""
    wrong: int
    complaints: dict[str, int]
    window_connections: int | None = None
    """New connections to the upstream within the window; None where nobody counted."""


class Repeated(msgspec.Struct, frozen=True):
    """What came of a fixed number of calls."""

    calls: int
    wrong: int
    complaints: dict[str, int]


class _Block(msgspec.Struct, frozen=True):
    text: str = ""


class _Result(msgspec.Struct, frozen=True, rename="camel"):
    content: tuple[_Block, ...] = ()
    is_error: bool = False


class _Response(msgspec.Struct, frozen=True):
    id: int | None = None
    result: _Result = _Result()


class _Tool(msgspec.Struct, frozen=True):
    name: str


class _Listed(msgspec.Struct, frozen=True):
    tools: tuple[_Tool, ...] = ()


class _ListResponse(msgspec.Struct, frozen=True):
    id: int | None = None
    result: _Listed = _Listed()


class _Session(msgspec.Struct, frozen=True):
    id: int
    result: dict[str, object]


class Reply(msgspec.Struct, frozen=True):
    status: int
    headers: dict[bytes, bytes]
    body: bytes


class Connection(asyncio.Protocol):
    """One kept connection with one exchange at a time."""

    def __init__(self) -> None:
        self.open = True
        self._transport: asyncio.Transport
        self._parser = httptools.HttpResponseParser(self)
        self._waiting: asyncio.Future[Reply] | None = None
        self._headers: dict[bytes, bytes] = {}
        self._body = b""

    async def exchange(self, request: bytes) -> Reply:
        self._waiting = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._waiting

    def close(self) -> None:
        self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.open = False
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(ConnectionError("the connection was closed before the answer"))

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._transport.abort()

    def on_message_begin(self) -> None:
        self._headers, self._body = {}, b""

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.lower()] = value

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        if not self._parser.should_keep_alive():
            self.open = False
            self._transport.close()
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(Reply(self._parser.get_status_code(), self._headers, self._body))


class Stream(Connection):
    """A connection whose answer counts as soon as its head is there, and then goes on."""

    def on_headers_complete(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(Reply(self._parser.get_status_code(), self._headers, b""))

    def on_body(self, body: bytes) -> None:
        """Nobody reads it."""


class Caller:
    """Writes one kind of call and judges its answers."""

    def __init__(self, plan: Plan, number: int) -> None:
        self._plan = plan
        self._address = urlsplit(plan.url)
        self._connection: Connection | None = None
        self._identity = number * 10_000_000
        self._name = msgspec.json.encode(plan.tool)
        self._padding = "x" * max(0, plan.text_bytes - 12)
        self._method = "tools/list" if plan.listed else "tools/call"
        self._kept: dict[str, str] = {}
        self._head = self._request_head(self._method, {})
        self._stream: Stream | None = None
        self._responses = msgspec.json.Decoder(_Response)
        self._results = msgspec.json.Decoder(_Result)
        self._lists = msgspec.json.Decoder(_ListResponse)
        self.took = 0.0
        """Seconds from the last request to its answer, without our own judging of it."""

    async def open(self) -> None:
        """The handshake, where the mode has one."""
        if self._plan.mode != "mcp-legacy":
            return
        asked = {"protocolVersion": protocol.LATEST_LEGACY, "capabilities": {}, "clientInfo": _CLIENT}
        message = {"jsonrpc": "2.0", "id": self._identity, "method": "initialize", "params": asked}
        reply = await self._send(self._request_head("initialize", {}), msgspec.json.encode(message))
        try:
            negotiated = str(msgspec.json.decode(reply.body, type=_Session).result["protocolVersion"])
        except (msgspec.DecodeError, KeyError):
            raise BenchError(f"initialize was answered with {_shown(reply)}") from None
        kept = {"MCP-Protocol-Version": negotiated}
        if session := reply.headers.get(b"mcp-session-id"):
            kept["Mcp-Session-Id"] = session.decode("ascii")
        self._kept = kept
        self._head = self._request_head(self._method, kept)
        await self._send(
            self._request_head("notifications/initialized", kept),
            b'{"jsonrpc":"2.0","method":"notifications/initialized"}',
        )

    async def listen(self) -> None:
        """Open the stream of what belongs to no request, as a client with a session does."""
        _, stream = await asyncio.get_running_loop().create_connection(
            Stream, self._address.hostname or "", self._address.port or 80
        )
        self._stream = stream
        head = self._request_head("", {**self._kept, "Accept": "text/event-stream"}, verb="GET")
        reply = await stream.exchange(b"%b0\r\n\r\n" % head)
        if reply.status != 200:
            raise BenchError(f"the stream of a session was answered with {_shown(reply)}")

    async def call(self) -> str | None:
        """One call. None when the answer is right, else what is wrong with it."""
        self._identity += 1
        text = f"{self._identity:012d}{self._padding}"
        body = self._body(b'{"text":"%b"}' % text.encode("ascii"))
        began = time.perf_counter()
        try:
            reply = await self._send(self._head, body)
        except OSError as error:
            return f"{type(error).__name__}: {error}"
        self.took = time.perf_counter() - began
        if reply.status != 200:
            return f"an answer of {_shown(reply)}"
        try:
            return None if self._right(reply.body, text) else f"a wrong answer: {_shown(reply)}"
        except msgspec.DecodeError:
            return f"an answer that cannot be read: {_shown(reply)}"

    def close(self) -> None:
        for connection in (self._connection, self._stream):
            if connection is not None:
                connection.close()

    def _body(self, arguments: bytes) -> bytes:
        if self._plan.mode == "rest":
            return b'{"name":%b,"arguments":%b}' % (self._name, arguments)
        if self._plan.listed:
            return protocol.list_request(self._identity, modern=self._plan.mode == "mcp-modern")
        if self._plan.mode == "mcp-modern":
            return protocol.modern_call(self._identity, self._name, arguments)
        return protocol.legacy_call(self._identity, self._name, arguments)

    def _right(self, body: bytes, text: str) -> bool:
        if self._plan.mode == "rest":
            result = self._results.decode(body)
        elif self._plan.listed:
            listed = self._lists.decode(body)
            names = {tool.name for tool in listed.result.tools}
            return listed.id == self._identity and len(names) == self._plan.listed
        else:
            response = self._responses.decode(body)
            if response.id != self._identity:
                return False
            result = response.result
        return not result.is_error and len(result.content) == 1 and result.content[0].text == text

    def _request_head(self, method: str, further: dict[str, str], *, verb: str = "POST") -> bytes:
        headers = {
            "Host": self._address.netloc,
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            **further,
        }
        if self._plan.token:
            headers["Authorization"] = f"Bearer {self._plan.token}"
        if self._plan.mode == "mcp-modern":
            headers |= protocol.modern_headers(method, None if self._plan.listed else self._plan.tool)
        lines = [f"{verb} {self._address.path or '/'} HTTP/1.1", *(f"{k}: {v}" for k, v in headers.items())]
        return "\r\n".join([*lines, "Content-Length: "]).encode("ascii")

    async def _send(self, head: bytes, body: bytes) -> Reply:
        if self._connection is None or not self._connection.open:
            _, self._connection = await asyncio.get_running_loop().create_connection(
                Connection, self._address.hostname or "", self._address.port or 80
            )
        return await self._connection.exchange(b"%b%d\r\n\r\n%b" % (head, len(body), body))


_CLIENT = {"name": "trunkline-bench", "version": "1"}


def _shown(reply: Reply) -> str:
    return f"HTTP {reply.status} {reply.body[:160].decode(errors='replace')}"


class _Tally:
    """What all callers have seen so far."""

    def __init__(self) -> None:
        self.latencies: list[float] = []
        self.all_calls = 0
        self.complaints: Counter[str] = Counter()
        self.stopped = False


async def _call_on(caller: Caller, tally: _Tally) -> None:
    failures = 0
    while not tally.stopped and failures < _FAILURES_IN_A_ROW:
        complaint = await caller.call()
        tally.all_calls += 1
        if complaint is None:
            tally.latencies.append(caller.took)
            failures = 0
        else:
            tally.complaints[complaint] += 1
            failures += 1


async def measure(plan: Plan) -> Measurement:
    """Warm up, measure one window, let the calls in flight end."""
    callers = [Caller(plan, number + 1) for number in range(plan.callers)]
    try:
        async with asyncio.timeout(_PATIENCE):
            for caller in callers:
                await caller.open()
        return await _window(plan, callers)
    except TimeoutError:
        raise BenchError(f"an answer did not come within {_PATIENCE:g} s") from None
    except OSError as error:
        raise BenchError(f"cannot connect to {plan.url}: {error}") from None
    finally:
        for caller in callers:
            caller.close()


async def repeat(plan: Plan, calls: int) -> Repeated:
    """A fixed number of calls in all, whatever time they take."""
    callers = [Caller(plan, number + 1) for number in range(plan.callers)]
    complaints: Counter[str] = Counter()

    async def work(caller: Caller, own: int) -> None:
        await caller.open()
        for _ in range(own):
            complaint = await caller.call()
            if complaint is not None:
                complaints[complaint] += 1

    shares = [len(range(number, calls, plan.callers)) for number in range(plan.callers)]
    try:
        await asyncio.gather(*(work(caller, own) for caller, own in zip(callers, shares, strict=True)))
    except OSError as error:
        raise BenchError(f"cannot connect to {plan.url}: {error}") from None
    finally:
        for caller in callers:
            caller.close()
    return Repeated(calls, complaints.total(), dict(complaints.most_common(5)))


async def _window(plan: Plan, callers: list[Caller]) -> Measurement:
    tally = _Tally()
    began = time.perf_counter()
    tasks = [asyncio.create_task(_call_on(caller, tally)) for caller in callers]
    await asyncio.sleep(plan.warmup)
    connected_before = await _upstream_connections(plan)
    first, own_before, before = len(tally.latencies), time.process_time(), _usage(plan)
    opened = time.perf_counter()
    await asyncio.sleep(plan.seconds)
    last, own_after, after = len(tally.latencies), time.process_time(), _usage(plan)
    length = time.perf_counter() - opened
    connected_after = await _upstream_connections(plan)
    tally.stopped = True
    async with asyncio.timeout(_PATIENCE):
        await asyncio.gather(*tasks)
    seen = sorted(tally.latencies[first:last])
    complaints = dict(tally.complaints.most_common(5))
    if not seen:
        raise BenchError(f"no right answer came within the window; seen: {complaints or 'nothing'}")
    return Measurement(
        calls=len(seen),
        per_second=len(seen) / length,
        p50_ms=_percentile(seen, 0.50) * 1e3,
        p99_ms=_percentile(seen, 0.99) * 1e3,
        server_cpu_ms=(after.cpu_seconds - before.cpu_seconds) / len(seen) * 1e3,
        server_rss_mb=after.rss_bytes / 2**20,
        generator_cpu=(own_after - own_before) / length,
        elapsed=time.perf_counter() - began,
        all_calls=tally.all_calls,
        wrong=tally.complaints.total(),
        complaints=complaints,
        window_connections=connected_after - connected_before if plan.stats_url else None,
    )


async def _upstream_connections(plan: Plan) -> int:
    if plan.stats_url is None:
        return 0
    address = urlsplit(plan.stats_url)
    _, connection = await asyncio.get_running_loop().create_connection(
        Connection, address.hostname or "", address.port or 80
    )
    try:
        reply = await connection.exchange(b"GET %b HTTP/1.1\r\nHost: bench\r\n\r\n" % address.path.encode())
    finally:
        connection.close()
    return msgspec.json.decode(reply.body, type=Stats).connections


def _usage(plan: Plan) -> Usage:
    return usage(plan.server_pid) if plan.server_pid else Usage(0.0, 0)


def _percentile(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def read_plan(arguments: list[str] | None = None) -> Plan:
    parser = argparse.ArgumentParser(prog="python -m bench.load", description="Load on one endpoint.")
    parser.add_argument("--url", required=True, help="http address of the endpoint")
    parser.add_argument("--mode", required=True, choices=MODES)
    parser.add_argument("--tool", default="echo", help="a tool that returns its argument `text`")
    parser.add_argument("--callers", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=3.0, help="length of the window")
    parser.add_argument("--warmup", type=float, default=0.5, help="seconds before the window")
    parser.add_argument("--token-file", type=Path, help="file that holds the bearer key")
    parser.add_argument("--server-pid", type=int, help="process whose cost is measured")
    parser.add_argument("--text-bytes", type=int, default=32, help="length of the text")
    parser.add_argument("--list", type=int, default=0, metavar="TOOLS", help="list so many tools, not call")
    parser.add_argument("--stats-url", help="where the upstream counts its connections")
    given = parser.parse_args(arguments)
    return Plan(
        url=given.url,
        mode=given.mode,
        tool=given.tool,
        callers=given.callers,
        seconds=given.seconds,
        warmup=given.warmup,
        token=given.token_file.read_text().strip() if given.token_file else None,
        server_pid=given.server_pid,
        text_bytes=given.text_bytes,
        listed=given.list,
        stats_url=given.stats_url,
    )


def main() -> None:
    try:
        measurement = uvloop.run(measure(read_plan()))
    except BenchError as error:
        raise SystemExit(f"load: {error}") from None
    print(msgspec.json.encode(measurement).decode())


if __name__ == "__main__":
    main()
