"""Proves the operator's profiles: a parameter fills its place and no more; a bad file says why."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.errors import SettingsError, ValidationError
from trunkline.model import ProfileSpec, StdioSpec
from trunkline.security.profiles import (
    BooleanParameter,
    ChoiceParameter,
    IntegerParameter,
    Profile,
    Profiles,
    TextParameter,
    load_profiles,
)

GOOD = """
[profiles.files]
description = "A folder"
command = ["npx", "-y", "@modelcontextprotocol/server-filesystem", "--limit={limit}", "{folder}", "{a}{b}"]
env = { LOG_LEVEL = "info", TOKEN = "${FILES_TOKEN}" }

[profiles.files.parameters]
folder = { type = "choice", choices = ["/srv/a", "/srv/b"] }
limit = { type = "integer", min = 1, max = 100, default = 10 }
a = { type = "string", max_length = 5, characters = "a-z._-" , default = "x" }
b = { type = "boolean", default = false }

[profiles.plain]
command = ["run-it"]
"""


def loaded(tmp_path: Path, text: str) -> Profiles:
    file = tmp_path / "profiles.toml"
    file.write_text(text)
    return load_profiles(file)


def refusal(tmp_path: Path, text: str) -> str:
    with pytest.raises(SettingsError) as refused:
        loaded(tmp_path, text)
    assert "\n" not in refused.value.detail
    assert str(tmp_path / "profiles.toml") in refused.value.detail
    return refused.value.detail


def test_a_profile_becomes_its_command_line(tmp_path: Path) -> None:
    profiles = loaded(tmp_path, GOOD)
    assert profiles.names == ["files", "plain"]
    given_all: dict[str, str | int | bool] = {"folder": "/srv/b", "limit": 5, "a": "q-.", "b": True}
    assert profiles.expand(ProfileSpec("files", given_all)) == StdioSpec(
        "npx",
        ("-y", "@modelcontextprotocol/server-filesystem", "--limit=5", "/srv/b", "q-.true"),
        {"LOG_LEVEL": "info", "TOKEN": "${FILES_TOKEN}"},
    )
    assert profiles.expand(ProfileSpec("files", {"folder": "/srv/a"})).args[2:] == (
        "--limit=10",
        "/srv/a",
        "xfalse",
    )
    assert profiles.expand(ProfileSpec("plain")) == StdioSpec("run-it")


@pytest.mark.parametrize(
    ("parameters", "name", "words"),
    [
        ({}, "folder", "requires the parameter 'folder'"),
        ({"folder": "/etc"}, "folder", "must be one of /srv/a, /srv/b"),
        ({"folder": 1}, "folder", "must be one of"),
        ({"folder": "/srv/a", "limit": 0}, "limit", "whole number from 1 to 100"),
        ({"folder": "/srv/a", "limit": 101}, "limit", "whole number from 1 to 100"),
        ({"folder": "/srv/a", "limit": True}, "limit", "whole number from 1 to 100"),
        ({"folder": "/srv/a", "limit": "5"}, "limit", "whole number from 1 to 100"),
        ({"folder": "/srv/a", "a": ""}, "a", "1 to 5 characters"),
        ({"folder": "/srv/a", "a": "abcdef"}, "a", "1 to 5 characters"),
        ({"folder": "/srv/a", "a": "-x"}, "a", "must not begin with '-'"),
        ({"folder": "/srv/a", "a": "A"}, "a", "does not take"),
        ({"folder": "/srv/a", "a": "a/b"}, "a", "does not take"),
        ({"folder": "/srv/a", "a": "a\n"}, "a", "control or invisible"),
        ({"folder": "/srv/a", "b": "true"}, "b", "true or false"),
        ({"folder": "/srv/a", "b": 1}, "b", "true or false"),
        ({"folder": "/srv/a", "c": 1}, "c", "has no such parameter"),
    ],
)
def test_a_value_that_does_not_fit_is_refused(
    tmp_path: Path, parameters: dict[str, Any], name: str, words: str
) -> None:
    """R-02"""
    with pytest.raises(ValidationError, match=words) as refused:
        loaded(tmp_path, GOOD).expand(ProfileSpec("files", parameters))
    assert [fault.loc for fault in refused.value.faults] == [
        ("body", "connection_config", "parameters", name)
    ]


def test_an_unknown_profile_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    """R-02"""
    with pytest.raises(ValidationError, match="there are: files, plain"):
        loaded(tmp_path, GOOD).expand(ProfileSpec("file"))
    with pytest.raises(ValidationError, match="the gateway has none"):
        Profiles({}).expand(ProfileSpec("file"))


@given(st.text(max_size=40))
def test_whatever_a_text_holds_it_stays_inside_its_argument(value: str) -> None:
    profile = Profile(("run", "{x}", "--in={x}"), {}, {"x": TextParameter()})
    try:
        spec = Profiles({"p": profile}).expand(ProfileSpec("p", {"x": value}))
    except ValidationError:
        return
    assert spec.command == "run"
    assert spec.args == (value, f"--in={value}")
    assert not spec.args[0].startswith("-")
    assert value.isprintable() or any(letter.isspace() for letter in value)
    assert "\0" not in value
    assert "\n" not in value


@pytest.mark.parametrize("value", ["{b}", "${HOME}", "$(id)", "`id`", "; id", "a b"])
def test_a_value_is_never_expanded_again(value: str) -> None:
    profile = Profile(("run", "{a}", "{b}"), {}, {"a": TextParameter(), "b": TextParameter()})
    spec = Profiles({"p": profile}).expand(ProfileSpec("p", {"a": value, "b": "second"}))
    assert spec.args == (value, "second")


@pytest.mark.parametrize(
    "value", ["a\0", "a\x1b[0m", "a\u202e", "a\u200b", "\ufeffa", "a\ud800", "a\U000e0041"]
)
def test_control_and_invisible_characters_are_refused(value: str) -> None:
    with pytest.raises(ValueError, match="control or invisible"):
        TextParameter().render(value)


def test_the_kinds_render_as_the_file_means_them() -> None:
    assert IntegerParameter(-5, 5).render(-5) == "-5"
    assert BooleanParameter().render(True) == "true"
    assert ChoiceParameter(("a",)).render("a") == "a"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[profiles.x", "is not valid TOML"),
        ("profile = 1", "unknown key 'profile'; did you mean profiles?"),
        ("profiles = 1", "profiles must be a table"),
        ("[profiles.X]\ncommand=['a']", "profiles.X: a name has lower-case letters"),
        ("[profiles.x]", "profiles.x.command must be a list of texts"),
        ("[profiles.x]\ncommand = 'npx -y'", "profiles.x.command must be a list of texts"),
        ("[profiles.x]\ncommand = []", "begins with the program"),
        ("[profiles.x]\ncommand = ['']", "begins with the program"),
        ("[profiles.x]\ncommand = ['a', 1]", "must be a list of texts"),
        ("[profiles.x]\ncommand = ['{p}']\nparameters.p.type='string'", "program itself cannot be"),
        ("[profiles.x]\ncommand = ['a', '{p}']", "parameters.p is not declared"),
        ("[profiles.x]\ncommand = ['a']\nparameters.p.type='string'", "command has no {p}"),
        ("[profiles.x]\ncommand = ['a', '${HOME}']", "put variables into env"),
        ("[profiles.x]\ncommand = ['a', \"b\\u0000\"]", "no line breaks"),
        ("[profiles.x]\ncommand = ['a']\ncomand = 1", "did you mean command?"),
        ("[profiles.x]\ncommand = ['a']\nenv = { A = 1 }", "profiles.x.env.A must be"),
        ("[profiles.x]\ncommand = ['a']\nenv = { \"1A\" = 'b' }", "profiles.x.env.1A must be"),
        ("[profiles.x]\ncommand = ['a','{p}']\nparameters.p = {}", "type must be one of string, integer"),
        ("[profiles.x]\ncommand = ['a','{p}']\nparameters.p.type = 'regex'", "type must be one of"),
        ("[profiles.x]\ncommand = ['a','{p}']\nparameters.p = {type='string', pattern='.*'}", "'pattern'"),
        ("[profiles.x]\ncommand = ['a','{p}']\nparameters.p = {type='string', max_length=0}", "from 1 to"),
        ("[profiles.x]\ncommand = ['a','{p}']\nparameters.p = {type='string', characters='z-a'}", "z-a"),
        ("[profiles.x]\ncommand = ['a','{p}']\nparameters.p = {type='string', characters=''}", "characters"),
        ("[profiles.x]\ncommand = ['a','{p}']\nparameters.p = {type='string', default='-x'}", "not begin"),
        ("[profiles.x]\ncommand = ['a','{p}']\nparameters.p = {type='string', default=1}", "must be a text"),
        ("[profiles.x]\ncommand = ['a','{p}']\nparameters.p = {type='integer', min='1'}", "min must be"),
        ("[profiles.x]\ncommand = ['a','{p}']\nparameters.p = {type='integer', min=2, max=1}", "is above"),
        ("[profiles.x]\ncommand = ['a','{p}']\nparameters.p = {type='boolean', default=1}", "true or false"),
        ("[profiles.x]\ncommand = ['a','{p}']\nparameters.p = {type='choice', choices=[]}", "choices"),
        ("[profiles.x]\ncommand = ['a','{p}']\nparameters.p = {type='choice', choices=['-x']}", "begin with"),
        ("[profiles.x]\ncommand = ['a','{p}']\nparameters.p = 1", "parameters.p must be a table"),
        ("[profiles.x]\ncommand = ['a','{p}']\nparameters.P.type = 'string'", "a name has lower-case"),
        ("# " + "x" * (1 << 20), "larger than 1 MiB"),
    ],
)
def test_a_bad_file_stops_the_start_with_one_line(tmp_path: Path, text: str, words: str) -> None:
    assert words in refusal(tmp_path, text)


def test_a_file_that_cannot_be_trusted_or_read_stops_the_start(tmp_path: Path) -> None:
    file = tmp_path / "profiles.toml"
    with pytest.raises(SettingsError, match="Cannot read"):
        load_profiles(file)
    with pytest.raises(SettingsError, match="Cannot read"):
        load_profiles(tmp_path)
    file.write_text(GOOD)
    file.chmod(0o666)
    with pytest.raises(SettingsError, match="chmod o-w"):
        load_profiles(file)
    file.write_bytes(b"\xff")
    file.chmod(0o600)
    with pytest.raises(SettingsError, match="not valid TOML"):
        load_profiles(file)
