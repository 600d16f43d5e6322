"""`trunkline demo`: three sample servers, one per transport, registered, called, shown, and cleared away.

The servers on HTTP live in threads of this process, the one on STDIO is the gateway's child; whatever
happens in between, what was registered is removed again at the end.
"""

import contextlib
import json
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from trunkline.cli.desk import Desk, asks_gateway
from trunkline.cli.failures import Failure, Refused
from trunkline.cli.gateway_client import TOOLS, is_local, segment
from trunkline.cli.screen import Column
from trunkline.cli.servers import SERVERS, counted, wait_until_settled

_DESCRIPTION = "Sample server of `trunkline demo`; goes when the demo ends."
_CONNECT_SECONDS = 60.0
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True, slots=True)
class Sample:
    name: str
    transport: str
    config: dict[str, Any]
    calls: tuple[tuple[str, dict[str, Any]], ...]


@asks_gateway
def demo(desk: Desk) -> None:
    """Register three sample servers with the running gateway, call their tools, and clear up.

    \b
    trunkline serve          (in one terminal)
    trunkline demo           (in another)
    """
    if not is_local(desk.gateway.address.url):
        raise Failure("The demo's servers run on this machine: it needs a gateway that runs here too")
    results: list[dict[str, Any]] = []
    with (
        _Interruption(desk) as interruption,
        _samples() as samples,
        _cleared_away(desk, samples, interruption),
    ):
        for sample in samples:
            results += _show_sample(desk, sample)
        if desk.screen.as_json:
            desk.screen.json({"results": results})
        else:
            desk.screen.say()
            _show_results(desk, results)
    failed = sum(result["error"] is not None for result in results)
    if failed:
        raise Failure(f"{failed} of {len(results)} did not work; `trunkline doctor` may say why")
    desk.screen.say("\nThe sample servers are removed again. Now one of your own:")
    desk.screen.say("  trunkline servers add NAME -- COMMAND    or    trunkline import --from claude-desktop")


@contextlib.contextmanager
def _samples() -> Iterator[list[Sample]]:
    from trunkline.cli.samples.catalogue import desk as desk_server
    from trunkline.cli.samples.catalogue import measure
    from trunkline.cli.samples.web import HttpWithSse, StreamableHttp, running

    with running(HttpWithSse(desk_server())) as sse_url, running(StreamableHttp(measure())) as http_url:
        yield [
            Sample(
                "demo-clock",
                "STDIO",
                {"command": sys.executable, "args": ["-m", "trunkline.cli.samples.stdio"]},
                (("days_between", {"start": "2026-01-31", "end": "2026-12-24"}), ("now", {})),
            ),
            Sample(
                "demo-desk",
                "SSE",
                {"url": f"{sse_url}/sse"},
                (
                    ("text_statistics", {"text": "One door. Many tools!"}),
                    ("add_note", {"text": "Try trunkline tools list"}),
                ),
            ),
            Sample(
                "demo-measure",
                "HTTP",
                {"base_url": f"{http_url}/mcp"},
                (
                    ("convert_units", {"value": 42.195, "from_unit": "km", "to_unit": "mi"}),
                    ("roll_dice", {"count": 3, "seed": 7}),
                ),
            ),
        ]


@contextlib.contextmanager
def _cleared_away(desk: Desk, samples: list[Sample], interruption: "_Interruption") -> Iterator[None]:
    """Removes what an interrupted demo left, and in the end what this one made."""
    for sample in samples:
        _remove(desk, sample.name)
    try:
        try:
            yield
        finally:
            interruption.too_late = True
    finally:
        for sample in samples:
            _remove(desk, sample.name)


def _remove(desk: Desk, name: str) -> None:
    """Only a server of the demo: one that somebody else calls so stays."""
    path = f"{SERVERS}/{segment(name)}"
    with contextlib.suppress(Failure):
        if desk.gateway.get(path).get("description") == _DESCRIPTION:
            desk.gateway.delete(path)


class _Interruption:
    """A SIGTERM ends the demo as Ctrl-C does; once it is ending, nothing keeps it from clearing up."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self.too_late = False

    def _heard(self, _number: int, _frame: object) -> None:
        if not self.too_late:
            self.too_late = True
            self._desk.screen.note("Stopping: the sample servers are removed.")
            raise KeyboardInterrupt

    def __enter__(self) -> "_Interruption":
        self._before = {number: signal.signal(number, self._heard) for number in _STOP_SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


def _show_sample(desk: Desk, sample: Sample) -> list[dict[str, Any]]:
    row = {"server": sample.name, "transport": sample.transport, "tool": None, "arguments": None}
    draft = {
        "name": sample.name,
        "description": _DESCRIPTION,
        "transport_type": sample.transport,
        "connection_config": sample.config,
    }
    try:
        server = desk.gateway.post(SERVERS, draft)
        server = wait_until_settled(desk, server["id"], sample.name, _CONNECT_SECONDS)
        if server["status"] != "CONNECTED":
            reason = server.get("error_message") or f"is {server['status']}"
            return [{**row, "result": None, "ms": None, "error": reason}]
        names = [tool["original_name"] for tool in desk.gateway.every(TOOLS, "tools", server=sample.name)]
        tools = f"{counted(len(names), 'tool')} ({', '.join(names)})"
        desk.screen.say(f"{sample.name} is connected over {sample.transport}: {tools}")
        return [_called(desk, sample, tool, arguments) for tool, arguments in sample.calls]
    except Refused as refused:
        return [{**row, "result": None, "ms": None, "error": refused.message}]


def _called(desk: Desk, sample: Sample, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    row = {"server": sample.name, "transport": sample.transport, "tool": tool, "arguments": arguments}
    try:
        answer = desk.gateway.post(f"{TOOLS}/call", {"name": f"{sample.name}.{tool}", "arguments": arguments})
    except Refused as refused:
        return {**row, "result": None, "ms": None, "error": refused.message}
    text = (answer.get("content") or [{}])[0].get("text")
    result = answer.get("structuredContent", text)
    error = str(text) if answer.get("isError") else None
    return {**row, "result": result, "ms": answer["metadata"]["total_time_ms"], "error": error}


def _show_results(desk: Desk, results: list[dict[str, Any]]) -> None:
    """Narrow enough to stay a table on a terminal of 80 columns."""
    desk.screen.table(
        [
            Column("SERVER"),
            Column("VIA"),
            Column("TOOL"),
            Column("ARGUMENTS", folds=True),
            Column("RESULT", folds=True),
            Column("MS", right=True),
        ],
        [
            (
                result["server"],
                result["transport"],
                result["tool"],
                _pairs(result["arguments"]),
                result["error"] or _pairs(result["result"]),
                None if result["ms"] is None else f"{result['ms']:.1f}",
            )
            for result in results
        ],
    )


def _pairs(values: Any) -> str:
    if not isinstance(values, dict):
        return "-" if values is None else str(values)
    return (
        ", ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in values.items()) or "-"
    )
