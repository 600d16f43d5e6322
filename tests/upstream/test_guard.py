"""Nothing a server started outlives it, and nothing outlives the gateway, however it ends."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from tests.upstream.bad_line import ARGUMENTS, Line, children_of, is_running, made, opened, running, until
from trunkline.errors import Lost, NotSent
from trunkline.upstream import guard
from trunkline.upstream.spawner import Spawner

GATEWAY = """
import asyncio, json, sys
from trunkline.model import StdioSpec
from trunkline.upstream.spawner import Spawner
from trunkline.upstream.stdio import StdioWire

class Deaf:
    def on_request(self, *_): pass
    def on_notification(self, *_): pass
    def on_noise(self, *_): pass
    def on_lost(self, *_): pass

async def main():
    command, *arguments = json.loads(sys.argv[1])
    spawner = Spawner()
    for flag in ([], ["--stubborn"]):
        spec = StdioSpec(command, (*arguments, *flag))
        await StdioWire(
            spec, name="x", message_limit=1000, redact=str, spawner=spawner
        ).open(Deaf())
    print(spawner.guard_pid, flush=True)
    await asyncio.to_thread(sys.stdin.readline)

asyncio.run(main())
"""


@pytest.fixture
def mark() -> str:
    """Stands on the command line of the grandchildren of one test."""
    return uuid.uuid4().hex


async def test_closing_leaves_no_grandchild_whatever_it_did_to_get_away(mark: str) -> None:
    """R-11, failure mode 1: it ignores signals, has a session of its own, has shed its environment."""
    async with opened() as line:
        assert len(await line.ask("family", mark=mark)) == 3
        await until(lambda: len(running(mark)) == 3)
        await line.wire.close()
        assert running(mark) == []


async def test_grandchildren_that_a_dead_wrapper_left_behind_go_with_the_server(mark: str) -> None:
    """Failure mode 1: the wrapper is gone, and with it the chain of parents."""
    async with opened() as line:
        await line.ask("family", mark=mark)
        await until(lambda: len(running(mark)) == 3)
        with pytest.raises(Lost):
            await line.ask("die")
        await line.wire.close()
        assert running(mark) == []


async def test_ending_one_server_touches_no_other(mark: str) -> None:
    spawner = Spawner()
    lines = [Line(made(spawner)) for _ in range(3)]
    await asyncio.gather(*(line.wire.open(line.heard) for line in lines))
    theirs = [set(await line.ask("family", mark=mark)) for line in lines]
    await lines[0].wire.close()
    # One of them has no marker and no parent that tells whose it is: it goes with the last server.
    await until(lambda: len(running(mark)) == 7)
    assert len(theirs[0] & set(running(mark))) == 1
    for line in lines[1:]:
        assert await line.ask("echo", n=1) == {"n": 1}
        assert line.heard.lost == []
    await asyncio.gather(*(line.wire.close() for line in lines))
    assert running(mark) == []
    await spawner.close()


ON_TERM = """
import signal, sys, time, pathlib
def told(*_):
    pathlib.Path(sys.argv[1]).write_text("told")
signal.signal(signal.SIGTERM, told)
pathlib.Path(sys.argv[1]).write_text("ready")
time.sleep(600)
"""


async def test_term_reaches_the_grandchildren_too(tmp_path: Path) -> None:
    """A wrapper that passes no signal on must not cost the server behind it its good order."""
    spawner = Spawner()
    note = tmp_path / "note"
    script = 'trap "" TERM; "$1" -I -S -c "$2" "$3" & wait'
    argv = ["/bin/sh", "-c", script, "sh", sys.executable, ON_TERM, str(note)]
    child = spawner.start(argv, {"PATH": os.defpath}, [os.open(os.devnull, os.O_RDWR) for _ in range(3)])
    await child.wait_started()
    await until(lambda: note.exists() and note.read_text() == "ready")
    child.signal(signal.SIGTERM)
    await until(lambda: note.read_text() == "told")
    await child.sweep()
    assert await child.exited == -signal.SIGKILL
    await spawner.close()


def start_gateway(mark: str) -> tuple[subprocess.Popen[str], int]:
    """A process that holds two servers with grandchildren, and the pid of its guard."""
    command = [sys.executable, *ARGUMENTS[:-1], mark, "--family", mark]
    gateway = subprocess.Popen(
        [sys.executable, "-c", GATEWAY, json.dumps(command)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert gateway.stdout is not None
    return gateway, int(gateway.stdout.readline())


@pytest.mark.parametrize("how", ["killed", "terminated", "ended without closing"])
async def test_nothing_outlives_the_gateway_by_two_seconds(mark: str, how: str) -> None:
    """R-11, R16 of the goals: wrapper, grandchild, grandchild in its own session, one without its marker."""
    gateway, guard_pid = await asyncio.to_thread(start_gateway, mark)
    with gateway:
        await until(lambda: len(running(mark)) == 8)
        if how == "killed":
            gateway.kill()
        elif how == "terminated":
            gateway.terminate()
        else:
            gateway.communicate("\n")
        await until(lambda: not running(mark) and not is_running(guard_pid), seconds=2)


async def test_signals_from_a_terminal_do_not_end_the_guard() -> None:
    """Ctrl-C reaches every process in sight; the gateway still has servers to close in good order."""
    spawner = Spawner()
    line = Line(made(spawner))
    await line.wire.open(line.heard)
    guard_pid = spawner.guard_pid
    assert guard_pid is not None
    assert os.getsid(guard_pid) == guard_pid
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(guard_pid, number)
    assert await line.ask("echo", n=1) == {"n": 1}
    await line.wire.close()
    assert is_running(guard_pid)
    await spawner.close()


async def test_when_the_guard_dies_its_servers_are_lost_and_the_next_open_makes_a_new_one(mark: str) -> None:
    """R-15: a caller is told at once, nothing is left over, and the gateway heals."""
    spawner = Spawner()
    lines = [Line(made(spawner)) for _ in range(2)]
    for line in lines:
        await line.wire.open(line.heard)
        await line.ask("family", mark=mark)
    pending = [asyncio.ensure_future(line.ask("slow", seconds=30)) for line in lines]
    await asyncio.sleep(0)
    first = spawner.guard_pid
    assert first is not None
    began = time.monotonic()
    os.kill(first, signal.SIGKILL)
    outcomes = await asyncio.wait_for(asyncio.gather(*pending, return_exceptions=True), 2)
    assert [type(outcome) for outcome in outcomes] == [Lost, Lost]
    assert time.monotonic() - began < 1
    for line in lines:
        assert len(line.heard.lost) == 1
        assert line.wire.epitaph() == "its process guard was gone"
        await line.wire.close()
    # What has shed the marker as well is out of reach of everybody once its guard is dead.
    strays = running(mark)
    assert len(strays) == 2
    for pid in strays:
        os.kill(pid, signal.SIGKILL)
    fresh = Line(made(spawner))
    await fresh.wire.open(fresh.heard)
    assert spawner.guard_pid not in (None, first)
    assert await fresh.ask("echo", n=1) == {"n": 1}
    await fresh.wire.close()
    await spawner.close()


async def test_twenty_servers_start_at_once_and_are_held_by_one_small_guard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MCP_CREDENTIAL_KEY", "sealed")
    spawner = Spawner()
    lines = [Line(made(spawner)) for _ in range(20)]
    await asyncio.gather(*(line.wire.open(line.heard) for line in lines))
    answers = await asyncio.gather(*(line.ask("echo", n=n) for n, line in enumerate(lines)))
    assert answers == [{"n": n} for n in range(20)]
    guard_pid = spawner.guard_pid
    assert len(children_of(guard_pid).split()) == 20
    status, environment = look_at(guard_pid)
    assert int(status["VmRSS"].split()[0]) < 20 * 1024
    assert b"MCP_" not in environment
    await asyncio.gather(*(line.wire.close() for line in lines))
    assert children_of(guard_pid) == ""
    await spawner.close()


def look_at(pid: int | None) -> tuple[dict[str, str], bytes]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    status = dict(line.split(":", 1) for line in lines)
    return status, Path(f"/proc/{pid}/environ").read_bytes()


async def test_a_command_line_larger_than_any_socket_buffer_arrives_whole() -> None:
    value = "v" * 100_000
    async with opened(env={f"LARGE_{n}": value for n in range(10)}) as line:
        seen = await line.ask("surroundings")
    assert all(seen["environment"][f"LARGE_{n}"] == value for n in range(10))


async def test_a_closed_spawner_can_be_used_again() -> None:
    spawner = Spawner()
    for _ in range(2):
        line = Line(made(spawner))
        await line.wire.open(line.heard)
        await line.wire.close()
        await spawner.close()
    assert spawner.guard_pid is None


async def test_a_guard_that_cannot_be_started_is_not_the_registrations_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    descriptors = []
    for _ in range(3):
        line = Line(made(Spawner(), command="/bin/sh"))
        with pytest.raises(NotSent, match="The process guard could not be started"):
            await line.wire.open(line.heard)
        await line.wire.close()
        descriptors.append(len(os.listdir("/proc/self/fd")))
    assert descriptors[1] == descriptors[2]


def test_frames_are_put_together_from_any_pieces() -> None:
    data = b"".join(guard.frame({"n": n, "text": "é\udcff"}) for n in range(3))
    buffer = bytearray()
    messages = []
    for byte in data:
        buffer.append(byte)
        messages += guard.take_frames(buffer)
    assert messages == [{"n": n, "text": "é\udcff"} for n in range(3)]
    assert buffer == b""
