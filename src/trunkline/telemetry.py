"""Logs and metrics: how the gateway speaks of itself, and that it never speaks a secret.

`Redactor` masks secrets by value (every secret a configuration resolved to) and by the name of the key
they stand under; every log record and every text shown from an upstream goes through it. `Metrics` holds
all Prometheus series, under the names of the contract; further series of our own start with `trunkline_`.
Neither decides anything.
"""

import asyncio
import base64
import json
import logging
import re
import sys
import time
from collections.abc import Coroutine, Iterable, Iterator
from contextvars import Context, ContextVar
from typing import Literal
from urllib.parse import quote, quote_plus

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.exposition import generate_latest

from trunkline.model import MASK, ServerStatus

disable_created_metrics()  # type: ignore[no-untyped-call]

request_id: ContextVar[str] = ContextVar("request_id", default="-")
"""Stands in every log line of a request; nothing is decided by it."""


def start_apart(work: Coroutine[None, None, None], *, name: str | None = None) -> asyncio.Task[None]:
    """A task that outlives the request it is started in, and so does not log under that one's id."""
    return asyncio.create_task(work, name=name, context=Context())


_TELLING = r"api[_-]?key|access[_-]?key|private[_-]?key|token|secret|passw(?:or)?d|passphrase|credential"
_TELLING_NAME = rf"(?=[\w-]*(?:{_TELLING}))[\w-]++"
_TELLING_KEY = re.compile(rf"(?i){_TELLING}|(?:authorization|cookie)$")
_HEADER_NAME = r"(?=[\w-]*(?:authorization|cookie)(?![\w-]))[\w-]++"
_BY_NAME = re.compile(
    rf"""(?ix)
    (?P<kept> (?<![\w-]) (?: (?P<header>{_HEADER_NAME}) | {_TELLING_NAME} ) (?:\\*["'])? \s*[=:]\s*
            | \( \s* b?(?P<first>["']) (?: {_HEADER_NAME} | {_TELLING_NAME} ) (?P=first) \s*,\s* )
    (?: b?(?P<quote>\\*["']) [^\r\n]*? (?P=quote)
      | (?(header) [^\r\n"']+ | (?:(?:bearer|basic|token)\s+)? [^\s"',;&]+ ) )
    """
)
"""`password=…`, `"api_key": "…"` also quoted twice, `Authorization: any words`, `(b'cookie', b'…')`."""
_BY_FLAG = re.compile(rf"(?i)(?<![\w-])(--?{_TELLING_NAME}\s+)(?!-)[^\s\"',]+")
_BY_PARAMETER = re.compile(r"(?i)([?&](?:key|sig|signature|auth|code|sid)=)[^\s\"'&#]+")
_BEARER = re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{6,}")
_USERINFO = re.compile(r"(?i)\b([a-z][a-z0-9+.-]{0,31}://)[^\s/?#\"'<>]*@")
_CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\U000e0000-\U000e007f]"
)

_SCHEME = re.compile(r"(?i)^(?:bearer|basic|token)\s+")
_PERCENT = re.compile(r"%[0-9A-F]{2}")
_URL_SAFE = str.maketrans("+/", "-_")
_TRACEBACKS = logging.Formatter()

SHORTEST_SECRET = 4
"""Shorter values are not masked by value: they would mask ordinary words."""

_SHORTEST_PART = 8
"""The same for what is only a part of a secret: a line of it, or a stretch of its base64."""


def printable(text: str) -> str:
    """Without terminal escapes, bidirectional overrides and invisible characters; newlines stay."""
    return _CONTROL.sub("�", text)


class Redactor:
    """Masks what must not be seen. Values are learned while connecting and kept by owner."""

    def __init__(self) -> None:
        self._by_owner: dict[str, frozenset[str]] = {}
        self._longest_first: list[str] = []

    def learn(self, owner: str, secrets: Iterable[str]) -> None:
        """Replace what is known of this owner (a server id)."""
        kept = frozenset(value for value in secrets if len(value) >= SHORTEST_SECRET)
        if self._by_owner.get(owner, frozenset()) == kept:
            return
        self._by_owner[owner] = kept
        self._spell()

    def forget(self, owner: str) -> None:
        if self._by_owner.pop(owner, None):
            self._spell()

    def _spell(self) -> None:
        secrets = {value for values in self._by_owner.values() for value in values}
        forms = {form for value in secrets for form in _spellings(value)}
        self._longest_first = sorted(forms, key=len, reverse=True)

    def __call__(self, text: str) -> str:
        for form in self._longest_first:
            if form in text:
                text = text.replace(form, MASK)
        text = _USERINFO.sub(rf"\1{MASK}@", text)
        text = _BEARER.sub(rf"\1 {MASK}", text)
        text = _BY_PARAMETER.sub(rf"\1{MASK}", text)
        text = _BY_FLAG.sub(rf"\1{MASK}", text)
        return _BY_NAME.sub(_masked_value, text)


def tells_of_secret(key: str) -> bool:
    """Whether a value under this key is masked whatever it is."""
    return _TELLING_KEY.search(key) is not None


def _masked_value(found: re.Match[str]) -> str:
    mark = found["quote"] or ""
    return f"{found['kept']}{mark}{MASK}{mark}"


def _spellings(value: str) -> set[str]:
    """The value as a message may show it: whole, a line of it, quoted, in a URL, in base64, in hex."""
    shown: set[str] = set()
    for text in {value, value.strip(), _SCHEME.sub("", value)}:
        raw = text.encode("utf-8", "surrogatepass")
        shown |= {text, repr(text)[1:-1], json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]}
        shown |= {raw.hex(), raw.hex().upper(), base64.b64encode(raw).decode()}
        for quoted in (quote(raw, safe=""), quote(raw), quote_plus(raw)):
            shown |= {quoted, _PERCENT.sub(lambda code: code[0].lower(), quoted)}
        shown |= {part for part in _base64_parts(raw) if len(part) >= _SHORTEST_PART}
        shown |= {line.strip() for line in text.splitlines() if len(line.strip()) >= _SHORTEST_PART}
    return {text for text in shown if len(text) >= SHORTEST_SECRET}


def _base64_parts(raw: bytes) -> Iterator[str]:
    """What is certain of the base64 of any text with this in it, for each place it can stand at."""
    for before in range(3):
        encoded = base64.b64encode(bytes(before) + raw).decode().rstrip("=")
        certain = encoded[(before * 8 + 5) // 6 : (before + len(raw)) * 8 // 6]
        yield certain
        yield certain.translate(_URL_SAFE)


class _Shaper(logging.Filter):
    """Finishes a record: one redacted, printable line and a redacted traceback, whatever was passed in."""

    def __init__(self, redact: Redactor) -> None:
        super().__init__()
        self._redact = redact

    def filter(self, record: logging.LogRecord) -> bool:
        try:
            message = record.getMessage()
        except (TypeError, ValueError):
            message = f"{record.msg} {record.args}"
        record.msg = printable(self._redact(message)).replace("\n", "\\n")
        record.args = None
        if record.exc_info:
            record.exc_text = printable(self._redact(_TRACEBACKS.formatException(record.exc_info)))
            record.exc_info = None
        if record.stack_info:
            record.stack_info = printable(self._redact(record.stack_info))
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
        if record.exc_text:
            entry["exception"] = record.exc_text
        return json.dumps(entry, ensure_ascii=False)


def set_up_logging(level: str, style: Literal["text", "json"], redact: Redactor) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonFormatter() if style == "json" else _text_formatter())
    handler.addFilter(_Shaper(redact))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel("WARNING")
    logging.getLogger("trunkline").setLevel(level.upper())


def _text_formatter() -> logging.Formatter:
    return logging.Formatter(
        "%(asctime)s %(levelname)-7s %(name)s [%(request_id)s] %(message)s", "%Y-%m-%d %H:%M:%S"
    )


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


CALL_OUTCOMES = ("ok", "task", "rpc_error", "timeout", "lost", "unavailable")


class Metrics:
    """Every series, by name. A registry of its own, so that two gateways in one process do not meet."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        registry = self.registry
        self._call_meters: dict[str, CallMeters] = {}
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

    def calls_of(self, server: str) -> "CallMeters":
        """The series of one server's calls, looked up once."""
        meters = self._call_meters.get(server)
        if meters is None:
            meters = self._call_meters[server] = CallMeters(self, server)
        return meters

    def set_servers(self, counts: dict[ServerStatus, int]) -> None:
        for status in ServerStatus:
            self.servers.labels(status.value.lower()).set(counts.get(status, 0))

    def watch_health_of(self, server: str) -> None:
        """Its failures count from 0: a series that begins at 1 hides the first one from every alert."""
        self.health_failures.labels(server)

    def forget_server(self, name: str) -> None:
        """A removed server leaves no series behind."""
        self._call_meters.pop(name, None)
        for family in vars(self).values():
            if isinstance(family, Gauge | Counter | Histogram) and "server" in family._labelnames:
                family.remove_by_labels({"server": name})

    def render(self) -> bytes:
        return generate_latest(self.registry)


class CallMeters:
    """What is measured of the calls to one server."""

    def __init__(self, metrics: Metrics, server: str) -> None:
        self._routing = metrics.routing
        self._execution = metrics.execution.labels(server)
        self._in_flight = metrics.in_flight.labels(server)
        self._ended = {outcome: metrics.calls.labels(server, outcome) for outcome in CALL_OUTCOMES}

    def routed(self, seconds: float) -> None:
        """Once a call, before it is sent the first time."""
        self._routing.observe(seconds)

    def sent(self) -> None:
        self._in_flight.inc()

    def returned(self) -> None:
        self._in_flight.dec()

    def ended(self, outcome: str, execution_seconds: float | None = None) -> None:
        self._ended[outcome].inc()
        if execution_seconds is not None:
            self._execution.observe(execution_seconds)
