"""Proves what may be registered, and what a registration becomes when the gateway connects."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.errors import Forbidden, SettingsError, TrunklineError, ValidationError
from trunkline.model import MASK, HttpSpec, ProfileSpec, ServerSpec, SseSpec, StdioSpec
from trunkline.security.admission import LARGEST_CONFIG, Admission
from trunkline.security.configuration import masked
from trunkline.security.outbound import Outbound
from trunkline.security.profiles import Profile, Profiles, TextParameter
from trunkline.security.variables import Variables
from trunkline.settings import Settings, StdioMode

ENVIRON = {
    "GITHUB_TOKEN": "ghp-value-1",
    "TENANT": "../x?y=1&z#@",
    "LINES": "one\ntwo",
    "MCP_CREDENTIAL_KEY": "the-key-itself",
    "MCP_AGGREGATOR_LLM_API_KEY": "another",
}
PROFILES = Profiles(
    {
        "files": Profile(
            ("files", "{folder}"),
            {"TOKEN": "${GITHUB_TOKEN}", "LOG_LEVEL": "debug"},
            {"folder": TextParameter()},
        ),
        "locked": Profile(("files",), {"KEY": "${MCP_CREDENTIAL_KEY}"}),
    }
)


def admission(stdio: StdioMode = "any", environ: Mapping[str, str] = ENVIRON) -> Admission:
    return Admission(
        stdio=stdio,
        profiles=PROFILES,
        variables=Variables(("GITHUB_TOKEN", "TENANT", "LINES", "UNSET", "MCP_*"), environ),
        outbound=Outbound(allowed_networks=(), on_loopback=True, allow_insecure_http=False),
    )


def faults(spec: ServerSpec, policy: Admission | None = None) -> list[tuple[tuple[str | int, ...], str]]:
    with pytest.raises(ValidationError) as refused:
        (policy or admission()).admit(spec)
    for fault in refused.value.faults:
        assert fault.loc[:2] == ("body", "connection_config")
    return [(fault.loc[2:], fault.msg) for fault in refused.value.faults]


# Modes


@pytest.mark.parametrize("spec", [StdioSpec("npx"), ProfileSpec("files", {"folder": "a"})])
def test_off_allows_no_process_and_names_the_setting(spec: ServerSpec) -> None:
    for action in (admission("off").admit, admission("off").resolve):
        with pytest.raises(Forbidden, match="MCP_AGGREGATOR_STDIO=profiles"):
            action(spec)
    admission("off").admit(HttpSpec("https://example.com"))


def test_profiles_allows_only_the_operators_command_lines() -> None:
    policy = admission("profiles")
    policy.admit(ProfileSpec("files", {"folder": "a"}))
    for action in (policy.admit, policy.resolve):
        with pytest.raises(Forbidden, match="There are: files, locked"):
            action(StdioSpec("files", ("a",)))


def test_any_allows_both() -> None:
    admission("any").admit(ProfileSpec("files", {"folder": "a"}))
    admission("any").admit(
        StdioSpec("npx", ("-y", "pkg"), {"NODE_OPTIONS": "--trace", "LD_LIBRARY_PATH": "/x"})
    )


# STDIO

BAD_ARGUMENTS = [
    "a\0b",
    "${",
    "${GITHUB_TOKEN",
    "${HOME}",
    "${MCP_CREDENTIAL_KEY}",
    MASK,
]


@pytest.mark.parametrize("arg", BAD_ARGUMENTS)
def test_a_bad_argument_is_refused_where_it_stands(arg: str) -> None:
    """R-02, R-49"""
    assert {loc for loc, _ in faults(StdioSpec("npx", ("ok", arg)))} == {("args", 1)}


@pytest.mark.parametrize(
    "command", ["a\0b", "a\nb", " npx", "npx ", "", " ", "${GITHUB_TOKEN}", "/${X}/b", "x" * 4097]
)
def test_a_bad_command_is_refused(command: str) -> None:
    """R-02, R-49"""
    assert {loc for loc, _ in faults(StdioSpec(command))} == {("command",)}


@pytest.mark.parametrize("name", ["", "1A", "A-B", "A=B", "A B", "A\0", "Ä", "A\n", "x" * 257])
def test_a_bad_variable_name_is_refused(name: str) -> None:
    """R-02"""
    assert {loc for loc, _ in faults(StdioSpec("npx", (), {name: "v"}))} == {("env", name)}


def test_a_variable_value_may_have_lines_and_no_nul() -> None:
    admission().admit(StdioSpec("npx", (), {"PEM": "-----BEGIN-----\nabc\n", "U": "ünï"}))
    assert faults(StdioSpec("npx", (), {"A": "b\0"}))[0][0] == ("env", "A")


@pytest.mark.parametrize(
    "spec",
    [
        StdioSpec("npx", ("x" * LARGEST_CONFIG,)),
        StdioSpec("npx", ("x",) * 257),
        StdioSpec("npx", (), {f"A{number}": "" for number in range(257)}),
        HttpSpec("https://example.com", {"X": "y" * LARGEST_CONFIG}),
        HttpSpec("https://example.com", {f"X{number}": "" for number in range(257)}),
    ],
)
def test_what_is_too_large_is_refused(spec: ServerSpec) -> None:
    """R-02"""
    assert any("larger than" in message or "more than 256" in message for _, message in faults(spec))


@pytest.mark.parametrize("value", ["${GITHUB_TOKEN}", "$${x}", MASK])
def test_a_parameter_takes_no_reference(value: str) -> None:
    """R-49"""
    assert faults(ProfileSpec("files", {"folder": value}))[0][0] == ("parameters", "folder")


def test_a_profile_cannot_name_the_gateways_own_variables_either() -> None:
    """R-49"""
    assert "gateway's own" in faults(ProfileSpec("locked"))[0][1]


# Headers


@pytest.mark.parametrize(
    "name",
    [
        *("", "A B", "A:", "A\n", "A\r\nB", "Ä", "A\0", "(A)", "x" * 257),
        *("Host", "host", "Content-Length", "Transfer-Encoding", "Connection", "Keep-Alive", "TE", "Trailer"),
        *("Upgrade", "Proxy-Authorization", "Proxy-Authenticate", "Proxy-Connection", "Expect"),
        *("Mcp-Session-Id", "MCP-Protocol-Version", "Mcp-Method", "Mcp-Name", "Mcp-Param-A", "Last-Event-ID"),
    ],
)
@pytest.mark.parametrize("kind", [SseSpec, HttpSpec])
def test_a_bad_header_name_is_refused(kind: type[SseSpec] | type[HttpSpec], name: str) -> None:
    """R-02"""
    assert {loc for loc, _ in faults(kind("https://example.com", {name: "v"}))} == {("headers", name)}


@pytest.mark.parametrize(
    "value",
    [
        "a\nb",
        "a\rb",
        "a\r\nX: y",
        "a\0",
        "\x7f",
        "a\x1b",
        "é",
        "日本",
        " a",
        "a ",
        "a\t",
        " ",
        "a\u2028b",
        MASK,
    ],
)
def test_a_bad_header_value_is_refused(value: str) -> None:
    """R-02"""
    spec = HttpSpec("https://example.com", {"X": value})
    assert {loc for loc, _ in faults(spec)} == {("headers", "X")}


def test_a_header_given_twice_is_refused() -> None:
    spec = HttpSpec("https://example.com", {"Authorization": "a", "authorization": "b"})
    assert faults(spec) == [(("headers", "authorization"), "This header is given twice")]


@pytest.mark.parametrize("value", ["", "a", "a b", "a\tb", "Bearer ${GITHUB_TOKEN}", "$${x}", "~!@#%"])
def test_a_good_header_is_allowed(value: str) -> None:
    admission().admit(
        HttpSpec("https://example.com", {"X-Api-Key": value, "Content-Type": "application/json"})
    )


# Urls


@pytest.mark.parametrize(
    "url",
    [
        "https://${GITHUB_TOKEN}/",
        "https://${GITHUB_TOKEN}.example.com/",
        "https://example.com:${GITHUB_TOKEN}/",
        "https://u:${GITHUB_TOKEN}@example.com/",
        "https://example.com${GITHUB_TOKEN}/",
        "${GITHUB_TOKEN}",
        "${GITHUB_TOKEN}://example.com",
        "https:${GITHUB_TOKEN}",
        "https://[${GITHUB_TOKEN}]/",
    ],
)
def test_no_variable_may_decide_the_host(url: str) -> None:
    """R-49"""
    [(loc, message)] = faults(SseSpec(url))
    assert loc == ("url",)
    assert "never in its host" in message


@pytest.mark.parametrize(
    "url", ["https://169.254.169.254/", "http://example.com/", "file:///etc/passwd", "x"]
)
def test_an_address_that_is_not_allowed_is_a_fault_of_its_field(url: str) -> None:
    """R-02, R-50"""
    assert [loc for loc, _ in faults(SseSpec(url))] == [("url",)]
    assert [loc for loc, _ in faults(HttpSpec(url))] == [("base_url",)]


def test_everything_wrong_is_said_at_once() -> None:
    """R-02"""
    spec = HttpSpec("ftp://x/${HOME}", {"Host": "a", "X": "b\n"})
    assert {loc for loc, _ in faults(spec)} == {("base_url",), ("headers", "Host"), ("headers", "X")}


@pytest.mark.parametrize(
    "url",
    [
        "https://example.com/${GITHUB_TOKEN}",
        "https://example.com/$${x}",
        "https://example.com/health?token=abc",
        "https://example.com/health?api_key=",
        "https://u:p@example.com/",
        "file:///etc/passwd",
        "http://10.0.0.1/",
        "nonsense",
    ],
)
def test_an_address_that_is_shown_in_clear_takes_no_variable_and_no_secret(url: str) -> None:
    """R-48, R-49"""
    with pytest.raises(ValidationError) as refused:
        admission().admit_url(url, "body", "health_check_url")
    assert {fault.loc for fault in refused.value.faults} == {("body", "health_check_url")}
    assert "abc" not in refused.value.detail


def test_an_ordinary_health_address_is_allowed() -> None:
    admission().admit_url("https://example.com/health?full=1", "body", "health_check_url")
    admission().admit_url("http://127.0.0.1:9000/health", "body", "health_check_url")


# Resolving


def test_a_registration_looks_at_no_value() -> None:
    """R-49"""
    admission(environ={}).admit(HttpSpec("https://example.com/${TENANT}", {"A": "Bearer ${GITHUB_TOKEN}"}))
    with pytest.raises(ValidationError, match="is not set"):
        admission(environ={}).resolve(HttpSpec("https://example.com/${TENANT}"))


def test_variables_are_filled_in_where_they_may_stand() -> None:
    """R-49"""
    spec = StdioSpec("run", ("--token", "${GITHUB_TOKEN}", "$${X}"), {"T": "x-${GITHUB_TOKEN}"})
    reachable, secrets = admission().resolve(spec)
    assert reachable == StdioSpec("run", ("--token", "ghp-value-1", "${X}"), {"T": "x-ghp-value-1"})
    assert {"ghp-value-1", "x-ghp-value-1"} <= secrets
    reachable, secrets = admission().resolve(SseSpec("https://h.example/s", {"A": "Bearer ${GITHUB_TOKEN}"}))
    assert reachable == SseSpec("https://h.example/s", {"A": "Bearer ghp-value-1"})
    assert {"ghp-value-1", "Bearer ghp-value-1"} <= secrets


def test_a_value_cannot_become_another_part_of_the_url() -> None:
    """R-49"""
    reachable, secrets = admission().resolve(HttpSpec("https://h.example/a/${TENANT}/b?t=${TENANT}"))
    encoded = "..%2Fx%3Fy%3D1%26z%23%40"
    assert reachable == HttpSpec(f"https://h.example/a/{encoded}/b?t={encoded}")
    assert {ENVIRON["TENANT"], encoded} <= secrets


def test_a_profile_becomes_a_process_with_its_own_environment_alone() -> None:
    """R-49"""
    reachable, secrets = admission("profiles").resolve(ProfileSpec("files", {"folder": "/srv"}))
    assert reachable == StdioSpec("files", ("/srv",), {"TOKEN": "ghp-value-1", "LOG_LEVEL": "debug"})
    assert "ghp-value-1" in secrets
    assert "debug" not in secrets


@pytest.mark.parametrize(
    "spec",
    [
        SseSpec("https://h.example/", {"A": "${LINES}"}),
        HttpSpec("https://h.example/", {"A": "${LINES}"}),
        StdioSpec("run", ("${UNSET}",)),
        StdioSpec("run", (), {"A": "${UNSET}"}),
        SseSpec("https://h.example/${UNSET}"),
    ],
)
def test_a_value_that_does_not_fit_is_never_shown(spec: ServerSpec) -> None:
    """R-48, R-49"""
    admission().admit(spec)
    with pytest.raises(ValidationError) as refused:
        admission().resolve(spec)
    assert "one" not in refused.value.detail.replace("none", "")
    assert refused.value.faults[0].loc[:2] == ("body", "connection_config")


def test_lines_may_go_into_the_environment() -> None:
    reachable, _ = admission().resolve(StdioSpec("run", (), {"A": "${LINES}"}))
    assert reachable == StdioSpec("run", (), {"A": "one\ntwo"})


@pytest.mark.parametrize("name", ["MCP_CREDENTIAL_KEY", "MCP_AGGREGATOR_LLM_API_KEY"])
@pytest.mark.parametrize("shape", ["${NAME}", "x${NAME}y", "$${NAME", "${{NAME}}"])
def test_the_gateways_own_secrets_reach_no_field(name: str, shape: str) -> None:
    """R-49: eight fields, four spellings; refused, or left as the text it is."""
    text = shape.replace("NAME", name)
    specs: list[ServerSpec] = [
        StdioSpec(text),
        StdioSpec("run", (text,)),
        StdioSpec("run", (), {"A": text}),
        ProfileSpec("files", {"folder": text}),
        SseSpec(f"https://h.example/{text}"),
        SseSpec(f"https://{text}/"),
        HttpSpec("https://h.example/", {"A": text}),
        HttpSpec(f"https://h.example/?a={text}"),
    ]
    for spec in specs:
        assert ENVIRON[name] not in _said_of(spec)


def _said_of(spec: ServerSpec) -> str:
    try:
        return repr(admission().resolve(spec))
    except TrunklineError as refused:
        return refused.detail


@given(st.from_regex(r"[a-z]{4}[A-Z]{4}[0-9]{4}[A-Za-z0-9]{8}", fullmatch=True))
def test_the_redactor_is_told_every_secret(secret: str) -> None:
    """R-48: what `masked` hides is among the secrets of the resolved configuration."""
    specs: list[ServerSpec] = [
        StdioSpec("run", ("--token", secret)),
        StdioSpec("run", (f"--password={secret}",)),
        StdioSpec("run", (f"postgresql://u:{secret}@db/x",)),
        StdioSpec("run", (), {"ANY": secret}),
        HttpSpec("https://h.example/", {"X-Any": secret}),
        HttpSpec("https://h.example/", {"Authorization": f"Bearer {secret}"}),
        SseSpec(f"https://h.example/s/{secret}/sse"),
        SseSpec(f"https://h.example/sse?k={secret}"),
    ]
    for spec in specs:
        _, secrets = admission().resolve(spec)
        assert any(secret in known for known in secrets)
        assert secret not in repr(masked(spec))


def test_ordinary_words_are_not_blotted_out_of_the_logs() -> None:
    spec = StdioSpec(
        "run", (), {"LOG_LEVEL": "debug", "PORT": "8080", "MODE": "production", "HOME": "/root/x"}
    )
    assert admission().resolve(spec)[1] == frozenset()
    assert admission().resolve(StdioSpec("run", (), {"PASSWORD": "debug"}))[1] == {"debug"}
    assert admission().resolve(StdioSpec("run", (), {"USE_TOKEN": "true"}))[1] == frozenset()


def test_settings_that_became_stricter_hold_when_connecting() -> None:
    spec = HttpSpec("http://127.0.0.1:9000/")
    admission().admit(spec)
    exposed = Admission.from_settings(
        Settings(host="0.0.0.0"), Outbound.from_settings(Settings(host="0.0.0.0")), {}
    )
    with pytest.raises(ValidationError, match="this machine"):
        exposed.resolve(spec)


def test_the_settings_decide(tmp_path: Path) -> None:
    file = tmp_path / "profiles.toml"
    file.write_text("[profiles.one]\ncommand = ['run']\nenv = { A = '${SOME_X}' }\n")
    settings = Settings(host="0.0.0.0", stdio="profiles", stdio_profiles=file, allowed_variables=("SOME_*",))
    policy = Admission.from_settings(settings, Outbound.from_settings(settings), {"SOME_X": "value"})
    assert policy.resolve(ProfileSpec("one"))[0] == StdioSpec("run", (), {"A": "value"})
    file.write_text("nonsense")
    with pytest.raises(SettingsError):
        Admission.from_settings(settings, Outbound.from_settings(settings), {})
