"""The command line as somebody uses it: real processes, against a gateway that is one too."""

import json
import os
import pty
import re
import select
import struct
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

COMMAND = [sys.executable, "-m", "trunkline"]
SAMPLE = [sys.executable, "-m", "trunkline.cli.samples.stdio"]
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def clean_environment(**more: str) -> dict[str, str]:
    """Without anything that says where a gateway is, or how wide a terminal."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("MCP_") and name not in ("COLUMNS", "FORCE_COLOR", "NO_COLOR")
    }
    return {**kept, **more}


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass(frozen=True)
class Cli:
    """`trunkline` with the data folder of one gateway."""

    data_dir: Path
    home: Path
    environ: Mapping[str, str] = field(default_factory=dict)

    def _environment(self) -> dict[str, str]:
        named = {"MCP_AGGREGATOR_DATA_DIR": str(self.data_dir), "HOME": str(self.home), **self.environ}
        return clean_environment(**named)

    def __call__(self, *args: str, stdin: str = "") -> Ended:
        done = subprocess.run(
            [*COMMAND, *args],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            env=self._environment(),
            cwd=self.home,
            check=False,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return Ended(done.returncode, done.stdout, done.stderr)

    def ok(self, *args: str, stdin: str = "") -> Ended:
        ended = self(*args, stdin=stdin)
        assert ended.code == 0, ended
        return ended

    def on_terminal(self, *args: str, columns: int = 80, answers: str = "") -> Ended:
        """On a pseudo terminal of that width, with the answers typed in; colours are taken off."""
        leader, follower = pty.openpty()
        import fcntl
        import termios

        fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        process = subprocess.Popen(
            [*COMMAND, *args],
            stdin=follower,
            stdout=follower,
            stderr=follower,
            env=self._environment() | {"TERM": "xterm-256color"},
            cwd=self.home,
            start_new_session=True,
        )
        os.close(follower)
        os.write(leader, answers.encode())
        shown = _read_all(leader, time.monotonic() + 60)
        os.close(leader)
        return Ended(process.wait(60), _ESCAPES.sub("", shown).replace("\r\n", "\n"), "")


def _read_all(leader: int, deadline: float) -> str:
    read = b""
    while time.monotonic() < deadline:
        if not select.select([leader], [], [], 0.5)[0]:
            continue
        try:
            chunk = os.read(leader, 65536)
        except OSError:
            break
        if not chunk:
            break
        read += chunk
    return read.decode()


@dataclass(frozen=True)
class Serving:
    process: "subprocess.Popen[str]"
    data_dir: Path
    url: str
    welcome: list[str]

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(30)


def serve(data_dir: Path, *args: str, **environ: str) -> Serving:
    """A gateway on a free port, once it listens."""
    process = subprocess.Popen(
        [*COMMAND, "serve", "--port", "0", "--data-dir", str(data_dir), *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=clean_environment(**environ),
    )
    assert process.stdout is not None
    lines: list[str] = []
    for line in process.stdout:
        lines.append(line.rstrip("\n"))
        if line.startswith("Stop it"):
            break
    if not lines:
        assert process.stderr is not None
        raise AssertionError(f"the gateway did not start: {process.stderr.read()}")
    url = json.loads((data_dir / "gateway.json").read_text())["url"]
    return Serving(process, data_dir, url, lines)


def words(lines: Sequence[str]) -> str:
    """Folded text on one line again."""
    return " ".join(" ".join(lines).split())
