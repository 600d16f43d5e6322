"""A whole run, small: it measures, keeps what it saw and, however it ends, leaves no process behind."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import psutil
import pytest

from bench.route import Kept, read_options

SMALL = ["--targets", "direct,floor", "--rounds", "1", "--callers", "1,4"]


def start(folder: Path, *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "bench.route", *SMALL, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={"TMPDIR": str(folder)},
    )


def descendants(process: subprocess.Popen[str], count: int) -> list[psutil.Process]:
    """Its processes, once there are so many."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        found: list[psutil.Process] = psutil.Process(process.pid).children(recursive=True)
        if len(found) >= count:
            return found
        time.sleep(0.01)
    raise AssertionError(f"only {len(found)} processes were started")


def test_a_run_prints_a_table_and_keeps_every_sample(tmp_path: Path) -> None:
    file = tmp_path / "kept.json"
    running = start(tmp_path, "--seconds", "0.3", "--json", str(file), "--strict")
    output, errors = running.communicate(timeout=60)
    assert running.returncode == 0, errors
    assert "every answer is right: yes" in output
    kept = msgspec.json.decode(file.read_bytes(), type=Kept)
    assert {(sample.target, sample.callers) for sample in kept.samples} == {
        ("direct", 1), ("direct", 4), ("floor", 1), ("floor", 4)
    }  # fmt: skip
    for sample in kept.samples:
        assert sample.messages == {"tools/call": sample.measurement.all_calls}
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_ended_early_it_leaves_nothing_running(tmp_path: Path, number: signal.Signals) -> None:
    """Killed outright it cannot tidy its folder; its processes die with it all the same (on Linux)."""
    if number == signal.SIGKILL and sys.platform != "linux":
        pytest.skip("only Linux ties the life of a process to its parent's")
    running = start(tmp_path, "--seconds", "20")
    started = descendants(running, 3)
    running.send_signal(number)
    running.communicate(timeout=20)
    _, alive = psutil.wait_procs(started, timeout=10)
    assert alive == []
    if number != signal.SIGKILL:
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "wrong", [["--callers", "0"], ["--callers", "1,x"], ["--targets", "nginx"], ["--seconds", "0"]]
)
def test_options_that_cannot_be_meant_are_refused(wrong: list[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        read_options(wrong)
    assert refused.value.code == 2
