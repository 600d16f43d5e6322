"""Logs and metrics: how the gateway speaks of itself, and that it never speaks a secret.

`Redactor` masks secrets by value (every secret a configuration resolved to) and by the name of the key
they stand under; every log record and every text shown from an upstream goes through it. `Metrics` holds
all Prometheus series, under the names of the contract; further series of our own start with `trunkline_`.
Neither decides anything.
"""

import base64
import json
import logging
import re
import sys
import time
from collections.abc import Iterable
from contextvars import ContextVar
from typing import Literal
from urllib.parse import quote

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.exposition import generate_latest

from trunkline.model import MASK, ServerStatus

disable_created_metrics()  # type: ignore[no-untyped-call]

request_id: ContextVar[str] = ContextVar("request_id", default="-")
"""Stands in every log line of a request; nothing is decided by it."""

_TELLING_KEYS = (
    r"(?:authorization|proxy-authorization|x-api-key|api[_-]?key|token|secret|passw(?:or)?d|credential)"
)
_BY_KEY = re.compile(
    rf"""(?ix)
    ( \b[\w-]*{_TELLING_KEYS}[\w-]* ["']? \s* [=:] \s* ["']? )    # the key and its separator
    ( (?:bearer|basic)\s+[^\s"',;&]+ | [^\s"',;&]+ )             # the value
    """
)
_BEARER = re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{6,}")
_USERINFO = re.compile(r"(?i)\b([a-z][a-z0-9+.-]*://)[^/\s@:]+(?::[^/\s@]*)?@")
_CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\U000e0000-\U000e007f]"
)

SHORTEST_SECRET = 4
"""Shorter values are not masked by value: they would mask ordinary words."""


def printable(text: str) -> str:
    """Without terminal escapes, bidirectional overrides and invisible characters; newlines stay."""
    return _CONTROL.sub("�", text)


class Redactor:
    """Masks what must not be seen. Values are learned while connecting and kept by owner."""

    def __init__(self) -> None:
        self._by_owner: dict[str, frozenset[str]] = {}
        self._pattern: re.Pattern[str] | None = None

    def learn(self, owner: str, secrets: Iterable[str]) -> None:
        """Replace what is known of this owner (a server id)."""
        kept = frozenset(value for value in secrets if len(value) >= SHORTEST_SECRET)
        if self._by_owner.get(owner, frozenset()) == kept:
            return
        self._by_owner[owner] = kept
        self._compile()

    def forget(self, owner: str) -> None:
        if self._by_owner.pop(owner, None):
            self._compile()

    def _compile(self) -> None:
        spelled = {
            form for values in self._by_owner.values() for value in values for form in _spellings(value)
        }
        longest_first = sorted(spelled, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None

    def __call__(self, text: str) -> str:
        if self._pattern is not None:
            text = self._pattern.sub(MASK, text)
        text = _USERINFO.sub(rf"\1{MASK}@", text)
        text = _BEARER.sub(rf"\1 {MASK}", text)
        return _BY_KEY.sub(rf"\1{MASK}", text)


def _spellings(value: str) -> set[str]:
    raw = value.encode("utf-8", "surrogateescape")
    encoded = {base64.b64encode(raw).decode(), base64.urlsafe_b64encode(raw).decode()}
    return {value, quote(value, safe=""), json.dumps(value)[1:-1], *(text.rstrip("=") for text in encoded)}


class _Shaper(logging.Filter):
    """Finishes a record: one redacted, printable message, whatever was passed in."""

    def __init__(self, redact: Redactor) -> None:
        super().__init__()
        self._redact = redact

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg = printable(self._redact(record.getMessage()))
        record.args = None
        record.request_id = request_id.get()
        return True


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
            + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "request_id": getattr(record, "request_id", "-"),
        }
        for name in ("server", "event"):
            if hasattr(record, name):
                entry[name] = getattr(record, name)
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False)


class _Redacted(logging.Formatter):
    """Runs another formatter and redacts what it made: tracebacks carry values too."""

    def __init__(self, inner: logging.Formatter, redact: Redactor) -> None:
        super().__init__()
        self._inner = inner
        self._redact = redact

    def format(self, record: logging.LogRecord) -> str:
        return self._redact(self._inner.format(record))


def set_up_logging(level: str, style: Literal["text", "json"], redact: Redactor) -> None:
    handler = logging.StreamHandler(sys.stderr)
    inner: logging.Formatter = _JsonFormatter()
    if style == "text":
        inner = logging.Formatter(
            "%(asctime)s %(levelname)-7s %(name)s [%(request_id)s] %(message)s", "%Y-%m-%d %H:%M:%S"
        )
    handler.setFormatter(_Redacted(inner, redact))
    handler.addFilter(_Shaper(redact))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel("WARNING")
    logging.getLogger("trunkline").setLevel(level.upper())


class Flood:
    """Lets one in so many seconds through, and counts the rest: for what an upstream can cause at will."""

    def __init__(self, seconds: float = 1.0) -> None:
        self._seconds = seconds
        self._next = 0.0
        self.held_back = 0

    def passes(self) -> bool:
        now = time.monotonic()
        if now < self._next:
            self.held_back += 1
            return False
        self._next = now + self._seconds
        return True


_FINE = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 1.0)
_COARSE = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Metrics:
    """Every series, by name. A registry of its own, so that two gateways in one process do not meet."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        registry = self.registry
        self.servers = Gauge(
            "mcp_aggregator_servers_total", "Registered servers by status.", ["status"], registry=registry
        )
        self.tools = Gauge("mcp_aggregator_tools_total", "Tools in the catalogue.", registry=registry)
        self.tools_classified = Gauge(
            "mcp_aggregator_tools_classified", "Tools that have skills.", registry=registry
        )
        self.routing = Histogram(
            "mcp_aggregator_routing_duration_seconds",
            "From the decoded request to the message handed to the server.",
            buckets=_FINE,
            registry=registry,
        )
        self.execution = Histogram(
            "mcp_aggregator_execution_duration_seconds",
            "From the message handed to the server to its answer.",
            ["server"],
            buckets=_COARSE,
            registry=registry,
        )
        self.health_duration = Gauge(
            "mcp_aggregator_health_check_duration_seconds",
            "How long the last health check took.",
            ["server"],
            registry=registry,
        )
        self.health_failures = Counter(
            "mcp_aggregator_health_check_failures_total",
            "Failed health checks.",
            ["server"],
            registry=registry,
        )
        self.calls = Counter(
            "trunkline_calls_total", "Tool calls by server and how they ended.", ["server", "outcome"],
            registry=registry,
        )  # fmt: skip
        self.in_flight = Gauge(
            "trunkline_calls_in_flight", "Tool calls under way.", ["server"], registry=registry
        )
        self.reconnects = Counter(
            "trunkline_reconnects_total",
            "Connections made again after a loss.",
            ["server"],
            registry=registry,
        )
        self.noise = Counter(
            "trunkline_noise_lines_total",
            "Lines from a STDIO server that were no message.",
            ["server"],
            registry=registry,
        )
        self.audit_dropped = Counter(
            "trunkline_audit_records_dropped_total",
            "Audit records of calls lost because the database could not keep up.",
            registry=registry,
        )

    def set_servers(self, counts: dict[ServerStatus, int]) -> None:
        for status in ServerStatus:
            self.servers.labels(status.value.lower()).set(counts.get(status, 0))

    def forget_server(self, name: str) -> None:
        """A removed server leaves no series behind."""
        for family in (self.execution, self.health_duration, self.health_failures, self.in_flight):
            _remove(family, name)
        for family in (self.reconnects, self.noise):
            _remove(family, name)
        for outcome in ("ok", "tool_error", "rpc_error", "timeout", "lost", "unavailable"):
            _remove(self.calls, name, outcome)

    def render(self) -> bytes:
        return generate_latest(self.registry)


def _remove(family: Gauge | Counter | Histogram, *labels: str) -> None:
    try:
        family.remove(*labels)
    except KeyError:
        return
