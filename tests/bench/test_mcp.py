"""The MCP benchmark: the load and floor it adds, what it prints, its options, and a small whole run."""

import asyncio
import re
import subprocess
import sys
import urllib.request
from pathlib import Path

import msgspec
import pytest

from bench.crowd import abandon
from bench.goals import judge_idle
from bench.load import Mode, Plan, Repeated, measure, repeat
from bench.mcp import Kept, Part, read_options, show
from bench.processes import Running, running
from bench.upstream import Connection, Stats, Upstream

MODES: list[Mode] = ["mcp-modern", "mcp-legacy"]


def plan(
    url: str, mode: Mode = "mcp-modern", *, tool: str = "echo", listed: int = 0, stats_url: str | None = None
) -> Plan:
    return Plan(
        url=url,
        mode=mode,
        tool=tool,
        callers=4,
        seconds=0.3,
        warmup=0.1,
        listed=listed,
        stats_url=stats_url,
    )


async def stats_of(url: str) -> Stats:
    def read() -> bytes:
        with urllib.request.urlopen(url + "/stats", timeout=10) as answer:
            return bytes(answer.read())

    return msgspec.json.decode(await asyncio.to_thread(read), type=Stats)


@pytest.mark.parametrize("mode", MODES)
async def test_the_floor_passes_messages_of_both_eras_on(
    upstream: Running, tmp_path: Path, mode: Mode
) -> None:
    url = upstream.address()
    with running("floor", ["bench.floor", "--upstream", url + "/mcp"], folder=tmp_path, core=None) as floor:
        seen = await measure(plan(floor.address() + "/mcp", mode, tool="bench__echo"))
    stats = await stats_of(url)
    assert (seen.wrong, seen.complaints) == (0, {})
    assert stats.messages["tools/call"] == seen.all_calls
    assert stats.messages.get("initialize", 0) == (4 if mode == "mcp-legacy" else 0)
    assert stats.connections <= 4


@pytest.mark.parametrize("mode", MODES)
async def test_a_list_is_right_when_it_is_whole(upstream: Running, mode: Mode) -> None:
    seen = await measure(plan(upstream.address() + "/t50/mcp", mode, listed=50))
    assert seen.calls > 0
    assert seen.wrong == 0
    short = await repeat(plan(upstream.address() + "/t50/mcp", mode, listed=51), 8)
    assert (short.calls, short.wrong) == (8, 8)


async def test_connections_made_in_the_warm_up_are_not_of_the_window(upstream: Running) -> None:
    url = upstream.address()
    seen = await measure(plan(url + "/mcp", stats_url=url + "/stats"))
    assert seen.window_connections == 0
    assert (await measure(plan(url + "/mcp"))).window_connections is None


@pytest.mark.parametrize(("mode", "calls"), [("mcp-modern", 10), ("mcp-legacy", 2)])
async def test_a_fixed_number_of_calls_is_made(upstream: Running, mode: Mode, calls: int) -> None:
    url = upstream.address()
    assert await repeat(plan(url + "/mcp", mode), calls) == Repeated(calls, 0, {})
    assert (await stats_of(url)).messages["tools/call"] == calls


async def test_wrong_answers_among_a_fixed_number_are_counted() -> None:
    class Wrong(Upstream):
        def answer(self, verb: bytes, path: bytes, body: bytes) -> tuple[int, bytes]:
            return super().answer(verb, path, re.sub(rb'"id":\d+', b'"id":1', body, count=1))

    answering = Wrong()
    server = await asyncio.get_running_loop().create_server(lambda: Connection(answering), "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        found = await repeat(plan(f"http://127.0.0.1:{port}/mcp"), 6)
    assert found.wrong == 6


async def test_an_abandoned_session_is_opened_and_left(upstream: Running) -> None:
    await abandon(plan(upstream.address() + "/mcp", "mcp-legacy"), 40)
    stats = await stats_of(upstream.address())
    assert stats.messages == {"initialize": 40, "notifications/initialized": 40}
    assert stats.connections == 40


def test_every_part_is_shown_with_its_verdicts() -> None:
    shown = show(
        [Part(title="one", text="a table", verdicts=[]), Part(title="two", verdicts=[judge_idle(70.0)])]
    )
    assert shown == "== one\na table\n\n== two\nRSS idle <= 80 MB: yes (70.0 MB)"


def test_parts_come_in_their_own_order() -> None:
    options = read_options(["--only", "growth,list", "--eras", "2026-07-28", "--calls", "10"])
    assert (options.only, options.eras, options.calls) == (("list", "growth"), ("2026-07-28",), 10)


@pytest.mark.parametrize(
    "wrong", [["--only", "call"], ["--eras", "2025-06-18"], ["--calls", "0"], ["--sessions", "x"]]
)
def test_options_that_cannot_be_meant_are_refused(wrong: list[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        read_options(wrong)
    assert refused.value.code == 2


def test_a_small_run_measures_calls_and_lists_in_both_eras(tmp_path: Path) -> None:
    file = tmp_path / "kept.json"
    options = ["--only", "calls,list", "--rounds", "1", "--callers", "4", "--seconds", "0.3"]
    ended = subprocess.run(
        [sys.executable, "-m", "bench.mcp", *options, "--json", str(file)],
        capture_output=True,
        text=True,
        env={"TMPDIR": str(tmp_path)},
        timeout=100,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    kept = msgspec.json.decode(file.read_bytes(), type=Kept)
    assert [part.title.partition(",")[0] for part in kept.parts] == [
        "tools/call",
        "tools/call",
        "tools/list of 1",
    ]
    met = {verdict.goal: verdict.met for part in kept.parts for verdict in part.verdicts}
    for goal in (
        "upstream messages per call = 1",
        "every answer is right",
        "every list is whole",
        "lists come from the catalogue",
    ):
        assert met[goal], ended.stdout
    assert list(tmp_path.iterdir()) == [file]
