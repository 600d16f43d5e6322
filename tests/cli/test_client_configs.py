"""Reading the server lists of other MCP clients, as those clients write them."""

from pathlib import Path
from typing import Any

import pytest

from trunkline.cli.client_configs import (
    Registration,
    Unusable,
    Values,
    entries_of,
    inputs_of,
    inputs_used,
    normal_name,
    plan,
    read_config,
)
from trunkline.cli.failures import UsageFailure

CLAUDE_DESKTOP = """{
  "globalShortcut": "",
  "mcpServers": {
    "filesystem": {
      "command": "npx",
      "args": ["-y", "@modelcontextprotocol/server-filesystem", "/srv"],
      "env": {"LOG_LEVEL": "debug", "API_KEY": "s3cret-of-the-user"}
    }
  }
}"""

CLAUDE_CODE = """{
  "mcpServers": {
    "docs": {"type": "http", "url": "https://docs.example/mcp",
             "headers": {"Authorization": "Bearer ${DOCS}"}},
    "events": {"type": "sse", "url": "https://events.example.com/sse"},
    "local": {"type": "stdio", "command": "uvx", "args": ["mcp-server-git"], "env": {}}
  }
}"""

CLAUDE_CODE_OF_A_USER = """{
  "numStartups": 5,
  "mcpServers": {"global": {"command": "a"}},
  "projects": {"/home/me/x": {"mcpServers": {"of-x": {"command": "b"}}}, "/home/me/y": {"mcpServers": {}}}
}"""

CURSOR = """\ufeff{
  "mcpServers": {
    "remote": {"url": "https://mcp.example.com/v1"},
    "older": {"url": "https://mcp.example.com/sse"},
    "token": {"command": "node", "args": ["x.js", "--token", "abcdefghij"], "env": {"T": "${env:TOKEN}"}}
  }
}"""

VSCODE = r"""{
  // what to ask for
  "inputs": [
    {"type": "promptString", "id": "gh-token", "description": "GitHub token", "password": true},
  ],
  "servers": {
    "GitHub": {
      "type": "http", /* remote */
      "url": "https://api.example.com/mcp//x", // not a comment inside the text
      "headers": {"Authorization": "Bearer ${input:gh-token}", "X-Note": "/* kept */ \" // kept"},
    },
    "here": {"command": "${workspaceFolder}/run", "args": ["${userHome}", "a${/}b"]},
  },
}"""

VSCODE_SETTINGS = '{"editor.fontSize": 12, "mcp": {"servers": {"x": {"command": "y"}}}}'


def planned(text: str, values: Values | None = None) -> list[Registration | Unusable]:
    return plan(entries_of(read_config(text)), values or Values())


def registrations(text: str, values: Values | None = None) -> dict[str, Registration]:
    return {item.name: item for item in planned(text, values) if isinstance(item, Registration)}


def test_claude_desktop_is_read_and_its_secrets_are_sent_but_not_shown() -> None:
    found = registrations(CLAUDE_DESKTOP)["filesystem"]
    assert found.transport == "STDIO"
    assert found.config == {
        "command": "npx",
        "args": ["-y", "@modelcontextprotocol/server-filesystem", "/srv"],
        "env": {"LOG_LEVEL": "debug", "API_KEY": "s3cret-of-the-user"},
    }
    assert "s3cret" not in str(found.shown)
    assert found.connect


def test_claude_code_is_read_over_all_transports() -> None:
    found = registrations(CLAUDE_CODE)
    assert {name: item.transport for name, item in found.items()} == {
        "docs": "HTTP", "events": "SSE", "local": "STDIO",
    }  # fmt: skip
    assert found["docs"].config["headers"] == {"Authorization": "Bearer ${DOCS}"}
    assert found["docs"].notes == (
        "the gateway must be allowed to read DOCS (MCP_AGGREGATOR_ALLOWED_VARIABLES)",
    )
    assert found["events"].config == {"url": "https://events.example.com/sse"}
    assert found["local"].config == {"command": "uvx", "args": ["mcp-server-git"]}
    assert set(registrations(CLAUDE_CODE_OF_A_USER)) == {"global", "of-x"}


def test_cursor_says_no_type_so_the_address_does() -> None:
    found = registrations(CURSOR)
    assert found["remote"].transport == "HTTP"
    assert found["remote"].config == {"base_url": "https://mcp.example.com/v1"}
    assert found["older"].transport == "SSE"
    assert found["older"].notes == ("no type is given; SSE by its address",)
    assert found["token"].config["env"] == {"T": "${TOKEN}"}
    assert "abcdefghij" not in str(found["token"].shown)


def test_vs_code_is_read_with_its_comments_inputs_and_places() -> None:
    content = read_config(VSCODE)
    assert inputs_of(content) == {"gh-token": ("GitHub token", True)}
    assert inputs_used(entries_of(content)) == ["gh-token"]
    values = Values(inputs={"gh-token": "ghp_x"}, workspace=Path("/srv"), home=Path("/home/me"))
    found = registrations(VSCODE, values)
    assert found["github"].config == {
        "base_url": "https://api.example.com/mcp//x",
        "headers": {"Authorization": "Bearer ghp_x", "X-Note": '/* kept */ " // kept'},
    }
    assert found["here"].config == {"command": "/srv/run", "args": ["/home/me", "a/b"]}
    assert set(registrations(VSCODE_SETTINGS)) == {"x"}


def test_an_input_nobody_gave_costs_only_its_server() -> None:
    unusable = planned(VSCODE, Values(workspace=Path("/w"), home=Path("/h")))
    assert [type(item) for item in unusable] == [Unusable, Registration]
    assert isinstance(unusable[0], Unusable)
    assert unusable[0].reason == "it needs the value of 'gh-token': give it with --input gh-token=VALUE"


def test_variables_are_filled_in_when_asked_and_can_not_smuggle_references() -> None:
    text = (
        '{"mcpServers": {"a": {"command": "x", "env": {"A": "${A}", "B": "${env:B}", "C": "${C:-later}"}}}}'
    )
    values = Values(environ={"A": "one", "B": "with ${HOME} in it"})
    assert registrations(text, values)["a"].config["env"] == {
        "A": "one", "B": "with $${HOME} in it", "C": "later",
    }  # fmt: skip
    left = planned(text, Values(environ={"A": "one"}))[0]
    assert left == Unusable("a", "the variable B is not set here")
    kept = planned(text)[0]
    assert isinstance(kept, Unusable)
    assert "--fill-variables" in kept.reason


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        (5, "its entry is not an object"),
        ({}, "it has neither a command nor a url"),
        ({"command": "  "}, "it has neither a command nor a url"),
        ({"command": ["a"]}, "it has neither a command nor a url"),
        ({"command": "a", "args": "b"}, "its args are not a list of texts"),
        ({"command": "a", "args": [{}]}, "its args are not a list of texts"),
        ({"command": "/opt/bin/trunkline", "args": ["stdio"]}, "it is this gateway itself"),
        ({"command": "uvx", "args": ["trunkline", "stdio", "--server", "x"]}, "it is this gateway itself"),
        ({"command": "trunkline", "args": ["serve"]}, None),
        ({"command": "a", "env": []}, None),
        ({"command": "a", "env": [1]}, "its env are not an object of texts"),
        ({"command": "a", "env": {"B": {}}}, "its env are not an object of texts"),
        ({"type": "websocket", "url": "ws://x"}, "its type 'websocket' is none that a gateway can reach"),
        ({"type": "http"}, "it has no url"),
        ({"type": "http", "url": 5}, "it has no url"),
        ({"type": 5}, "its type is not a text"),
        ({"url": "https://x/${selectedText}"}, None),
        ({"url": "https://x/${file:x}"}, "only its client knows what ${file:x} is"),
        ({"command": "a", "env": {"B": "\ud800"}}, "surrogate"),
        ({"url": "https://me:secret@mcp.example.com/"}, "must not carry a user name or password"),
        ({"url": "https://mcp.example.com/#x"}, "must not have a #fragment"),
        ({"url": "ftp://mcp.example.com/"}, "must begin with https://"),
        ({"url": "http://169.254.169.254/latest"}, "metadata"),
        ({"url": "https://x", "headers": {"Bad Name": "x"}}, "The name of a header"),
        ({"url": "https://x", "headers": {"Host": "x"}}, "belongs to the connection"),
        ({"command": "a", "env": {"1B": "x"}}, "The name of an environment variable"),
        ({"command": "a", "env": {"B": "${MCP_CREDENTIAL_KEY}"}}, "MCP_CREDENTIAL_KEY"),
    ],
)
def test_one_odd_entry_is_skipped_with_its_reason_and_the_others_stay(entry: Any, reason: str | None) -> None:
    odd, good = plan({"odd": entry, "good": {"command": "x"}}, Values())
    assert isinstance(good, Registration)
    if reason is None:
        assert isinstance(odd, Registration)
    else:
        assert isinstance(odd, Unusable)
        assert reason in odd.reason


def test_a_secret_is_not_repeated_in_the_reason() -> None:
    odd = plan({"odd": {"url": "https://me:hunter2hunter2@mcp.example.com/"}}, Values())[0]
    assert isinstance(odd, Unusable)
    assert "hunter2" not in odd.reason


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("https://10.1.2.3/mcp", "10.0.0.0/8): add its network to MCP_AGGREGATOR_ALLOWED_NETWORKS"),
        ("http://mcp.example.com/mcp", "MCP_AGGREGATOR_ALLOW_INSECURE_HTTP=true"),
        ("https://mcp.example.com/mcp", None),
        ("http://localhost:8000/mcp", None),
    ],
)
def test_what_only_a_setting_allows_is_planned_with_a_note(url: str, why: str | None) -> None:
    found = plan({"a": {"type": "http", "url": url}}, Values())[0]
    assert isinstance(found, Registration)
    assert (why is None) == (found.notes == ())
    assert why is None or why in found.notes[0]


def test_two_projects_with_a_server_of_one_name_lose_none() -> None:
    text = """{"mcpServers": {"shared": {"command": "s"}}, "projects": {
        "/a": {"mcpServers": {"p1": {"command": "one"}, "shared": {"command": "s"}}},
        "/b": {"mcpServers": {"p1": {"command": "two"}}},
        "/c": {"mcpServers": {"p1": {"command": "two"}, "p1-2": {"command": "three"}}}}}"""
    assert {
        name: (item.config["command"], item.original_name) for name, item in registrations(text).items()
    } == {
        "shared": ("s", "shared"),
        "p1": ("one", "p1"),
        "p1-2": ("two", "p1 (2)"),
        "p1-2-2": ("three", "p1-2"),
    }


def test_values_that_are_no_texts_become_texts() -> None:
    entry = {"command": "x", "args": [8080], "env": {"PORT": 8080, "DEBUG": True, "NOT": None}}
    found = plan({"a": entry}, Values())[0]
    assert isinstance(found, Registration)
    assert found.config == {"command": "x", "args": ["8080"], "env": {"PORT": "8080", "DEBUG": "true"}}


def test_what_is_disabled_or_cannot_be_taken_along_is_said() -> None:
    found = plan({"a": {"command": "x", "disabled": True, "cwd": "/srv", "envFile": ".env"}}, Values())[0]
    assert isinstance(found, Registration)
    assert not found.connect
    assert found.notes == (
        "its cwd (working folder) is left out",
        "its envFile (file of variables) is left out",
        "disabled there, so it is not connected",
    )


@pytest.mark.parametrize(
    ("original", "name"),
    [
        ("github", "github"),
        ("GitHub MCP", "github-mcp"),
        ("@scope/server.name", "scope-server-name"),
        ("Café_2", "cafe_2"),
        ("21st-dev/magic", "mcp-21st-dev-magic"),
        ("--x--", "x"),
        ("_private", "private"),
        ("a" * 300, "a" * 255),
        ("日本", ""),
        ("", ""),
    ],
)
def test_a_name_becomes_one_that_a_gateway_takes(original: str, name: str) -> None:
    assert normal_name(original) == name


def test_a_number_keeps_a_name_within_its_length() -> None:
    entries = {"a" * 255: {"command": "1"}, "a" * 256: {"command": "2"}}
    assert [len(item.name) for item in plan(entries, Values()) if isinstance(item, Registration)] == [
        255,
        255,
    ]


def test_two_names_that_become_one_are_told_apart_and_always_the_same_way() -> None:
    entries = {"A b": {"command": "1"}, "a-b": {"command": "2"}, "a.b": {"command": "3"}}
    first, again = plan(entries, Values()), plan(entries, Values())
    assert first == again
    assert [item.name for item in first if isinstance(item, Registration)] == ["a-b", "a-b-2", "a-b-3"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "The file is not JSON"),
        ("{'a': 1}", "The file is not JSON"),
        ('{"a": 1} /* open', "The file is not JSON"),
        ("[]", "The file is not a JSON object"),
        ("[" * 100_000, "nested too deeply"),
        (
            '{"other": {}, "mcpServers": []}',
            "There is no mcpServers (or servers) object in the file, only other",
        ),
        ("{}", "only nothing"),
    ],
)
def test_a_file_that_is_none_is_refused_in_one_line(text: str, message: str) -> None:
    with pytest.raises(UsageFailure) as refused:
        entries_of(read_config(text))
    assert message in refused.value.message
    assert "\n" not in refused.value.message


def test_an_empty_list_is_no_fault() -> None:
    assert planned('{"mcpServers": {}}') == []
