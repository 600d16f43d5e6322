"""One frozen tree of settings, read once: flags over environment over file over defaults.

Each field states its variable, its meaning and how its text is read, all in one place; `docs/SETTINGS.md`
is checked against it. Nothing here opens a socket or a database. A value that cannot be meant stops the
start with one line that names the variable and what it may be.
"""

import difflib
import ipaddress
import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from trunkline.errors import SettingsError

PREFIX = "MCP_AGGREGATOR_"
CREDENTIAL_KEY = "MCP_CREDENTIAL_KEY"
FOR_THE_COMMAND_LINE = frozenset({"MCP_AGGREGATOR_URL", "MCP_AGGREGATOR_KEY"})
"""Read by the command line to find its gateway, not by the gateway."""

StdioMode = Literal["off", "profiles", "any"]


def _flag(text: str) -> bool:
    word = text.strip().lower()
    if word not in ("true", "1", "yes", "on", "false", "0", "no", "off"):
        raise ValueError("true or false")
    return word in ("true", "1", "yes", "on")


def _whole(low: int, high: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        expected = f"a whole number from {low} to {high}"
        try:
            value = int(text)
        except ValueError:
            raise ValueError(expected) from None
        if not low <= value <= high:
            raise ValueError(expected)
        return value

    return read


def _seconds(low: float, high: float) -> Callable[[str], float]:
    def read(text: str) -> float:
        expected = f"seconds from {low:g} to {high:g}"
        try:
            value = float(text)
        except ValueError:
            raise ValueError(expected) from None
        if not low <= value <= high:
            raise ValueError(expected)
        return value

    return read


def _choice(*options: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text.strip().lower() not in options:
            raise ValueError("one of " + ", ".join(options))
        return text.strip().lower()

    return read


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _variables(text: str) -> tuple[str, ...]:
    names = _names(text)
    for name in names:
        bare = name.removesuffix("*")
        if not bare or not bare.replace("_", "a").isalnum() or bare[0].isdigit():
            raise ValueError("names of variables, or prefixes ending in *, separated by commas")
    return names


def _networks(text: str) -> tuple[str, ...]:
    for name in _names(text):
        try:
            ipaddress.ip_network(name)
        except ValueError:
            raise ValueError(f"networks like 10.0.0.0/8, separated by commas ({name!r} is none)") from None
    return _names(text)


def _path(text: str) -> Path:
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise ValueError("a path; the home of the user it begins with is not known") from None


def _setting(
    name: str, doc: str, read: Callable[[str], Any], *, default: Any, secret: bool = False, shown: str = ""
) -> Any:
    """`shown` is how the documents state a default that differs from machine to machine."""
    metadata = {"name": name, "doc": doc, "read": read, "secret": secret, "shown": shown}
    if callable(default):
        return field(default_factory=default, metadata=metadata, repr=not secret)
    return field(default=default, metadata=metadata, repr=not secret)


def default_data_dir() -> Path:
    base = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(base).expanduser() / "trunkline"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    enabled: bool = _setting(
        "MCP_AGGREGATOR_ENABLED",
        "When false, only the health endpoints answer, and no server is connected.",
        _flag,
        default=True,
    )
    host: str = _setting(
        "MCP_AGGREGATOR_HOST", "Address to listen on. Anything but loopback needs keys.", str.strip,
        default="127.0.0.1",
    )  # fmt: skip
    port: int = _setting(
        "MCP_AGGREGATOR_PORT", "Port to listen on; 0 takes a free one.", _whole(0, 65535), default=8081
    )
    data_dir: Path = _setting(
        "MCP_AGGREGATOR_DATA_DIR",
        "Folder of the database, the first admin key and the credential key.",
        _path,
        default=default_data_dir,
        shown="`trunkline` in `$XDG_DATA_HOME`, or in `~/.local/share`",
    )
    auth: Literal["on", "off"] = _setting(
        "MCP_AGGREGATOR_AUTH",
        "`off` lets everybody in as admin; refused unless bound to loopback.",
        _choice("on", "off"),
        default="on",
    )
    allowed_hosts: tuple[str, ...] = _setting(
        "MCP_AGGREGATOR_ALLOWED_HOSTS",
        "Further names clients may call this gateway by (`Host` and `Origin`), separated by commas.",
        _names,
        default=(),
    )
    database_url: str | None = _setting(
        "MCP_AGGREGATOR_DATABASE_URL",
        "PostgreSQL, as `postgresql://user:password@host/name`. Unset: SQLite in the data folder.",
        str.strip,
        default=None,
        secret=True,
    )
    credential_key: str | None = _setting(
        CREDENTIAL_KEY,
        "Seals credentials at rest: 32 bytes as base64, URL-safe base64 or hex. Several, separated by "
        "commas: the first seals, all unseal. Required with PostgreSQL; on SQLite one is made in the "
        "data folder.",
        str.strip,
        default=None,
        secret=True,
    )
    max_servers: int = _setting(
        "MCP_AGGREGATOR_MAX_SERVERS", "Most servers that can be registered.", _whole(1, 10_000), default=50
    )
    max_tools_per_server: int = _setting(
        "MCP_AGGREGATOR_MAX_TOOLS_PER_SERVER",
        "Most tools taken from one server; the rest is left out and said.",
        _whole(1, 100_000),
        default=1000,
    )
    max_tools: int = _setting(
        "MCP_AGGREGATOR_MAX_TOOLS", "Most tools in all.", _whole(1, 1_000_000), default=10_000
    )
    max_sessions: int = _setting(
        "MCP_AGGREGATOR_MAX_SESSIONS", "Most upstream connections at once.", _whole(1, 10_000), default=50
    )
    health_interval: float = _setting(
        "MCP_AGGREGATOR_HEALTH_INTERVAL",
        "Seconds between health checks.",
        _seconds(0.1, 86_400),
        default=30.0,
    )
    health_timeout: float = _setting(
        "MCP_AGGREGATOR_HEALTH_TIMEOUT", "Seconds a health check may take.", _seconds(0.1, 600), default=5.0
    )
    connection_timeout: float = _setting(
        "MCP_AGGREGATOR_CONNECTION_TIMEOUT",
        "Seconds a server may take to start, connect and shake hands.",
        _seconds(0.1, 3600),
        default=30.0,
    )
    request_timeout: float = _setting(
        "MCP_AGGREGATOR_REQUEST_TIMEOUT",
        "Seconds a call may take without a sign of progress.",
        _seconds(0.1, 86_400),
        default=60.0,
    )
    request_timeout_cap: float = _setting(
        "MCP_AGGREGATOR_REQUEST_TIMEOUT_CAP",
        "Seconds a call may take in all, however much progress it reports.",
        _seconds(0.1, 86_400),
        default=600.0,
    )
    drain_timeout: float = _setting(
        "MCP_AGGREGATOR_DRAIN_TIMEOUT",
        "Seconds calls in flight get when their server is disconnected.",
        _seconds(0, 3600),
        default=30.0,
    )
    shutdown_timeout: float = _setting(
        "MCP_AGGREGATOR_SHUTDOWN_TIMEOUT",
        "Seconds calls in flight get when the gateway stops.",
        _seconds(0, 3600),
        default=20.0,
    )
    body_limit: int = _setting(
        "MCP_AGGREGATOR_BODY_LIMIT",
        "Largest request body, in bytes.",
        _whole(1024, 1 << 30),
        default=4 * 1024 * 1024,
    )
    body_timeout: float = _setting(
        "MCP_AGGREGATOR_BODY_TIMEOUT", "Seconds a client may take to send a body.", _seconds(0.1, 3600),
        default=30.0,
    )  # fmt: skip
    message_limit: int = _setting(
        "MCP_AGGREGATOR_MESSAGE_LIMIT",
        "Largest message taken from a server, in bytes.",
        _whole(64 * 1024, 1 << 30),
        default=16 * 1024 * 1024,
    )
    stdio: StdioMode | None = _setting(
        "MCP_AGGREGATOR_STDIO",
        "Which STDIO servers may be registered: `off`, `profiles` (from the operator's file) or `any`. "
        "Unset: `any` when bound to loopback, else `off`.",
        _choice("off", "profiles", "any"),
        default=None,
    )
    stdio_profiles: Path | None = _setting(
        "MCP_AGGREGATOR_STDIO_PROFILES",
        "TOML file of the command lines `profiles` allows.",
        _path,
        default=None,
    )
    allowed_variables: tuple[str, ...] = _setting(
        "MCP_AGGREGATOR_ALLOWED_VARIABLES",
        "Variables that `${VAR}` may name in a server's configuration: names, or prefixes ending in `*`.",
        _variables,
        default=(),
    )
    allowed_networks: tuple[str, ...] = _setting(
        "MCP_AGGREGATOR_ALLOWED_NETWORKS",
        "Private networks servers may live in, as CIDR. Loopback is allowed when bound to loopback.",
        _networks,
        default=(),
    )
    allow_insecure_http: bool = _setting(
        "MCP_AGGREGATOR_ALLOW_INSECURE_HTTP",
        "Allows plain http to servers that are not on loopback.",
        _flag,
        default=False,
    )
    tool_names: Literal["safe", "dotted"] = _setting(
        "MCP_AGGREGATOR_TOOL_NAMES",
        "How tools and prompts are named to MCP clients: `safe` (`server__tool`, which every client takes) "
        "or `dotted` (`server.tool`). Both are always accepted.",
        _choice("safe", "dotted"),
        default="safe",
    )
    max_client_sessions: int = _setting(
        "MCP_AGGREGATOR_MAX_CLIENT_SESSIONS",
        "Most sessions of MCP clients at once; the longest idle one makes room.",
        _whole(1, 1_000_000),
        default=1000,
    )
    client_session_idle: float = _setting(
        "MCP_AGGREGATOR_CLIENT_SESSION_IDLE",
        "Seconds without a sign of an MCP client after which its session is forgotten.",
        _seconds(1, 86_400),
        default=1800.0,
    )
    question_timeout: float = _setting(
        "MCP_AGGREGATOR_QUESTION_TIMEOUT",
        "Seconds an MCP client has for the answer to what a server asks in the middle of a call.",
        _seconds(1, 86_400),
        default=600.0,
    )
    max_calls_per_key: int = _setting(
        "MCP_AGGREGATOR_MAX_CALLS_PER_KEY",
        "Most calls one key may have under way; more are refused with 503.",
        _whole(1, 1_000_000),
        default=256,
    )
    max_calls_per_server: int = _setting(
        "MCP_AGGREGATOR_MAX_CALLS_PER_SERVER",
        "Most calls one server is given at once; more are refused with 503.",
        _whole(1, 1_000_000),
        default=128,
    )
    rate_limit: int = _setting(
        "MCP_AGGREGATOR_RATE_LIMIT",
        "Calls a minute and key; more are refused with 429. 0: no limit.",
        _whole(0, 1_000_000_000),
        default=0,
    )
    result_limit: int = _setting(
        "MCP_AGGREGATOR_RESULT_LIMIT",
        "Largest result of a tool passed on to an MCP client, in bytes; of a larger one the texts are cut.",
        _whole(1024, 1 << 30),
        default=10 * 1024 * 1024,
    )
    audit_calls: bool = _setting(
        "MCP_AGGREGATOR_AUDIT_CALLS", "Also keeps an audit record of every tool call.", _flag, default=True
    )
    audit_days: int = _setting(
        "MCP_AGGREGATOR_AUDIT_DAYS", "Days audit records are kept.", _whole(1, 36_500), default=90
    )
    log_level: str = _setting(
        "MCP_AGGREGATOR_LOG_LEVEL",
        "debug, info, warning or error.",
        _choice("debug", "info", "warning", "error"),
        default="info",
    )
    log_format: Literal["text", "json"] = _setting(
        "MCP_AGGREGATOR_LOG_FORMAT", "text or json, a line a record, on stderr.", _choice("text", "json"),
        default="text",
    )  # fmt: skip

    @property
    def on_loopback(self) -> bool:
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def stdio_mode(self) -> StdioMode:
        return self.stdio or ("any" if self.on_loopback else "off")


def variable_of(item: Field[Any]) -> str:
    return str(item.metadata["name"])


def load_settings(
    *,
    flags: Mapping[str, object] | None = None,
    environ: Mapping[str, str] = os.environ,
    file: Path | None = None,
) -> Settings:
    """Read the tree. `flags` are field names to values already typed; None means not given.

    The file (`--config`) is TOML with the variables' names in lower case and without their prefix.
    """
    stored = _read_file(file) if file else {}
    values: dict[str, Any] = {}
    for item in fields(Settings):
        name = variable_of(item)
        given = (flags or {}).get(item.name)
        if given is not None:
            values[item.name] = _read(item, _as_text(given), source=f"--{item.name.replace('_', '-')}")
        elif environ.get(name):
            values[item.name] = _read(item, environ[name], source=name)
        elif item.name in stored:
            values[item.name] = _read(item, _as_text(stored[item.name]), source=f"{file}: {item.name}")
        elif item.default is MISSING and item.default_factory is MISSING:
            raise AssertionError(f"{item.name} has no default")
    settings = Settings(**values)
    _check_together(settings)
    return settings


def unknown_variables(environ: Mapping[str, str] = os.environ) -> dict[str, str | None]:
    """Variables with our prefix that nobody reads, each with the name that was probably meant."""
    known = {variable_of(item) for item in fields(Settings)} | FOR_THE_COMMAND_LINE
    strangers = [name for name in environ if name.startswith(PREFIX) and name not in known]
    return {name: next(iter(difflib.get_close_matches(name, known, 1)), None) for name in sorted(strangers)}


def _read(item: Field[Any], text: str, *, source: str) -> Any:
    try:
        return item.metadata["read"](text)
    except ValueError as error:
        shown = "" if item.metadata["secret"] else f", not {text!r}"
        raise SettingsError(f"{source} must be {error}{shown}") from None


def _read_file(file: Path) -> dict[str, Any]:
    try:
        stored = tomllib.loads(file.read_text("utf-8"))
    except OSError as error:
        raise SettingsError(f"Cannot read the settings file {file}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"The settings file {file} is not valid TOML: {error}") from None
    known = {item.name for item in fields(Settings)}
    for name in stored:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise SettingsError(f"{file}: unknown setting {name!r}{hint}")
    return stored


def _as_text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ",".join(str(part) for part in value)
    return str(value)


def _check_together(settings: Settings) -> None:
    if settings.auth == "off" and not settings.on_loopback:
        raise SettingsError(
            f"MCP_AGGREGATOR_AUTH=off works on loopback alone, and the host is {settings.host}: "
            "remove it, or bind to 127.0.0.1"
        )
    if settings.request_timeout_cap < settings.request_timeout:
        raise SettingsError(
            "MCP_AGGREGATOR_REQUEST_TIMEOUT_CAP must not be below MCP_AGGREGATOR_REQUEST_TIMEOUT"
        )
    if settings.database_url and not settings.credential_key:
        raise SettingsError(
            f"{CREDENTIAL_KEY} is required with PostgreSQL: make one with `openssl rand -base64 32` "
            "and give it to every replica"
        )
    if settings.stdio_mode == "profiles" and settings.stdio_profiles is None:
        raise SettingsError(
            "MCP_AGGREGATOR_STDIO=profiles needs MCP_AGGREGATOR_STDIO_PROFILES to name the file"
        )
