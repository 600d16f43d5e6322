"""The operator's file of named command lines, for a gateway whose API may start nothing else.

    [profiles.files]
    command = ["npx", "-y", "@modelcontextprotocol/server-filesystem", "{folder}"]
    env = { LOG_LEVEL = "info", TOKEN = "${FILES_TOKEN}" }
    parameters.folder = { type = "choice", choices = ["/srv/a", "/srv/b"] }

A registration names a profile and its parameters, nothing more: a value fills its place inside one argument,
never adds one, and never begins with `-`. There are no patterns, because a pattern can be made to hang.
Read once at the start; a bad file stops it with one line. `admission.py` asks; nothing here starts a process.
"""

import difflib
import re
import stat
import tomllib
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from trunkline.errors import FieldError, SettingsError, ValidationError
from trunkline.model import ProfileSpec, StdioSpec

Value = str | int | bool

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,63}")
_PLACE = re.compile(r"\{([a-z][a-z0-9_-]{0,63})\}")
_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RANGE = re.compile(r"(.)-(.)|(.)", re.DOTALL)
_LARGEST_FILE = 1 << 20
_LONGEST_VALUE = 4096
_PARAMETERS_LOC = ("body", "connection_config", "parameters")


class Parameter(Protocol):
    """One typed value. `default` None means that it must be given."""

    @property
    def default(self) -> Value | None: ...

    def render(self, value: object) -> str:
        """As it stands in the argument. Raises `ValueError` with what it must be."""
        ...


@dataclass(frozen=True, slots=True)
class TextParameter:
    max_length: int = 256
    characters: frozenset[str] | None = None
    default: str | None = None

    def render(self, value: object) -> str:
        if not isinstance(value, str):
            raise ValueError("must be a text")
        if not value or len(value) > self.max_length:
            raise ValueError(f"must have 1 to {self.max_length} characters")
        if value.startswith("-"):
            raise ValueError("must not begin with '-'")
        if any(unicodedata.category(letter).startswith("C") for letter in value):
            raise ValueError("must have no control or invisible characters")
        if self.characters is not None and not self.characters.issuperset(value):
            raise ValueError("has a character that this parameter does not take")
        return value


@dataclass(frozen=True, slots=True)
class IntegerParameter:
    min: int = 0
    max: int = 2**31 - 1
    default: int | None = None

    def render(self, value: object) -> str:
        if not isinstance(value, int) or isinstance(value, bool) or not self.min <= value <= self.max:
            raise ValueError(f"must be a whole number from {self.min} to {self.max}")
        return str(value)


@dataclass(frozen=True, slots=True)
class BooleanParameter:
    default: bool | None = None

    def render(self, value: object) -> str:
        if not isinstance(value, bool):
            raise ValueError("must be true or false")
        return "true" if value else "false"


@dataclass(frozen=True, slots=True)
class ChoiceParameter:
    choices: tuple[str, ...]
    default: str | None = None

    def render(self, value: object) -> str:
        if not isinstance(value, str) or value not in self.choices:
            raise ValueError("must be one of " + ", ".join(self.choices))
        return value


@dataclass(frozen=True, slots=True)
class Profile:
    command: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    parameters: Mapping[str, Parameter] = field(default_factory=dict)


class Profiles:
    def __init__(self, profiles: Mapping[str, Profile]) -> None:
        self._profiles = dict(profiles)

    @property
    def names(self) -> list[str]:
        return sorted(self._profiles)

    def expand(self, spec: ProfileSpec) -> StdioSpec:
        """The command line it stands for; variables in `env` are still references.

        Raises `ValidationError` for an unknown profile or parameter, or a value that does not fit.
        """
        profile = self._named(spec.profile)
        values = _rendered(profile, spec)
        command, *args = (
            _PLACE.sub(lambda place: values[place[1]], template) for template in profile.command
        )
        return StdioSpec(command, tuple(args), dict(profile.env))

    def _named(self, name: str) -> Profile:
        profile = self._profiles.get(name)
        if profile is None:
            known = f"there are: {', '.join(self.names)}" if self._profiles else "the gateway has none"
            raise ValidationError.at(
                "body", "connection_config", "profile", msg=f"There is no profile of this name; {known}"
            )
        return profile


def _rendered(profile: Profile, spec: ProfileSpec) -> dict[str, str]:
    faults: list[FieldError] = []
    values: dict[str, str] = {}
    for name in spec.parameters:
        if name not in profile.parameters:
            known = ", ".join(profile.parameters) or "none"
            message = f"Profile {spec.profile} has no such parameter; it takes: {known}"
            faults.append(FieldError((*_PARAMETERS_LOC, name), message))
    for name, parameter in profile.parameters.items():
        value = spec.parameters.get(name, parameter.default)
        if value is None:
            message = f"Profile {spec.profile} requires the parameter '{name}'"
            faults.append(FieldError((*_PARAMETERS_LOC, name), message))
            continue
        try:
            values[name] = parameter.render(value)
        except ValueError as error:
            faults.append(FieldError((*_PARAMETERS_LOC, name), f"Parameter '{name}' {error}"))
    if faults:
        raise ValidationError(faults)
    return values


def load_profiles(path: Path) -> Profiles:
    """Raises `SettingsError` with one line that names the file and the place in it."""
    try:
        if path.stat().st_mode & stat.S_IWOTH:
            raise SettingsError(f"Everybody may change {path}, which decides what runs here: use chmod o-w")
        content = path.read_bytes()
    except OSError as error:
        raise SettingsError(f"Cannot read the profiles file {path}: {error.strerror}") from None
    if len(content) > _LARGEST_FILE:
        raise SettingsError(f"The profiles file {path} is larger than 1 MiB")
    try:
        document = tomllib.loads(content.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"The profiles file {path} is not valid TOML: {error}") from None
    try:
        return Profiles(dict(_profiles_in(document)))
    except _Fault as fault:
        raise SettingsError(f"{path}: {fault}") from None


class _Fault(Exception):
    """What is wrong with the file, and where."""


def _profiles_in(document: Mapping[str, object]) -> Iterator[tuple[str, Profile]]:
    _only(document, ("profiles",), "the file")
    for name, table in _table(document.get("profiles", {}), "profiles").items():
        where = f"profiles.{name}"
        if not _NAME.fullmatch(name):
            raise _Fault(f"{where}: a name has lower-case letters, digits, - and _, and begins with a letter")
        yield name, _profile(_table(table, where), where)


def _profile(table: Mapping[str, object], where: str) -> Profile:
    _only(table, ("command", "env", "parameters", "description"), where)
    parameters = {
        name: _parameter(_table(declared, f"{where}.parameters.{name}"), f"{where}.parameters.{name}")
        for name, declared in _table(table.get("parameters", {}), f"{where}.parameters").items()
    }
    command = _texts(table.get("command"), f"{where}.command")
    _check_command(command, parameters, where)
    env = _table(table.get("env", {}), f"{where}.env")
    for name, value in env.items():
        if not _VARIABLE_NAME.fullmatch(name) or not isinstance(value, str) or "\0" in value:
            raise _Fault(f"{where}.env.{name} must be a name of a variable and a text")
    return Profile(command, {name: str(value) for name, value in env.items()}, parameters)


def _check_command(command: tuple[str, ...], parameters: Mapping[str, Parameter], where: str) -> None:
    if not command or not command[0]:
        raise _Fault(f"{where}.command must be a list that begins with the program")
    if _PLACE.search(command[0]):
        raise _Fault(f"{where}.command: the program itself cannot be a parameter")
    if any("${" in part or "\0" in part or "\n" in part for part in command):
        raise _Fault(f"{where}.command takes no ${{NAME}} and no line breaks: put variables into env")
    used = {place for part in command for place in _PLACE.findall(part)}
    for name in sorted(used - parameters.keys()):
        raise _Fault(f"{where}.command uses {{{name}}}, and parameters.{name} is not declared")
    for name in sorted(parameters.keys() - used):
        raise _Fault(f"{where}.parameters.{name} is declared, and command has no {{{name}}}")


def _parameter(table: Mapping[str, object], where: str) -> Parameter:
    if not _NAME.fullmatch(where.rpartition(".")[2]):
        raise _Fault(f"{where}: a name has lower-case letters, digits, - and _, and begins with a letter")
    kind = table.get("type")
    readers = {"string": _text, "integer": _integer, "boolean": _boolean, "choice": _choice}
    if not isinstance(kind, str) or kind not in readers:
        raise _Fault(f"{where}.type must be one of {', '.join(readers)}")
    parameter = readers[kind](table, where)
    if parameter.default is not None:
        try:
            parameter.render(parameter.default)
        except ValueError as error:
            raise _Fault(f"{where}.default {error}") from None
    return parameter


def _text(table: Mapping[str, object], where: str) -> Parameter:
    _only(table, ("type", "default", "max_length", "characters"), where)
    longest = _whole(table, "max_length", 256, where)
    if not 1 <= longest <= _LONGEST_VALUE:
        raise _Fault(f"{where}.max_length must be from 1 to {_LONGEST_VALUE}")
    characters = table.get("characters")
    if characters is None:
        return TextParameter(longest, None, _optional_text(table, where))
    if not isinstance(characters, str) or not characters:
        raise _Fault(f"{where}.characters must be a text such as 'A-Za-z0-9._-'")
    return TextParameter(longest, _character_class(characters, where), _optional_text(table, where))


def _character_class(text: str, where: str) -> frozenset[str]:
    """`a-z` is a range; a `-` at either end is itself."""
    letters: set[str] = set()
    for first, last, single in _RANGE.findall(text):
        if single:
            letters.add(single)
            continue
        if not (first.isascii() and last.isascii() and first.isalnum() and last.isalnum() and first <= last):
            raise _Fault(f"{where}.characters has a range that is none: {first}-{last}")
        letters.update(chr(code) for code in range(ord(first), ord(last) + 1))
    return frozenset(letters)


def _integer(table: Mapping[str, object], where: str) -> Parameter:
    _only(table, ("type", "default", "min", "max"), where)
    low, high = _whole(table, "min", 0, where), _whole(table, "max", 2**31 - 1, where)
    if low > high:
        raise _Fault(f"{where}.min is above {where}.max")
    return IntegerParameter(low, high, _whole(table, "default", 0, where) if "default" in table else None)


def _boolean(table: Mapping[str, object], where: str) -> Parameter:
    _only(table, ("type", "default"), where)
    default = table.get("default")
    if default is not None and not isinstance(default, bool):
        raise _Fault(f"{where}.default must be true or false")
    return BooleanParameter(default)


def _choice(table: Mapping[str, object], where: str) -> Parameter:
    _only(table, ("type", "default", "choices"), where)
    choices = _texts(table.get("choices"), f"{where}.choices")
    if not choices or any(not choice or choice.startswith("-") or "\0" in choice for choice in choices):
        raise _Fault(f"{where}.choices must be texts that do not begin with '-'")
    return ChoiceParameter(choices, _optional_text(table, where))


def _optional_text(table: Mapping[str, object], where: str) -> str | None:
    default = table.get("default")
    if default is not None and not isinstance(default, str):
        raise _Fault(f"{where}.default must be a text")
    return default


def _whole(table: Mapping[str, object], name: str, default: int, where: str) -> int:
    value = table.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool):
        raise _Fault(f"{where}.{name} must be a whole number")
    return value


def _texts(value: object, where: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(part, str) for part in value):
        raise _Fault(f"{where} must be a list of texts")
    return tuple(value)


def _table(value: object, where: str) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise _Fault(f"{where} must be a table")
    return value


def _only(table: Mapping[str, object], known: tuple[str, ...], where: str) -> None:
    for name in table:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"; did you mean {near[0]}?" if near else f"; it takes {', '.join(known)}"
            raise _Fault(f"{where} has an unknown key {name!r}{hint}")
