"""That the gateway speaks of itself in the contract's words, and never speaks a secret."""

import base64
import json
import logging
import re
import sys
import time
from collections.abc import Iterator
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline import telemetry
from trunkline.model import MASK, ServerStatus
from trunkline.telemetry import CALL_OUTCOMES, Flood, Metrics, Redactor, printable, set_up_logging

SECRET = 'hunter2/ä"+ \\word'


# Metrics


def samples(metrics: Metrics) -> set[tuple[str, tuple[str, ...]]]:
    return {
        (sample.name, tuple(sample.labels))
        for family in metrics.registry.collect()
        for sample in family.samples
    }


def touched() -> Metrics:
    """With a value in every series that has labels."""
    metrics = Metrics()
    metrics.set_servers({ServerStatus.CONNECTED: 4, ServerStatus.ERROR: 1})
    metrics.health_duration.labels("github-mcp").set(0.045)
    metrics.health_failures.labels("github-mcp").inc(2)
    metrics.reconnects.labels("github-mcp").inc()
    metrics.noise.labels("github-mcp").inc()
    calls = metrics.calls_of("github-mcp")
    calls.routed(0.01)
    calls.sent()
    calls.ended("ok", 0.4)
    return metrics


def test_the_series_have_the_names_and_labels_of_the_contract() -> None:
    """R-52: every line of the contract's example, and nothing else under its prefix."""
    ours = {(name, labels) for name, labels in samples(touched()) if name.startswith("mcp_aggregator_")}
    assert ours == {
        ("mcp_aggregator_servers_total", ("status",)),
        ("mcp_aggregator_tools_total", ()),
        ("mcp_aggregator_tools_classified", ()),
        ("mcp_aggregator_routing_duration_seconds_bucket", ("le",)),
        ("mcp_aggregator_routing_duration_seconds_count", ()),
        ("mcp_aggregator_routing_duration_seconds_sum", ()),
        ("mcp_aggregator_execution_duration_seconds_bucket", ("server", "le")),
        ("mcp_aggregator_execution_duration_seconds_count", ("server",)),
        ("mcp_aggregator_execution_duration_seconds_sum", ("server",)),
        ("mcp_aggregator_health_check_duration_seconds", ("server",)),
        ("mcp_aggregator_health_check_failures_total", ("server",)),
    }


@pytest.mark.parametrize(
    "line",
    [
        'mcp_aggregator_servers_total{status="connected"} 4.0',
        'mcp_aggregator_servers_total{status="error"} 1.0',
        "mcp_aggregator_tools_total 125.0",
        'mcp_aggregator_routing_duration_seconds_bucket{le="0.05"} 1.0',
        'mcp_aggregator_routing_duration_seconds_bucket{le="0.1"} 1.0',
        'mcp_aggregator_execution_duration_seconds_bucket{le="1.0",server="github-mcp"} 1.0',
        'mcp_aggregator_health_check_duration_seconds{server="github-mcp"} 0.045',
        'mcp_aggregator_health_check_failures_total{server="github-mcp"} 2.0',
    ],
)
def test_the_page_reads_as_the_contract_shows_it(line: str) -> None:
    """R-52"""
    metrics = touched()
    metrics.tools.set(125)
    assert line in metrics.render().decode().splitlines()


def test_the_alert_thresholds_are_bucket_boundaries() -> None:
    """R-52: a quantile is only exact where a bucket ends; the alerts look at 75 and 100 ms."""
    page = touched().render().decode()
    for boundary in ("0.075", "0.1"):
        assert f'mcp_aggregator_routing_duration_seconds_bucket{{le="{boundary}"}}' in page


def test_every_status_has_its_own_count_even_at_zero() -> None:
    """R-52"""
    page = touched().render().decode()
    for status in ServerStatus:
        assert f'mcp_aggregator_servers_total{{status="{status.value.lower()}"}}' in page


def test_further_series_carry_our_own_prefix() -> None:
    names = {name for name, _ in samples(touched())}
    assert {name for name in names if not name.startswith(("mcp_aggregator_", "trunkline_"))} == set()


def test_a_removed_server_leaves_no_series_behind() -> None:
    """R-07"""
    metrics = touched()
    for outcome in CALL_OUTCOMES:
        metrics.calls_of("other").ended(outcome, 0.1)
        metrics.calls_of("github-mcp").ended(outcome, 0.1)
    metrics.forget_server("github-mcp")
    metrics.forget_server("never-seen")
    page = metrics.render().decode()
    assert "github-mcp" not in page
    assert 'trunkline_calls_total{outcome="ok",server="other"} 1.0' in page
    metrics.calls_of("github-mcp").ended("ok", 0.1)
    assert 'trunkline_calls_total{outcome="ok",server="github-mcp"} 1.0' in metrics.render().decode()


def test_two_gateways_in_one_process_do_not_share_series() -> None:
    first, second = Metrics(), Metrics()
    first.tools.set(5)
    assert "mcp_aggregator_tools_total 0.0" in second.render().decode()


# Redaction by value


def spellings(secret: str) -> dict[str, str]:
    return {
        "plain": f"it said {secret}.",
        "json": json.dumps({"x": f"a{secret}b"}),
        "json, not ascii": json.dumps({"x": secret}, ensure_ascii=False),
        "repr": repr([secret]),
        "percent": f"GET /x/{quote(secret, safe='')}/y",
        "percent, slashes kept": f"GET /x/{quote(secret)}/y",
        "percent, lower case": re.sub("%..", lambda code: code[0].lower(), quote(secret, safe="")),
        "form": f"q=1&x={quote_plus(secret)}",
        "hex": secret.encode().hex(),
        "base64": base64.b64encode(secret.encode()).decode(),
        "base64, URL-safe": base64.urlsafe_b64encode(secret.encode()).decode().rstrip("="),
        "base64 after 1": base64.b64encode(b"u" + secret.encode() + b"tail").decode(),
        "base64 after 2": base64.b64encode(b"u:" + secret.encode()).decode(),
        "base64 after 5": base64.urlsafe_b64encode(b"user:" + secret.encode() + b"!").decode(),
    }


@pytest.mark.parametrize("way", spellings(""))
def test_a_learned_secret_is_masked_however_it_is_spelled(way: str) -> None:
    """R-48"""
    redact = Redactor()
    redact.learn("server-1", [SECRET])
    text = spellings(SECRET)[way]
    shown = redact(text)
    assert MASK in shown
    if "base64" not in way:
        assert "hunter2" not in shown
        assert "6e7465723" not in shown
        return
    certain = base64.b64encode(SECRET.encode()).decode()[4:-4]
    assert all(certain[at : at + 6] not in shown for at in range(len(certain) - 5))


long_secrets = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc"]), min_size=12, max_size=40
).filter(lambda text: len(text.strip()) >= 12 and MASK not in text and "*" not in text)


@given(long_secrets, st.sampled_from(sorted(spellings(""))), st.sampled_from(["", "a", "ab", "abc"]))
def test_any_secret_is_masked_however_it_is_spelled(secret: str, way: str, before: str) -> None:
    """R-48"""
    redact = Redactor()
    redact.learn("server-1", [secret])
    text = before + spellings(secret)[way]
    assert MASK in redact(text)
    assert secret not in redact(text)


def test_each_line_of_a_long_secret_is_masked_by_itself() -> None:
    """R-48: a server's error output is read line by line."""
    redact = Redactor()
    redact.learn("s", ["-----BEGIN KEY-----\nMIIEvQIBADANBg\nkqhkiG9w0BAQEF\n-----END KEY-----\n"])
    assert redact("read kqhkiG9w0BAQEF from disk") == f"read {MASK} from disk"


def test_the_credential_of_a_header_is_masked_without_its_scheme() -> None:
    """R-48"""
    redact = Redactor()
    redact.learn("s", ["Bearer ghp_0123456789"])
    assert redact("key ghp_0123456789 expired") == f"key {MASK} expired"


def test_short_values_are_left_alone() -> None:
    redact = Redactor()
    redact.learn("s", ["dev", "", "a"])
    assert redact("a dev server") == "a dev server"


def test_a_secret_is_masked_as_long_as_one_server_has_it() -> None:
    redact = Redactor()
    redact.learn("one", ["shared-secret"])
    redact.learn("two", ["shared-secret", "second-secret"])
    redact.forget("one")
    redact.forget("one")
    assert redact("shared-secret second-secret") == f"{MASK} {MASK}"
    redact.learn("two", ["second-secret"])
    assert redact("shared-secret second-secret") == f"shared-secret {MASK}"
    redact.forget("two")
    assert redact("second-secret") == "second-secret"


def test_a_secret_inside_a_longer_one_leaves_no_rest_of_it() -> None:
    redact = Redactor()
    redact.learn("s", ["abcd1234", "abcd1234-and-the-rest"])
    assert redact("<abcd1234-and-the-rest>") == f"<{MASK}>"


# Redaction by name


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("password=abc123", f"password={MASK}"),
        ("DB_PASSWORD: abc123, next", f"DB_PASSWORD: {MASK}, next"),
        ("my-api-key = abc123;", f"my-api-key = {MASK};"),
        ("X-Api-Key: abc123", f"X-Api-Key: {MASK}"),
        ("APIKEY=abc123&x=1", f"APIKEY={MASK}&x=1"),
        ("aws_secret_access_key=abc123", f"aws_secret_access_key={MASK}"),
        ("privateKey: abc123", f"privateKey: {MASK}"),
        ("passphrase='correct horse battery'", f"passphrase='{MASK}'"),
        ('{"password": "correct horse, battery", "user": "x"}', f'{{"password": "{MASK}", "user": "x"}}'),
        (r'"{\"token\":\"a b c\",\"n\":1}"', rf'"{{\"token\":\"{MASK}\",\"n\":1}}"'),
        ("{'token': 'a b', 'n': 1}", f"{{'token': '{MASK}', 'n': 1}}"),
        ("{b'token': b'a b'}", f"{{b'token': '{MASK}'}}"),
        ("[(b'authorization', b'abc 123'), (b'x', b'y')]", f"[(b'authorization', '{MASK}'), (b'x', b'y')]"),
        ("Authorization: Bearer abc123", f"Authorization: {MASK}"),
        ("authorization: token ghp_abc123", f"authorization: {MASK}"),
        ("Authorization: ApiKey abc 123\nHost: x", f"Authorization: {MASK}\nHost: x"),
        ("Proxy-Authorization: Basic dTpw", f"Proxy-Authorization: {MASK}"),
        ("Set-Cookie: sid=abc123; Path=/", f"Set-Cookie: {MASK}"),
        ("got Bearer abc.DEF-123_x~+/=", f"got Bearer {MASK}"),
        ("basic dXNlcjpwYXNz", f"basic {MASK}"),
        ("postgresql://user:pa@ss@host/db", f"postgresql://{MASK}@host/db"),
        ("redis://:abc123@host:1", f"redis://{MASK}@host:1"),
        ("https://abc123@host/x", f"https://{MASK}@host/x"),
        ("https://host/x?key=abc123&y=1", f"https://host/x?key={MASK}&y=1"),
        ("https://host/x?sv=1&sig=abc%3D", f"https://host/x?sv=1&sig={MASK}"),
        ("npx server --api-key abc123 --port 1", f"npx server --api-key {MASK} --port 1"),
        ("server --token=abc123", f"server --token={MASK}"),
    ],
)
def test_what_stands_under_a_telling_name_is_masked(text: str, shown: str) -> None:
    """R-48"""
    assert Redactor()(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "Server unavailable: github-mcp",
        "no token was given",
        "https://host/path?page=2#part",
        "https://host/a@b and user@example.com",
        "3 of 5 servers are in error: alpha, beta",
        "secretary: Ms Jones"[:9],
        "the keys, as listed",
        "",
    ],
)
def test_ordinary_words_stay(text: str) -> None:
    assert Redactor()(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "a." * 200_000,
        "a-" * 200_000,
        "token:'" * 50_000,
        'token:\\"' * 50_000,
        "x://" * 100_000,
        "bearer " * 60_000,
        "--token " * 50_000,
        "secret" * 60_000,
        "('token'," * 40_000,
    ],
    ids=["dots", "dashes", "open", "escaped", "schemes", "bearers", "flags", "names", "tuples"],
)
def test_redaction_of_a_text_built_to_be_slow_ends_soon(text: str) -> None:
    """Quadratic work would take minutes; two seconds leave room for a busy machine."""
    redact = Redactor()
    before = time.process_time()
    redact(text)
    assert time.process_time() - before < 2


def test_what_could_act_on_a_terminal_is_made_visible() -> None:
    assert printable("a\x1b[31m\u202eb\u200b\u2028\x9b\r\0c\n\td") == "a�[31m�b�����c\n\td"


# Log records


@pytest.fixture
def logging_as_it_was() -> Iterator[None]:
    root, ours = logging.getLogger(), logging.getLogger("trunkline")
    handlers, levels = root.handlers[:], (root.level, ours.level)
    yield
    root.handlers[:] = handlers
    root.setLevel(levels[0])
    ours.setLevel(levels[1])


@pytest.fixture
def redact(logging_as_it_was: None) -> Redactor:
    learned = Redactor()
    learned.learn("s", [SECRET, "planted-secret"])
    return learned


log = logging.getLogger("trunkline.somewhere")


def test_a_json_record_is_one_object_a_line(redact: Redactor, capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logging("info", "json", redact)
    token = telemetry.request_id.set("req-1")
    log.info("%s said\n%s password: %s", "it", "planted-secret", 'x"', extra={"server": "a", "event": "b.c"})
    telemetry.request_id.reset(token)
    log.debug("not at this level")
    (line,) = capsys.readouterr().err.splitlines()
    entry = json.loads(line)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", entry.pop("time"))
    assert entry == {
        "level": "info",
        "logger": "trunkline.somewhere",
        "message": f'it said\\n{MASK} password: {MASK}"',
        "request_id": "req-1",
        "server": "a",
        "event": "b.c",
    }


def test_a_text_record_is_one_line_that_nobody_can_forge(
    redact: Redactor, capsys: pytest.CaptureFixture[str]
) -> None:
    set_up_logging("warning", "text", redact)
    log.warning("noise: %s", "x\n2026-01-01 00:00:00 ERROR forged\r\x1b[2J")
    log.info("not at this level")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(r"WARNING trunkline.somewhere [-] noise: x\n2026-01-01 00:00:00 ERROR forged��[2J")


@pytest.mark.parametrize("style", ["text", "json"])
def test_a_traceback_is_redacted_too(
    style: str, redact: Redactor, capsys: pytest.CaptureFixture[str]
) -> None:
    """R-48"""
    set_up_logging("info", "json" if style == "json" else "text", redact)
    try:
        raise ValueError("cannot use planted-secret", {"token": "a b c", "value": SECRET})
    except ValueError:
        log.exception("failed with planted-secret", stack_info=True)
    shown = capsys.readouterr().err
    assert "ValueError" in shown
    for secret in ("planted-secret", "a b c", "hunter2"):
        assert f"{secret}'" not in shown
        assert f"use {secret}" not in shown
    assert json.dumps(SECRET)[1:-1] not in shown
    if style == "json":
        assert "Traceback" in json.loads(shown)["exception"]


def test_a_record_with_wrong_arguments_is_logged_and_never_raised(
    redact: Redactor, capsys: pytest.CaptureFixture[str]
) -> None:
    set_up_logging("info", "text", redact)
    log.info("%d calls", "planted-secret")
    assert f"%d calls ('{MASK}',)" in capsys.readouterr().err


def test_other_libraries_are_heard_from_warning_on(
    redact: Redactor, capsys: pytest.CaptureFixture[str]
) -> None:
    set_up_logging("debug", "text", redact)
    logging.getLogger("some.library").info("chatter")
    logging.getLogger("some.library").warning("planted-secret")
    log.debug("ours")
    shown = capsys.readouterr().err
    assert "chatter" not in shown
    assert f"some.library [-] {MASK}" in shown
    assert "ours" in shown


def test_setting_up_twice_writes_once(redact: Redactor, capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logging("info", "text", redact)
    set_up_logging("info", "text", redact)
    log.info("once")
    assert capsys.readouterr().err.count("once") == 1
    assert logging.getLogger().handlers[0].stream is sys.stderr  # type: ignore[attr-defined]


# Floods


def test_a_flood_lets_one_through_and_counts_the_rest() -> None:
    flood = Flood(seconds=3600)
    assert [flood.passes() for _ in range(5)] == [True, False, False, False, False]
    assert flood.held_back == 4


def test_after_its_time_a_flood_lets_the_next_through() -> None:
    flood = Flood(seconds=0.05)
    assert flood.passes()
    deadline = time.monotonic() + 10
    while not flood.passes():
        assert time.monotonic() < deadline
        time.sleep(0.005)
