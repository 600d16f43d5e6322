"""Proves the shapes of a `connection_config`: read with exact faults, shown without secrets, merged back."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from trunkline.errors import ValidationError
from trunkline.model import MASK, HttpSpec, ProfileSpec, ServerSpec, SseSpec, StdioSpec
from trunkline.security.configuration import (
    config_of,
    masked,
    masked_url,
    merge_masked,
    read_spec,
    spec_from_json,
    spec_to_json,
)


def faults(transport: str, config: dict[str, Any]) -> list[tuple[tuple[str | int, ...], str]]:
    with pytest.raises(ValidationError) as refused:
        read_spec(transport, config)
    return [(fault.loc, fault.msg) for fault in refused.value.faults]


@pytest.mark.parametrize(
    ("transport", "config", "expected"),
    [
        ("STDIO", {"command": "npx"}, StdioSpec("npx")),
        (
            "stdio",
            {"command": "npx", "args": ["-y"], "env": {"A": "b"}},
            StdioSpec("npx", ("-y",), {"A": "b"}),
        ),
        ("STDIO", {"command": "npx", "args": None, "env": None}, StdioSpec("npx")),
        (
            "STDIO",
            {"profile": "files", "parameters": {"a": 1, "b": True, "c": "x"}},
            ProfileSpec("files", {"a": 1, "b": True, "c": "x"}),
        ),
        ("sse", {"url": "https://x"}, SseSpec("https://x")),
        ("SSE", {"url": "https://x", "headers": {"A": "b"}}, SseSpec("https://x", {"A": "b"})),
        ("HTTP", {"base_url": "https://x"}, HttpSpec("https://x")),
        ("Http", {"url": "https://x", "headers": {}}, HttpSpec("https://x")),
        ("STREAMABLE_HTTP", {"url": "https://x"}, HttpSpec("https://x")),
        ("streamable-http", {"base_url": "https://x"}, HttpSpec("https://x")),
    ],
)
def test_a_configuration_is_read(transport: str, config: dict[str, Any], expected: ServerSpec) -> None:
    """R-01"""
    assert read_spec(transport, config) == expected


@pytest.mark.parametrize(("transport", "field"), [("STDIO", "command"), ("SSE", "url"), ("HTTP", "base_url")])
@pytest.mark.parametrize("missing", [{}, {"FIELD": None}, {"FIELD": ""}])
def test_a_missing_field_is_named_as_the_contract_names_it(
    transport: str, field: str, missing: dict[str, Any]
) -> None:
    """R-02"""
    config = {field if name == "FIELD" else name: value for name, value in missing.items()}
    message = f"{transport} transport requires '{field}' in connection_config"
    assert faults(transport, config) == [(("body", "connection_config", field), message)]


@pytest.mark.parametrize(
    ("transport", "config", "field", "words"),
    [
        ("STDIO", {"command": 5}, ("command",), "'command' must be a text"),
        ("STDIO", {"command": "x", "args": "-y"}, ("args",), "'args' must be a list of texts"),
        ("STDIO", {"command": "x", "args": ["a", 1]}, ("args", 1), "'args[1]' must be a text"),
        ("STDIO", {"command": "x", "args": [["a"]]}, ("args", 0), "'args[0]' must be a text"),
        ("STDIO", {"command": "x", "env": ["A=b"]}, ("env",), "'env' must be an object"),
        ("STDIO", {"command": "x", "env": {"PORT": 80}}, ("env", "PORT"), "must be a text"),
        ("STDIO", {"command": "x", "env": {"A": "\ud800"}}, ("env", "A"), "surrogate"),
        ("STDIO", {"command": "x", "arg": []}, ("arg",), "did you mean 'args'?"),
        ("STDIO", {"command": "x", "cwd": "/"}, ("cwd",), "STDIO takes command, args, env, profile"),
        ("STDIO", {"command": "x", "headers": {}}, ("headers",), "belongs to the transport SSE and HTTP"),
        ("STDIO", {"command": "x", "parameters": {}}, ("parameters",), "needs a 'profile'"),
        ("STDIO", {"profile": "x", "command": "y"}, ("command",), "does not go together with 'profile'"),
        ("STDIO", {"profile": "x", "env": {}}, ("env",), "does not go together with 'profile'"),
        ("STDIO", {"profile": "x", "parameters": {"a": 1.5}}, ("parameters", "a"), "whole number"),
        ("SSE", {"url": "https://x", "command": "y"}, ("command",), "belongs to the transport STDIO"),
        ("SSE", {"url": "https://x", "base_url": "y"}, ("base_url",), "belongs to the transport HTTP"),
        ("SSE", {"url": "https://x", "URL": "y"}, ("URL",), "SSE takes url, headers"),
        ("HTTP", {"url": "https://x", "base_url": "https://y"}, ("base_url",), "only one of them"),
        ("HTTP", {"url": "https://x", "headers": {"A": None}}, ("headers", "A"), "must be a text"),
    ],
)
def test_each_wrong_field_says_what_is_wrong_where(
    transport: str, config: dict[str, Any], field: tuple[str | int, ...], words: str
) -> None:
    """R-02"""
    found = faults(transport, config)
    assert [loc for loc, _ in found] == [("body", "connection_config", *field)] * len(found)
    assert words in found[0][1]


def test_a_configuration_for_another_transport_is_told_so() -> None:
    """R-02"""
    assert faults("SSE", {"command": "npx", "args": []}) == [
        (("body", "connection_config", "url"), "SSE transport requires 'url' in connection_config"),
        (
            ("body", "connection_config", "command"),
            "'command' belongs to the transport STDIO; SSE takes url, headers",
        ),
        (
            ("body", "connection_config", "args"),
            "'args' belongs to the transport STDIO; SSE takes url, headers",
        ),
    ]


@pytest.mark.parametrize("transport", ["", "FTP", "stdio2", "HTTP ​", "x" * 9999])
def test_an_unknown_transport_is_refused(transport: str) -> None:
    """R-02"""
    [(loc, message)] = faults(transport, {})
    assert loc == ("body", "transport_type")
    assert len(message) < 200


def test_a_million_faults_make_a_short_answer() -> None:
    assert len(faults("STDIO", {"command": "x", "args": list(range(10_000))})) == 20
    assert len(faults("SSE", {f"f{number}": 1 for number in range(10_000)})) == 20


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,10}", fullmatch=True)
tables = st.dictionaries(names, texts, max_size=4)
# Of a header given twice, in whatever letters, nothing gets past admission.
headers = tables.filter(lambda table: len({name.lower() for name in table}) == len(table))
specs = st.one_of(
    st.builds(StdioSpec, texts.filter(bool), st.lists(texts, max_size=5).map(tuple), tables),
    st.builds(
        ProfileSpec,
        texts.filter(bool),
        st.dictionaries(names, st.one_of(texts, st.integers(), st.booleans())),
    ),
    st.builds(SseSpec, texts.filter(bool), headers),
    st.builds(HttpSpec, texts.filter(bool), headers),
)


@given(specs)
def test_a_spec_survives_its_json(spec: ServerSpec) -> None:
    """R-48"""
    assert spec_from_json(spec_to_json(spec)) == spec
    assert read_spec(spec.transport, config_of(spec)) == spec


# Masking


SECRET = st.from_regex(r"[a-z]{4}[A-Z]{4}[0-9]{4}[A-Za-z0-9]{16}", fullmatch=True)
PLANTED: list[str] = [
    "{}",
    "Bearer {}",
    "--token={}",
    "--api-key={}",
    "--apiKey={}",
    "API_KEY={}",
    "-DclientSecret={}",
    "Authorization: Bearer {}",
    "--header=Authorization: {}",
    "postgresql://user:{}@db.internal/x",
    "--dsn=postgresql://{}:x@db.internal/x",
    "https://example.com/sse?x={}",
    "https://example.com/sse?token={}&y=1",
    "https://example.com/s/{}/sse",
    "https://example.com/sse#{}",
    '{{"apiKey": "{}"}}',
    "password: {}",
    "see https://example.com/?k={} for more",
]


@given(specs, SECRET, st.sampled_from(PLANTED), st.randoms())
def test_a_planted_secret_is_never_shown(spec: ServerSpec, secret: str, shape: str, random: Any) -> None:
    """R-04, R-48"""
    planted = shape.format(secret)
    url = planted if "://" in planted and " " not in planted else f"https://example.com/?q={secret}"
    match spec:
        case StdioSpec():
            args = [*spec.args]
            args.insert(random.randint(0, len(args)), planted)
            args += ["--password", secret, "-H", f"X-Custom: {secret}"]
            spec = StdioSpec(spec.command, tuple(args), {**spec.env, "PLAIN": planted})
        case ProfileSpec():
            spec = ProfileSpec(spec.profile, {**spec.parameters, "api-token": planted, "x": secret})
        case SseSpec():
            spec = SseSpec(url, {**spec.headers, "X-Plain": planted})
        case HttpSpec():
            spec = HttpSpec(url, {**spec.headers, "X-Plain": planted})
    assert secret not in json.dumps(masked(spec))
    assert secret not in repr(merged_fault(spec))


def merged_fault(spec: ServerSpec) -> object:
    try:
        return merge_masked(spec, {"url": MASK + "x", "args": [MASK + "x"], "headers": {"new": MASK}})
    except ValidationError as refused:
        return refused.faults


@pytest.mark.parametrize("prefix", ["a", "x1", "-"])
@pytest.mark.parametrize("flag", ["--token", "--api-key", "-token", "--secretKey", "--db.password", "--auth"])
def test_the_value_after_a_telling_flag_is_hidden(flag: str, prefix: str) -> None:
    spec = StdioSpec("x", (flag, f"{prefix}bc", "shown"))
    assert masked(spec) == {"command": "x", "args": [flag, MASK, "shown"]}


@pytest.mark.parametrize(
    "arg",
    [
        "sk-proj-abcdefghijkl",
        "ghp_abcdefghijklmnopqrstuvwxyz",
        "github_pat_11ABCDEFG0abcdefgh",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln",
        "AKIAIOSFODNN7EXAMPLE",
        "550e8400-e29b-41d4-a716-446655440000",
        "d41d8cd98f00b204e9800998ecf8427e",
    ],
)
def test_a_bare_key_is_recognised(arg: str) -> None:
    assert masked(StdioSpec("x", (arg,)))["args"] == [MASK]


def test_what_is_no_secret_is_shown_as_it_is() -> None:
    """R-04"""
    args = ("-y", "@modelcontextprotocol/server-filesystem", "/srv/data", "--port", "8080", "--author", "Ann")
    assert masked(StdioSpec("npx", args)) == {"command": "npx", "args": list(args)}
    assert masked(SseSpec("https://example.com:8443/a/b")) == {"url": "https://example.com:8443/a/b"}
    assert masked(ProfileSpec("p", {"folder": "/srv", "n": 3})) == {
        "profile": "p",
        "parameters": {"folder": "/srv", "n": 3},
    }


def test_references_are_shown_and_what_stands_beside_them_is_not() -> None:
    """R-49"""
    spec = SseSpec(
        "https://example.com/${TENANT}/sse?token=${TOKEN}&mixed=abc${TOKEN}",
        {
            "Authorization": "Bearer ${GITHUB_TOKEN}",
            "X-Mixed": "abc ${A}-def",
            "X-Escaped": "$${A}",
            "X": "${",
        },
    )
    assert masked(spec) == {
        "url": f"https://example.com/${{TENANT}}/sse?token=${{TOKEN}}&mixed={MASK}${{TOKEN}}",
        "headers": {
            "Authorization": "Bearer ${GITHUB_TOKEN}",
            "X-Mixed": f"{MASK}${{A}}{MASK}",
            "X-Escaped": MASK,
            "X": MASK,
        },
    }


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://u:p@example.com/a?b=c&d#e", f"https://{MASK}@example.com/a?b={MASK}&{MASK}#{MASK}"),
        ("no url at all", MASK),
        ("https://example.com/?", "https://example.com/?"),
        ("https://example.com?a=b;c=d", f"https://example.com?a={MASK};c={MASK}"),
    ],
)
def test_a_url_is_masked_in_its_places(url: str, shown: str) -> None:
    """R-04"""
    assert masked_url(url) == shown


def test_masking_a_hostile_argument_takes_no_time() -> None:
    """64 KiB of what makes careless patterns hang; the suite's time limit is the judge."""
    for text in ("token", "a", "-", "=", " ", "x:", "a" * 63 + " ", "--key", "eyJ", "'\"", "0a", "://"):
        masked(StdioSpec("x", (text * (65536 // len(text)),)))


# Sending back what was shown


@given(specs)
def test_what_is_shown_and_sent_back_changes_nothing(spec: ServerSpec) -> None:
    """R-04"""
    assume(MASK not in spec_to_json(spec).decode())
    assert read_spec(spec.transport, merge_masked(spec, masked(spec))) == spec


def merge_faults(old: ServerSpec, new: dict[str, Any]) -> list[tuple[str | int, ...]]:
    with pytest.raises(ValidationError) as refused:
        merge_masked(old, new)
    return [fault.loc[2:] for fault in refused.value.faults]


STDIO = StdioSpec("run", ("--token", "t1", "--key", "k1", "plain"), {"A": "a1", "B": "b1"})
HTTP = HttpSpec("https://example.com/s?key=q1", {"Authorization": "Bearer h1"})


def test_a_mask_keeps_the_secret_and_a_new_value_replaces_it() -> None:
    """R-04"""
    new = {"command": "other", "args": ["-v", "--token", MASK, "--key", "k2"], "env": {"A": MASK, "C": "c1"}}
    assert merge_masked(STDIO, new) == {
        "command": "other",
        "args": ["-v", "--token", "t1", "--key", "k2"],
        "env": {"A": "a1", "C": "c1"},
    }
    assert merge_masked(
        HTTP, {"url": f"https://example.com/s?key={MASK}", "headers": {"authorization": MASK}}
    ) == {
        "url": "https://example.com/s?key=q1",
        "headers": {"authorization": "Bearer h1"},
    }
    assert merge_masked(
        HTTP, {"base_url": "https://example.com/other", "headers": {"Authorization": MASK}}
    ) == {
        "base_url": "https://example.com/other",
        "headers": {"Authorization": "Bearer h1"},
    }


def test_arguments_that_change_places_take_their_own_secrets_with_them() -> None:
    new = {"command": "run", "args": ["--key", MASK, "--token", MASK, "plain"]}
    assert merge_masked(STDIO, new)["args"] == ["--key", "k1", "--token", "t1", "plain"]


@pytest.mark.parametrize(
    ("old", "new", "where"),
    [
        (STDIO, {"command": "run", "env": {"NEW": MASK}}, ("env", "NEW")),
        (STDIO, {"command": "run", "env": {"A": f"x{MASK}"}}, ("env", "A")),
        (STDIO, {"command": "run", "args": [MASK]}, ("args", 0)),
        (STDIO, {"command": MASK}, ("command",)),
        (STDIO, {"profile": MASK}, ("profile",)),
        (HTTP, {"url": f"https://example.com/other?key={MASK}"}, ("url",)),
        (HTTP, {"url": "https://example.com/s", "headers": {"X": MASK}}, ("headers", "X")),
        (HTTP, {"url": "https://evil.example/s", "headers": {"Authorization": MASK}}, ("url",)),
        (HTTP, {"url": "http://example.com/s", "headers": {"Authorization": MASK}}, ("url",)),
        (HTTP, {"url": "https://example.com:444/s", "headers": {"Authorization": MASK}}, ("url",)),
    ],
)
def test_a_mask_that_stands_for_nothing_or_would_travel_is_refused(
    old: ServerSpec, new: dict[str, Any], where: tuple[str | int, ...]
) -> None:
    """R-04"""
    assert merge_faults(old, new) == [where]


@given(
    st.dictionaries(
        st.sampled_from(["command", "args", "env", "url", "headers", "profile", "parameters", "x"]),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.just(MASK) | st.text(max_size=5),
            lambda inner: (
                st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
            ),
            max_leaves=8,
        ),
        max_size=5,
    ),
    st.sampled_from(["STDIO", "SSE", "HTTP"]),
)
def test_no_configuration_raises_anything_but_a_fault(config: dict[str, Any], transport: str) -> None:
    for old in (STDIO, HTTP):
        with contextlib.suppress(ValidationError):
            merge_masked(old, config)
    with contextlib.suppress(ValidationError):
        masked(read_spec(transport, config))
