"""The process around the front: its socket, its signals, its end."""

import asyncio
import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.front.conftest import ECHO, StartFront, echo_registration
from trunkline.errors import StartRefused
from trunkline.front.server import address_of, listen

SCRIPT = Path(__file__).with_name("serving.py")


class Process:
    def __init__(self, data: Path, **environ: str) -> None:
        self.data = data
        self.child = subprocess.Popen(
            [sys.executable, str(SCRIPT), str(data), "0"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **environ},
        )

    def address(self) -> tuple[str, int]:
        assert self.child.stdout is not None
        host, port = self.child.stdout.readline().strip().removeprefix("http://").rsplit(":", 1)
        return host, int(port)

    def ask(self, where: tuple[str, int], method: str, path: str, body: Any = None) -> tuple[int, Any, Any]:
        connection = http.client.HTTPConnection(*where, timeout=20)
        headers = {"Authorization": "Bearer " + (self.data / "admin.key").read_text().strip()}
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        return answer.status, dict(answer.headers), json.loads(content) if content else None

    def with_echo(self, where: tuple[str, int], folder: Path) -> None:
        status, _, answer = self.ask(where, "POST", "/api/v1/aggregator/servers", echo_registration(folder))
        assert status == 201, answer
        path = "/api/v1/aggregator/servers/echo"
        wait_for(lambda: bool(self.ask(where, "GET", path)[2]["tool_count"]))

    def end(self, seconds: float = 10) -> int:
        return self.child.wait(seconds)


def wait_for(condition: Callable[[], bool], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come about in time"
        time.sleep(0.02)


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[..., Process]]:
    with contextlib.ExitStack() as ending:

        def start(**environ: str) -> Process:
            process = Process(tmp_path / "data", **environ)
            ending.callback(process.child.communicate)
            ending.callback(process.child.kill)
            return process

        yield start


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_in_good_order(started: Callable[..., Process], number: signal.Signals) -> None:
    process = started()
    where = process.address()
    idle = socket.create_connection(where)
    assert process.ask(where, "GET", "/health")[0] == 200
    began = time.monotonic()
    process.child.send_signal(number)
    assert process.end() == 0
    assert time.monotonic() - began < 3
    idle.close()


def test_calls_in_flight_finish_and_new_ones_are_refused(
    started: Callable[..., Process], tmp_path: Path
) -> None:
    process = started()
    where = process.address()
    process.with_echo(where, tmp_path)
    body = {"name": "echo.wait", "arguments": {"seconds": 2}}
    answers: list[tuple[int, Any, Any]] = []
    calls = [
        threading.Thread(
            target=lambda: answers.append(process.ask(where, "POST", "/api/v1/tools/call", body))
        )
        for _ in range(20)
    ]
    for call in calls:
        call.start()
    metric = 'trunkline_calls_in_flight{server="echo"} 20.0'
    wait_for(lambda: metric in metrics(process, where))
    process.child.send_signal(signal.SIGTERM)
    wait_for(lambda: process.ask(where, "GET", "/health")[0] == 503)
    status, headers, answer = process.ask(where, "POST", "/api/v1/tools/call", {"name": "echo.bare"})
    assert (status, answer["error_code"]) == (503, "SERVER_UNAVAILABLE")
    assert int(headers["retry-after"]) > 0
    for call in calls:
        call.join(10)
    assert [status for status, _, _ in answers] == [200] * 20
    assert process.end() == 0


def metrics(process: Process, where: tuple[str, int]) -> str:
    connection = http.client.HTTPConnection(*where, timeout=20)
    headers = {"Authorization": "Bearer " + (process.data / "admin.key").read_text().strip()}
    connection.request("GET", "/metrics", headers=headers)
    text = connection.getresponse().read().decode()
    connection.close()
    return text


def test_a_call_that_outlasts_the_drain_is_answered_503(
    started: Callable[..., Process], tmp_path: Path
) -> None:
    process = started(MCP_AGGREGATOR_SHUTDOWN_TIMEOUT="0.3")
    where = process.address()
    process.with_echo(where, tmp_path)
    answers: list[tuple[int, Any, Any]] = []
    body = {"name": "echo.wait", "arguments": {"seconds": 30}}
    call = threading.Thread(
        target=lambda: answers.append(process.ask(where, "POST", "/api/v1/tools/call", body))
    )
    call.start()
    wait_for(lambda: 'trunkline_calls_in_flight{server="echo"} 1.0' in metrics(process, where))
    process.child.send_signal(signal.SIGTERM)
    call.join(10)
    assert [(status, answer["error_code"]) for status, _, answer in answers] == [(503, "SERVER_UNAVAILABLE")]
    assert process.end() == 0


def test_a_second_signal_forces_the_end(started: Callable[..., Process], tmp_path: Path) -> None:
    process = started()
    where = process.address()
    process.with_echo(where, tmp_path)
    body = {"name": "echo.wait", "arguments": {"seconds": 60}}
    connection = http.client.HTTPConnection(*where, timeout=20)
    headers = {"Authorization": "Bearer " + (process.data / "admin.key").read_text().strip()}
    connection.request("POST", "/api/v1/tools/call", json.dumps(body), headers)
    wait_for(lambda: 'trunkline_calls_in_flight{server="echo"} 1.0' in metrics(process, where))
    process.child.send_signal(signal.SIGTERM)
    wait_for(lambda: process.ask(where, "GET", "/health")[0] == 503)
    began = time.monotonic()
    process.child.send_signal(signal.SIGTERM)
    assert process.end() == 1
    assert time.monotonic() - began < 6
    connection.close()


@pytest.mark.parametrize("pause", [0.0, 0.5])
def test_a_second_signal_ends_stubborn_children_at_once(
    started: Callable[..., Process], tmp_path: Path, pause: float
) -> None:
    """No grace is left to them and nothing is thrown; also when the second signal follows on the heels."""
    process = started()
    where = process.address()
    prelude = "import os, runpy, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    prelude += f"open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); "
    stubborn = echo_registration(tmp_path)
    stubborn["connection_config"]["args"] = [
        "-c", f"{prelude} runpy.run_path({str(ECHO)!r}, run_name='__main__'); time.sleep(60)", str(tmp_path),
    ]  # fmt: skip
    assert process.ask(where, "POST", "/api/v1/aggregator/servers", stubborn)[0] == 201
    path = "/api/v1/aggregator/servers/echo"
    wait_for(lambda: bool(process.ask(where, "GET", path)[2]["tool_count"]))
    process.child.send_signal(signal.SIGTERM)
    time.sleep(pause)
    began = time.monotonic()
    process.child.send_signal(signal.SIGINT)
    _, said = process.child.communicate(timeout=10)
    assert time.monotonic() - began < 1.5
    assert process.child.returncode == 1
    assert "Traceback" not in said
    assert "Exception" not in said
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_nothing_is_said_on_stderr_by_a_quiet_life(started: Callable[..., Process]) -> None:
    process = started()
    where = process.address()
    assert process.ask(where, "GET", "/api/v1/aggregator/state")[0] == 200
    status, headers, _ = process.ask(where, "GET", "/nothing")
    assert status == 404
    assert "server" not in {name.lower() for name in headers}
    process.child.send_signal(signal.SIGTERM)
    _, said = process.child.communicate(timeout=10)
    assert said == ""


def test_a_port_in_use_is_said_in_one_line() -> None:
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(StartRefused, match=f"Port {port} on 127.0.0.1 is in use.*--port"):
            listen("127.0.0.1", port)


@pytest.mark.parametrize("host", ["203.0.113.7", "no-such-host.invalid"])
def test_a_host_that_is_not_ours_is_said_in_one_line(host: str) -> None:
    with pytest.raises(StartRefused, match="--host"):
        listen(host, 0)


def test_the_address_is_one_a_client_can_use() -> None:
    for host, shown in (("127.0.0.1", "127.0.0.1"), ("0.0.0.0", "127.0.0.1"), ("localhost", "127.0.0.1")):
        with listen(host, 0) as listener:
            assert address_of(listener) == f"http://{shown}:{listener.getsockname()[1]}"


async def test_a_port_in_use_stops_the_start_before_anything_is_opened(
    start_front: StartFront, tmp_path: Path
) -> None:
    with listen("127.0.0.1", 0) as taken:
        with pytest.raises(StartRefused):
            await start_front(port=taken.getsockname()[1])
        assert not (tmp_path / "data").exists()


async def test_a_cancelled_server_closes_its_socket(start_front: StartFront) -> None:
    front = await start_front()
    for task in asyncio.all_tasks():
        if task.get_coro().__qualname__ == "serve":  # type: ignore[union-attr]
            task.cancel()
    deadline = time.monotonic() + 5
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", front.port)
        except ConnectionRefusedError:
            break
        writer.close()
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)
