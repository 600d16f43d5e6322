"""The load generator counts right answers alone, and the floor passes a call on as one message."""

import asyncio
import re
from pathlib import Path

import msgspec
import pytest

from bench.load import Mode, Plan, measure
from bench.processes import BenchError, Running, running
from bench.upstream import Connection, Stats, Upstream


def plan(url: str, *, mode: Mode = "mcp-modern", callers: int = 4, pid: int | None = None) -> Plan:
    tool = "bench.echo" if mode == "rest" else "echo"
    return Plan(url=url, mode=mode, tool=tool, callers=callers, seconds=0.3, warmup=0.1, server_pid=pid)


async def stats_of(url: str) -> Stats:
    host, _, port = url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"GET /stats HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n")
    answer = await reader.read()
    writer.close()
    return msgspec.json.decode(answer.partition(b"\r\n\r\n")[2], type=Stats)


@pytest.mark.parametrize("mode", ["mcp-modern", "mcp-legacy"])
async def test_what_it_counts_is_what_arrived(upstream: Running, mode: Mode) -> None:
    url = upstream.address()
    seen = await measure(plan(url + "/mcp", mode=mode, pid=upstream.pid))
    stats = await stats_of(url)
    assert stats.messages["tools/call"] == seen.all_calls >= seen.calls > 0
    assert stats.connections == 4
    assert (seen.wrong, seen.complaints) == (0, {})
    assert 0 < seen.p50_ms <= seen.p99_ms
    assert seen.server_cpu_ms > 0
    assert seen.server_rss_mb > 1


async def test_the_floor_makes_one_message_of_one_call(upstream: Running, tmp_path: Path) -> None:
    url = upstream.address()
    with running("floor", ["bench.floor", "--upstream", url + "/mcp"], folder=tmp_path, core=None) as floor:
        seen = await measure(plan(floor.address() + "/api/v1/tools/call", mode="rest", pid=floor.pid))
    stats = await stats_of(url)
    assert stats.messages == {"tools/call": seen.all_calls}
    assert stats.connections <= 4
    assert (seen.wrong, seen.complaints) == (0, {})


class Wrong(Upstream):
    """Spoils every second call before it answers it."""

    def __init__(self, pattern: bytes, replacement: bytes) -> None:
        super().__init__()
        self._pattern, self._replacement = pattern, replacement
        self._count = 0

    def answer(self, verb: bytes, path: bytes, body: bytes) -> tuple[int, bytes]:
        self._count += 1
        spoiled = re.sub(self._pattern, self._replacement, body, count=1)
        return super().answer(verb, path, spoiled if self._count % 2 else body)


@pytest.mark.parametrize(
    ("pattern", "replacement"), [(rb'"id":\d+', b'"id":1'), (rb'"text":"\d', b'"text":"x')]
)
async def test_an_answer_to_another_call_is_wrong(pattern: bytes, replacement: bytes) -> None:
    answering = Wrong(pattern, replacement)
    server = await asyncio.get_running_loop().create_server(lambda: Connection(answering), "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        seen = await measure(plan(f"http://127.0.0.1:{port}/mcp", callers=1))
    assert abs(seen.wrong - seen.all_calls / 2) <= 1
    assert all(complaint.startswith("a wrong answer") for complaint in seen.complaints)


async def test_an_error_status_is_no_answer(upstream: Running) -> None:
    with pytest.raises(BenchError, match="HTTP 404"):
        await measure(plan(upstream.address() + "/nowhere"))


async def test_a_closed_port_is_said(upstream: Running) -> None:
    url = upstream.address()
    upstream.stop()
    with pytest.raises(BenchError, match=r"no right answer|cannot connect"):
        await measure(plan(url + "/mcp"))
