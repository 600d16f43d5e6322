"""What fails costs only itself, is said, and heals: processes that die, servers that lie or say nothing."""

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest

from tests.journeys.conftest import API, Door, Open, eventually
from tests.servers.peers import scripted
from tests.servers.running import Upstreams, free_port


async def test_a_server_killed_in_mid_call_is_answered_for_and_comes_back(door: Door) -> None:
    """R-15, R-29: an answer in under 1 s, the server back in under 3 s, others do not notice."""
    await door.connected("alpha", "STDIO", scripted())
    await door.connected("beta", "STDIO", scripted())
    for _ in range(3):
        pid = int(await door.text("alpha.pid"))
        neighbour = asyncio.create_task(door.text("beta.slow", seconds=1))
        running = asyncio.create_task(door.call("alpha.slow", seconds=20))
        await door.in_flight("alpha", 1)
        os.kill(pid, signal.SIGKILL)
        killed = time.monotonic()
        status, answer = await running
        assert time.monotonic() - killed < 1
        assert (status, answer["error_code"]) == (503, "SERVER_UNAVAILABLE")
        assert answer["server"]["name"] == "alpha"
        assert answer["context"]["outcome"] == "unknown"
        assert "outcome unknown" in answer["detail"]
        assert "killed by signal 9" in answer["context"]["reason"] or "ended" in answer["context"]["reason"]
        assert await door.text("beta.echo", text="unmoved") == "unmoved"
        assert int(await door.text("alpha.pid")) != pid  # waits for the new process
        assert time.monotonic() - killed < 3
        assert await neighbour == "done"
    history = (await door.ask("GET", f"{API}/servers/alpha/history"))[1]["history"]
    events = [record["event"] for record in history]
    assert events[:3] == ["CONNECTED", "RECONNECT", "ERROR"]


async def test_a_call_that_may_have_run_is_never_sent_twice(door: Door, tmp_path: Path) -> None:
    """R-29: the tool writes and dies before it answers; a tool that only reads is simply asked again."""
    ledger = tmp_path / "ledger"
    await door.connected("alpha", "STDIO", scripted(ledger=str(ledger)))
    for _ in range(4):
        status, answer = await door.call("alpha.die_after_writing")
        assert (status, answer["context"]["outcome"]) == (503, "unknown")
        await door.text("alpha.echo", text="back")
    assert ledger.read_text().splitlines() == ["executed"] * 4


async def test_a_read_only_call_survives_the_death_of_its_server(door: Door) -> None:
    """R-15, R-29."""
    await door.connected("alpha", "STDIO", scripted())
    killer = asyncio.create_task(door.call("alpha.die"))
    answers = await asyncio.gather(*(door.text("alpha.echo", text=str(n)) for n in range(50)))
    assert answers == [str(n) for n in range(50)]
    assert (await killer)[0] == 503


async def test_an_http_server_that_was_restarted_heals_with_nobodys_help(
    open_door: Open, upstreams: Upstreams
) -> None:
    """R-12, R-15, R-31, R-32."""
    door = await open_door(health_interval=0.3)
    port = await upstreams.start("scripted_mcp.py", "http")
    await door.connected("alpha", "HTTP", {"base_url": f"http://127.0.0.1:{port}/mcp"})
    await upstreams.kill()
    down = await door.until("alpha", "ERROR", "CONNECTING", seconds=10)
    status, answer = await door.call("alpha.echo", text="x")
    assert (status, answer["error_code"]) == (503, "SERVER_UNAVAILABLE"), (answer, down)

    async def attempts() -> int:
        history = (await door.ask("GET", f"{API}/servers/alpha/history"))[1]["history"]
        return [record["event"] for record in history].count("RECONNECT")

    await eventually(attempts, lambda count: count > 1)
    await upstreams.start("scripted_mcp.py", "http", port=port)
    await door.until("alpha", "CONNECTED", seconds=30)
    assert await door.text("alpha.echo", text="healed") == "healed"
    assert await door.metric('trunkline_reconnects_total{server="alpha"}') == 1


async def test_a_server_that_crashes_at_its_start_says_why(open_door: Open) -> None:
    """R-11, R-12: retried while CONNECTING, then ERROR with the end of what it wrote to stderr."""
    door = await open_door()
    await door.register("broken", "STDIO", scripted(start="crash"))
    early = await eventually(lambda: door.server("broken"), lambda it: it["error_message"] is not None, 5)
    assert early["status"] == "CONNECTING"
    failed = await door.until("broken", "ERROR", seconds=15)
    assert "cannot find my licence file" in failed["error_message"]
    assert "status 7" in failed["error_message"]


async def test_a_command_that_does_not_exist_is_said_at_once(door: Door) -> None:
    """R-11."""
    await door.register("broken", "STDIO", {"command": "no-such-program-anywhere"})
    failed = await door.until("broken", "ERROR", seconds=5)
    assert "no-such-program-anywhere" in failed["error_message"]


async def test_a_mute_server_delays_nobody_and_is_reported(open_door: Open) -> None:
    """R-11, R-12."""
    door = await open_door(connection_timeout=1.0)
    await door.register("mute", "STDIO", scripted(start="mute"))
    started = time.monotonic()
    await door.connected("alpha", "STDIO", scripted())
    assert await door.text("alpha.echo", text="x") == "x"
    assert time.monotonic() - started < 5
    failed = await door.until("mute", "ERROR", seconds=25)
    assert "handshake" in failed["error_message"]


async def test_rejected_credentials_are_not_tried_again(open_door: Open) -> None:
    """R-13."""
    door = await open_door(health_interval=0.2)
    hits = 0

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal hits
        await reader.readuntil(b"\r\n\r\n")
        hits += 1
        writer.write(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as listener:
        port = listener.sockets[0].getsockname()[1]
        await door.register("locked", "HTTP", {"base_url": f"http://127.0.0.1:{port}/mcp"})
        failed = await door.until("locked", "ERROR")
        assert "invalid credentials" in failed["error_message"]
        before = hits
        with pytest.raises(AssertionError):
            await door.until("locked", "CONNECTING", "CONNECTED", seconds=2.5)
        assert hits == before
        assert (await door.ask("POST", f"{API}/servers/locked/connect"))[0] == 200

        async def asked() -> int:
            return hits

        await eventually(asked, lambda count: count > before)
    _, audit = await door.ask("GET", f"{API}/audit?event=server.credentials_rejected")
    assert audit["total"] >= 1


async def test_a_registration_without_a_server_behind_it_waits_for_one(
    open_door: Open, upstreams: Upstreams
) -> None:
    """R-12."""
    door = await open_door(health_interval=0.3)
    port = free_port()
    await door.register("later", "HTTP", {"base_url": f"http://127.0.0.1:{port}/mcp"})
    failed = await door.until("later", "ERROR", seconds=15)
    assert "refused" in failed["error_message"]
    assert str(port) not in failed["error_message"]
    await upstreams.start("scripted_mcp.py", "http", port=port)
    await door.until("later", "CONNECTED", seconds=40)


async def test_delete_and_disconnect_during_reconnects_revive_nothing(door: Door) -> None:
    """R-06, R-07, R-15."""
    for turn in range(6):
        name = f"server-{turn}"
        await door.connected(name, "STDIO", scripted())
        await asyncio.gather(door.call(f"{name}.die"), door.ask("DELETE", f"{API}/servers/{name}"))
        assert (await door.ask("GET", f"{API}/servers/{name}"))[0] == 404
    assert (await door.ask("GET", f"{API}/servers"))[1]["total"] == 0
    assert (await door.ask("GET", "/api/v1/tools"))[1]["total"] == 0
