"""Fifty servers at once: how soon they are connected and listed, what that weighs, and whether answers cross.

Half of them are STDIO children, half streamable HTTP; five say nothing at all. The times are a machine's own;
what they are measured against are the goals printed beside them. Then 16 callers make 24,000 calls over 20
of the servers, whose request ids all count from one, and every answer is compared with what was asked.
Run it with `scripts/bench fleet`.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import aiohttp
import psutil

from bench.gateway import SERVERS, Gateway
from bench.processes import BenchError, running

CHILD = str(Path(__file__).with_name("child.py"))
LIVE, MUTE, TOOLS = 45, 5, 23
CALLERS, CALLS, CALLED = 16, 24_000, 20
CONNECTED_SECONDS, RSS_MB = 10.0, 250.0
HANDSHAKE_SECONDS = 5.0


def register_all(gateway: Gateway, upstream: str) -> None:
    for number in range(MUTE):
        gateway.register(f"mute-{number}", "STDIO", {"command": sys.executable, "args": [CHILD, "mute"]})
    for number in range(LIVE):
        if number % 2:
            config: dict[str, object] = {"base_url": f"{upstream}/t{TOOLS}/mcp"}
            gateway.register(f"live-{number}", "HTTP", config)
        else:
            config = {"command": sys.executable, "args": ["-I", "-S", CHILD, str(TOOLS)]}
            gateway.register(f"live-{number}", "STDIO", config)


def until_connected(gateway: Gateway) -> float:
    """Seconds until every live server is connected with all its tools."""
    began = time.monotonic()

    def all_there() -> str | None:
        page = gateway.ask("GET", f"{SERVERS}?limit=100")
        ready = [
            server
            for server in page["servers"]
            if server["status"] == "CONNECTED" and server["tool_count"] == TOOLS
        ]
        return "yes" if len(ready) == LIVE else None

    gateway.process.wait_for(all_there, f"{LIVE} servers as connected", 60.0)
    return time.monotonic() - began


def until_reported(gateway: Gateway) -> int:
    """How many of the mute servers say why they are not connected, once their handshake's time is over."""

    def reported() -> list[str]:
        shown = [gateway.ask("GET", f"{SERVERS}/mute-{number}") for number in range(MUTE)]
        return [server["error_message"] for server in shown if server["error_message"]]

    def all_there() -> str | None:
        return "yes" if len(reported()) == MUTE else None

    gateway.process.wait_for(all_there, "why the mute servers are not connected", HANDSHAKE_SECONDS * 4)
    return len(reported())


def weight(pid: int) -> float:
    """RSS in MB, without children."""
    return float(psutil.Process(pid).memory_info().rss) / 1e6


async def crossed(gateway: Gateway) -> tuple[int, float]:
    """Wrong answers among all calls, and the seconds they took."""
    url = gateway.url + "/api/v1/tools/call"
    headers = {"Authorization": f"Bearer {gateway.key_file.read_text().strip()}"}

    async def caller(session: aiohttp.ClientSession, who: int) -> int:
        wrong = 0
        for turn in range(CALLS // CALLERS):
            text = f"{who}/{turn}"
            body = {"name": f"live-{(who + turn) % CALLED}.echo", "arguments": {"text": text}}
            async with session.post(url, json=body) as response:
                answer = await response.json()
            wrong += response.status != 200 or answer["content"][0]["text"] != text
        return wrong

    began = time.monotonic()
    async with aiohttp.ClientSession(headers=headers) as session:
        wrong = sum(await asyncio.gather(*(caller(session, who) for who in range(CALLERS))))
    return wrong, time.monotonic() - began


def run() -> bool:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="trunkline-bench-")))
        upstream = stack.enter_context(running("upstream", ["bench.upstream"], folder=folder, core=None))
        settings = {"MCP_AGGREGATOR_CONNECTION_TIMEOUT": f"{HANDSHAKE_SECONDS:g}"}
        gateway = Gateway(stack, folder, core=None, settings=settings)
        idle = weight(gateway.process.pid)
        began = time.monotonic()
        register_all(gateway, upstream.address())
        registered = time.monotonic() - began
        seconds = registered + until_connected(gateway)
        reported = until_reported(gateway)
        loaded = weight(gateway.process.pid)
        wrong, took = asyncio.run(crossed(gateway))
        after = weight(gateway.process.pid)
    rows = [
        (f"{LIVE + MUTE} servers registered", f"{registered:.1f} s", True),
        (
            f"{LIVE} connected, {LIVE * TOOLS:,} tools listed, in under {CONNECTED_SECONDS:g} s",
            f"{seconds:.1f} s",
            seconds < CONNECTED_SECONDS,
        ),
        (f"{MUTE} mute servers reported", str(reported), reported == MUTE),
        (f"RSS under {RSS_MB:g} MB", f"{loaded:.0f} MB ({idle:.0f} MB before)", loaded < RSS_MB),
        (f"{CALLS:,} calls, {CALLERS} callers, {CALLED} servers: none wrong", f"{wrong} wrong", wrong == 0),
        ("the same calls", f"{CALLS / took:,.0f} a second, RSS {after:.0f} MB after", True),
    ]
    for what, seen, met in rows:
        print(f"{'yes' if met else 'NO ':3}  {what}: {seen}")
    return all(met for _, _, met in rows)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="scripts/bench fleet", description="Fifty servers at once.")
    parser.add_argument("--strict", action="store_true", help="exit with 1 when a goal is missed")
    options = parser.parse_args(arguments)
    try:
        met = run()
    except BenchError as error:
        raise SystemExit(f"bench: {error}") from None
    if options.strict and not met:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
