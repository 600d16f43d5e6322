"""`trunkline doctor`: what is wrong, and what to do about it.

Looks at this machine first and then asks the gateway; each check is a `Finding`. Repairs nothing.
"""

import json
import os
import stat
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import typer

from trunkline.cli.desk import DataDirOption, Desk, JsonOption, KeyOption, UrlOption
from trunkline.cli.failures import Failure
from trunkline.cli.gateway_client import (
    ADDRESS_FILE,
    AGGREGATOR,
    KEY_FILE,
    GatewayClient,
    data_dir_of,
    find_gateway,
    segment,
)
from trunkline.cli.screen import Screen
from trunkline.cli.servers import SERVERS, counted
from trunkline.settings import CREDENTIAL_KEY, unknown_variables

OK, WARNING, WRONG = "ok", "warning", "wrong"
_MOST_KEPT_OUT = 5


@dataclass(frozen=True, slots=True)
class Finding:
    check: str
    state: str
    text: str
    remedy: str | None = None


def doctor(
    url: UrlOption = None, key: KeyOption = None, data_dir: DataDirOption = None, as_json: JsonOption = False
) -> None:
    """Say what is wrong and what to do next. Ends with 1 when something is wrong.

    \b
    trunkline doctor
    trunkline doctor --json
    """
    screen = Screen(as_json=as_json)
    findings: list[Finding] = []
    for finding in examine(url, key, data_dir, screen):
        findings.append(finding)
        _show(screen, finding)
    wrong = sum(finding.state == WRONG for finding in findings)
    warnings = sum(finding.state == WARNING for finding in findings)
    if as_json:
        screen.json({"ok": not wrong, "findings": [asdict(finding) for finding in findings]})
    elif wrong or warnings:
        screen.say(f"\n{wrong} wrong, {counted(warnings, 'warning')}.")
    else:
        screen.say("\nAll is well.", style="green")
    if wrong:
        raise typer.Exit(1)


def examine(url: str | None, key: str | None, data_dir: Path | None, screen: Screen) -> Iterator[Finding]:
    folder = data_dir_of(data_dir)
    yield from check_variables()
    yield from check_folder(folder)
    try:
        address = find_gateway(url, key, data_dir)
        gateway = GatewayClient(address)
        report = gateway.get(f"{AGGREGATOR}/health")
    except Failure as failure:
        yield Finding("gateway", WRONG, failure.message, "; ".join(failure.hints) or None)
        return
    yield Finding("gateway", OK, f"answers at {address.url} (found by {address.found_by})")
    try:
        yield from check_gateway(Desk(gateway, screen), report)
    except Failure as failure:
        yield Finding("key", WRONG, failure.message, "; ".join(failure.hints) or None)
    yield from check_stdio(folder, address.url)


def check_variables() -> Iterator[Finding]:
    strangers = unknown_variables()
    for name, near in strangers.items():
        remedy = f"did you mean {near}?" if near else "see the list of settings; this one does nothing"
        yield Finding("settings", WRONG, f"nobody reads the variable {name}", remedy)
    if not strangers:
        yield Finding("settings", OK, "every MCP_AGGREGATOR_… variable here is known")


def check_folder(folder: Path) -> Iterator[Finding]:
    """Whether others on this machine can read what must not be read."""
    if not folder.is_dir():
        yield Finding("data folder", OK, f"{folder} is not there yet; `trunkline serve` makes it")
        return
    loose = [path for path in (folder, *_private_files(folder)) if _open_to_others(path)]
    for path in loose:
        mode = "700" if path.is_dir() else "600"
        yield Finding("data folder", WRONG, f"others on this machine can read {path}", f"chmod {mode} {path}")
    if not loose:
        yield Finding("data folder", OK, f"{folder} is closed to others")


def _private_files(folder: Path) -> list[Path]:
    names = (KEY_FILE, ADDRESS_FILE, "credential.key")
    return [folder / name for name in names if (folder / name).exists()]


def _open_to_others(path: Path) -> bool:
    return os.name == "posix" and bool(stat.S_IMODE(path.stat().st_mode) & 0o077)


def check_gateway(desk: Desk, report: dict[str, Any]) -> Iterator[Finding]:
    servers = list(desk.gateway.every(SERVERS, "servers"))
    yield Finding("key", OK, "the gateway takes it")
    for part, how in (report.get("checks") or {}).items():
        if part == "sessions":
            continue
        state = {"ok": OK, "degraded": WARNING}.get(how, WRONG)
        yield Finding(
            part, state, f"the gateway says {how}", None if state == OK else "see the gateway's log"
        )
    for issue in report.get("issues") or ():
        if "server" not in issue:
            yield Finding("health", WRONG, issue)
    if not servers:
        yield Finding(
            "servers",
            WARNING,
            "none are registered",
            "trunkline servers add NAME -- COMMAND, or trunkline demo",
        )
    for listed in servers:
        yield from check_server(desk.gateway.get(f"{SERVERS}/{segment(listed['id'])}"))


def check_server(server: dict[str, Any]) -> Iterator[Finding]:
    name, status = server["name"], server["status"]
    where = f"server {name}"
    if status == "ERROR":
        reason = server.get("error_message") or "no reason was given"
        yield Finding(where, WRONG, reason, f"put it right, then: trunkline servers connect {name}")
    elif status == "DEGRADED":
        reason = server.get("error_message") or "its last health checks failed"
        yield Finding(where, WARNING, reason, f"trunkline servers show {name}")
    elif status == "DISCONNECTED":
        yield Finding(where, WARNING, "is disconnected", f"trunkline servers connect {name}")
    elif status == "CONNECTING" and server.get("error_message"):
        reason = f"is still CONNECTING, and the last attempt failed: {server['error_message']}"
        yield Finding(where, WARNING, reason, f"trunkline servers show {name}")
    else:
        yield Finding(where, OK, f"is {status} with {counted(server['tool_count'], 'tool')}")
    problems = server.get("problems") or []
    for problem in problems[:_MOST_KEPT_OUT]:
        text = f"{problem['kind']} {problem['name']}: {problem['reason']}"
        yield Finding(where, WARNING, text, _remedy(problem["kind"], name))
    if len(problems) > _MOST_KEPT_OUT:
        more = len(problems) - _MOST_KEPT_OUT
        yield Finding(where, WARNING, f"{counted(more, 'further problem')}", f"trunkline servers show {name}")


def _remedy(kind: str, server: str) -> str:
    match kind:
        case "configuration":
            return (
                f"start the gateway with the {CREDENTIAL_KEY} that sealed it, or give it whole: "
                f"trunkline servers update {server}"
            )
        case "list":
            return f"what could be read is used; to list again: trunkline servers refresh {server}"
        case _:
            return "its maker has to put it right; the rest of the server works"


def check_stdio(folder: Path, url: str) -> Iterator[Finding]:
    """Known only of a gateway that was started from this folder."""
    try:
        word = json.loads((folder / ADDRESS_FILE).read_text("utf-8"))
        mode = str(word["stdio"]) if word["url"] == url else ""
    except (OSError, ValueError, KeyError, TypeError):
        return
    meaning = {
        "off": "STDIO servers cannot be registered",
        "profiles": "only the operator's command lines can be registered",
        "any": "any command can be registered by who has an admin key",
    }.get(mode)
    if meaning:
        yield Finding("stdio", OK, f"mode {mode}: {meaning}")


def _show(screen: Screen, finding: Finding) -> None:
    style = {OK: "green", WARNING: "yellow", WRONG: "red"}[finding.state]
    screen.marked(finding.state, style, f"{finding.check}: {finding.text}")
    if finding.remedy:
        screen.say(f"{'':9}{finding.remedy}")
