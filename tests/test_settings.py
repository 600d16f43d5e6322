"""The settings tree: where values come from, what they may be, and that a wrong one says so in a line."""

import os
from dataclasses import FrozenInstanceError, fields
from pathlib import Path

import pytest

from trunkline.errors import SettingsError
from trunkline.settings import (
    FOR_THE_COMMAND_LINE,
    PREFIX,
    Settings,
    load_settings,
    unknown_variables,
    variable_of,
)

KEY = "A" * 43 + "="


def loaded(**environ: str) -> Settings:
    return load_settings(environ={f"{PREFIX}{name}": value for name, value in environ.items()})


def refusal(
    environ: dict[str, str] | None = None, flags: dict[str, object] | None = None, file: Path | None = None
) -> str:
    named = {f"{PREFIX}{name}": value for name, value in (environ or {}).items()}
    with pytest.raises(SettingsError) as caught:
        load_settings(flags=flags, file=file, environ=named)
    assert "\n" not in caught.value.detail
    return caught.value.detail


@pytest.mark.parametrize(
    ("variable", "field", "default"),
    [
        ("MCP_AGGREGATOR_ENABLED", "enabled", True),
        ("MCP_AGGREGATOR_MAX_SERVERS", "max_servers", 50),
        ("MCP_AGGREGATOR_HEALTH_INTERVAL", "health_interval", 30),
        ("MCP_AGGREGATOR_CONNECTION_TIMEOUT", "connection_timeout", 30),
        ("MCP_AGGREGATOR_REQUEST_TIMEOUT", "request_timeout", 60),
        ("MCP_CREDENTIAL_KEY", "credential_key", None),
    ],
)
def test_the_variables_of_the_contract_have_its_defaults(variable: str, field: str, default: object) -> None:
    """R-53"""
    assert getattr(load_settings(environ={}), field) == default
    assert {item.name: variable_of(item) for item in fields(Settings)}[field] == variable


@pytest.mark.parametrize(
    ("variable", "text", "field", "value"),
    [
        ("MCP_AGGREGATOR_ENABLED", "false", "enabled", False),
        ("MCP_AGGREGATOR_HOST", " 0.0.0.0 ", "host", "0.0.0.0"),
        ("MCP_AGGREGATOR_PORT", "0", "port", 0),
        ("MCP_AGGREGATOR_DATA_DIR", "/var/lib/x", "data_dir", Path("/var/lib/x")),
        ("MCP_AGGREGATOR_AUTH", "OFF", "auth", "off"),
        ("MCP_AGGREGATOR_ALLOWED_HOSTS", "a.test, b.test,", "allowed_hosts", ("a.test", "b.test")),
        ("MCP_CREDENTIAL_KEY", KEY, "credential_key", KEY),
        ("MCP_AGGREGATOR_MAX_SERVERS", "5", "max_servers", 5),
        ("MCP_AGGREGATOR_MAX_TOOLS_PER_SERVER", "7", "max_tools_per_server", 7),
        ("MCP_AGGREGATOR_MAX_TOOLS", "8", "max_tools", 8),
        ("MCP_AGGREGATOR_MAX_SESSIONS", "9", "max_sessions", 9),
        ("MCP_AGGREGATOR_HEALTH_INTERVAL", "0.5", "health_interval", 0.5),
        ("MCP_AGGREGATOR_HEALTH_TIMEOUT", "2", "health_timeout", 2.0),
        ("MCP_AGGREGATOR_CONNECTION_TIMEOUT", "3", "connection_timeout", 3.0),
        ("MCP_AGGREGATOR_REQUEST_TIMEOUT", "4", "request_timeout", 4.0),
        ("MCP_AGGREGATOR_REQUEST_TIMEOUT_CAP", "700", "request_timeout_cap", 700.0),
        ("MCP_AGGREGATOR_DRAIN_TIMEOUT", "0", "drain_timeout", 0.0),
        ("MCP_AGGREGATOR_SHUTDOWN_TIMEOUT", "1", "shutdown_timeout", 1.0),
        ("MCP_AGGREGATOR_BODY_LIMIT", "2048", "body_limit", 2048),
        ("MCP_AGGREGATOR_BODY_TIMEOUT", "6", "body_timeout", 6.0),
        ("MCP_AGGREGATOR_MESSAGE_LIMIT", "65536", "message_limit", 65536),
        ("MCP_AGGREGATOR_STDIO", "Any", "stdio", "any"),
        ("MCP_AGGREGATOR_STDIO_PROFILES", "/etc/p.toml", "stdio_profiles", Path("/etc/p.toml")),
        ("MCP_AGGREGATOR_ALLOWED_VARIABLES", "A_TOKEN,MY_*", "allowed_variables", ("A_TOKEN", "MY_*")),
        ("MCP_AGGREGATOR_ALLOWED_NETWORKS", "10.0.0.0/8, ::/0", "allowed_networks", ("10.0.0.0/8", "::/0")),
        ("MCP_AGGREGATOR_ALLOW_INSECURE_HTTP", "yes", "allow_insecure_http", True),
        ("MCP_AGGREGATOR_TOOL_NAMES", "Dotted", "tool_names", "dotted"),
        ("MCP_AGGREGATOR_MAX_CLIENT_SESSIONS", "10", "max_client_sessions", 10),
        ("MCP_AGGREGATOR_CLIENT_SESSION_IDLE", "60", "client_session_idle", 60.0),
        ("MCP_AGGREGATOR_QUESTION_TIMEOUT", "30", "question_timeout", 30.0),
        ("MCP_AGGREGATOR_MAX_CALLS_PER_KEY", "11", "max_calls_per_key", 11),
        ("MCP_AGGREGATOR_MAX_CALLS_PER_SERVER", "12", "max_calls_per_server", 12),
        ("MCP_AGGREGATOR_RATE_LIMIT", "600", "rate_limit", 600),
        ("MCP_AGGREGATOR_RESULT_LIMIT", "4096", "result_limit", 4096),
        ("MCP_AGGREGATOR_AUDIT_CALLS", "0", "audit_calls", False),
        ("MCP_AGGREGATOR_AUDIT_DAYS", "30", "audit_days", 30),
        ("MCP_AGGREGATOR_LOG_LEVEL", "DEBUG", "log_level", "debug"),
        ("MCP_AGGREGATOR_LOG_FORMAT", "json", "log_format", "json"),
    ],
)  # fmt: skip
def test_every_variable_is_read(variable: str, text: str, field: str, value: object) -> None:
    """R-53"""
    assert getattr(load_settings(environ={variable: text}), field) == value
    assert getattr(load_settings(environ={variable: ""}), field) == getattr(load_settings(environ={}), field)


def test_the_test_above_forgets_no_setting() -> None:
    """R-53"""
    marks: list[pytest.Mark] = test_every_variable_is_read.pytestmark  # type: ignore[attr-defined]
    tested = {row[0] for row in marks[0].args[1]} | {"MCP_AGGREGATOR_DATABASE_URL"}
    assert tested == {variable_of(item) for item in fields(Settings)}


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("ENABLED", "maybe", "must be true or false, not 'maybe'"),
        ("PORT", "65536", "must be a whole number from 0 to 65535, not '65536'"),
        ("PORT", "eighty", "must be a whole number from 0 to 65535, not 'eighty'"),
        ("PORT", "80.5", "must be a whole number from 0 to 65535, not '80.5'"),
        ("MAX_SERVERS", "0", "must be a whole number from 1 to 10000, not '0'"),
        ("HEALTH_INTERVAL", "nan", "must be seconds from 0.1 to 86400, not 'nan'"),
        ("HEALTH_INTERVAL", "inf", "must be seconds from 0.1 to 86400, not 'inf'"),
        ("REQUEST_TIMEOUT", "-1", "must be seconds from 0.1 to 86400, not '-1'"),
        ("STDIO", "some", "must be one of off, profiles, any, not 'some'"),
        ("LOG_LEVEL", "loud", "must be one of debug, info, warning, error, not 'loud'"),
        ("ALLOWED_VARIABLES", "*", "must be names of variables, or prefixes ending in *"),
        ("ALLOWED_VARIABLES", "A B", "must be names of variables, or prefixes ending in *"),
        ("ALLOWED_VARIABLES", "1A", "must be names of variables, or prefixes ending in *"),
        ("ALLOWED_NETWORKS", "10.0.0.1/8", "must be networks like 10.0.0.0/8"),
        ("ALLOWED_NETWORKS", "example.com", "('example.com' is none)"),
        ("DATA_DIR", "~nobody-of-this-name/x", "the home of the user it begins with is not known"),
    ],
)
def test_a_value_that_cannot_be_meant_is_refused_in_one_line(name: str, text: str, expected: str) -> None:
    """R-53"""
    said = refusal({name: text})
    assert said.startswith(f"{PREFIX}{name} must be")
    assert expected in said


def test_flags_win_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    """R-53"""
    file = tmp_path / "trunkline.toml"
    file.write_text(
        'port = 1\nhost = "file"\nlog_level = "error"\nenabled = false\nallowed_hosts = ["a", "b"]\n'
    )
    settings = load_settings(
        flags={"port": 3, "data_dir": tmp_path, "host": None, "allowed_networks": ("10.0.0.0/8", "fd00::/8")},
        environ={"MCP_AGGREGATOR_PORT": "2", "MCP_AGGREGATOR_HOST": "environment"},
        file=file,
    )
    assert (settings.port, settings.host, settings.log_level) == (3, "environment", "error")
    assert (settings.enabled, settings.allowed_hosts, settings.data_dir) == (False, ("a", "b"), tmp_path)
    assert settings.allowed_networks == ("10.0.0.0/8", "fd00::/8")
    assert settings.max_servers == 50


def test_a_wrong_flag_is_called_by_its_name() -> None:
    assert refusal(flags={"max_servers": 0}).startswith("--max-servers must be")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("port = ", "is not valid TOML"),
        ("prot = 1", "unknown setting 'prot'; did you mean port?"),
        ("zzzz = 1", "unknown setting 'zzzz'"),
        ("port = 70000", "port must be a whole number from 0 to 65535, not '70000'"),
        ("[port]\nx = 1", "port must be a whole number"),
        ("\xff", "is not valid TOML"),
    ],
)
def test_a_wrong_file_says_what_is_wrong(tmp_path: Path, text: str, expected: str) -> None:
    file = tmp_path / "trunkline.toml"
    file.write_bytes(text.encode("latin-1"))
    said = refusal(file=file)
    assert expected in said
    assert str(file) in said


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    assert "No such file" in refusal(file=tmp_path / "none.toml")
    assert "Is a directory" in refusal(file=tmp_path)


def test_no_refusal_and_no_repr_shows_a_secret(tmp_path: Path) -> None:
    """R-48"""
    url = "postgresql://u:planted@host/db"
    shown = repr(load_settings(environ={"MCP_AGGREGATOR_DATABASE_URL": url, "MCP_CREDENTIAL_KEY": KEY}))
    assert "planted" not in shown
    assert KEY not in shown
    assert "planted" not in refusal({"DATABASE_URL": url})


def test_postgresql_needs_a_key() -> None:
    """R-48"""
    said = refusal({"DATABASE_URL": "postgresql://host/db"})
    assert said.startswith("MCP_CREDENTIAL_KEY is required with PostgreSQL")
    both = {"MCP_AGGREGATOR_DATABASE_URL": "postgresql://host/db", "MCP_CREDENTIAL_KEY": KEY}
    assert load_settings(environ=both).database_url == "postgresql://host/db"


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "192.168.1.5", "example.com", "::ffff:127.0.0.1", "", "127.1"]
)
def test_without_keys_only_loopback_is_served(host: str) -> None:
    """R-47"""
    with pytest.raises(SettingsError, match="works on loopback alone"):
        load_settings(flags={"host": host}, environ={"MCP_AGGREGATOR_AUTH": "off"})


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_loopback_may_be_served_without_keys(host: str) -> None:
    assert loaded(HOST=host, AUTH="off").on_loopback


def test_stdio_servers_may_be_registered_only_where_that_is_safe() -> None:
    """R-49"""
    assert loaded().stdio_mode == "any"
    assert loaded(HOST="0.0.0.0").stdio_mode == "off"
    assert loaded(HOST="0.0.0.0", STDIO="any").stdio_mode == "any"
    assert loaded(STDIO="off").stdio_mode == "off"
    assert loaded(STDIO="profiles", STDIO_PROFILES="/x.toml").stdio_mode == "profiles"
    assert "needs MCP_AGGREGATOR_STDIO_PROFILES" in refusal({"STDIO": "profiles"})


def test_the_cap_of_a_call_is_not_below_its_timeout() -> None:
    assert "REQUEST_TIMEOUT_CAP must not be below" in refusal(
        {"REQUEST_TIMEOUT": "60", "REQUEST_TIMEOUT_CAP": "30"}
    )


def test_the_tree_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        loaded().port = 1  # type: ignore[misc]


def test_a_variable_nobody_reads_is_reported_with_what_was_meant() -> None:
    found = unknown_variables(
        {"MCP_AGGREGATOR_PROT": "1", "MCP_AGGREGATOR_QQQQQQQQQQQQ": "1", "OTHER": "1"}
        | dict.fromkeys(FOR_THE_COMMAND_LINE, "x")
        | {variable_of(item): "1" for item in fields(Settings)}
    )
    assert found["MCP_AGGREGATOR_PROT"] == "MCP_AGGREGATOR_PORT"
    assert set(found) == {"MCP_AGGREGATOR_PROT", "MCP_AGGREGATOR_QQQQQQQQQQQQ"}


@pytest.mark.parametrize(
    ("base", "expected"), [("/data", "/data/trunkline"), ("", "~/.local/share/trunkline")]
)
def test_data_lies_where_the_desktop_wants_it(
    monkeypatch: pytest.MonkeyPatch, base: str, expected: str
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", base)
    assert load_settings(environ={}).data_dir == Path(os.path.expanduser(expected))
