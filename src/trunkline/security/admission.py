"""What may be registered and how it becomes reachable: the `SpecPolicy` port.

`admit` judges every value of a spec and looks at no variable; `resolve` judges again, because settings may
have become stricter, and then fills in profiles and `${VAR}`. STDIO is a licence to run programs, so its
mode decides first. Names of environment variables are not restricted: where any command line is allowed,
`LD_PRELOAD` or `NODE_OPTIONS` gives nothing that the command does not, and where it is not, the profile
states the environment. The base environment of a process is added in `upstream/stdio.py`.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from urllib.parse import parse_qsl, quote

from trunkline.errors import FieldError, Forbidden, ValidationError
from trunkline.model import MASK, HttpSpec, ProfileSpec, ReachableSpec, ServerSpec, SseSpec, StdioSpec
from trunkline.ports import OutboundPolicy
from trunkline.security.configuration import MOST_ENTRIES, MOST_FAULTS, spec_to_json
from trunkline.security.profiles import Profiles, load_profiles
from trunkline.security.secrecy import secret_values, tells_of_secret
from trunkline.security.urls import split_url
from trunkline.security.variables import Filled, VariableFault, Variables
from trunkline.settings import Settings, StdioMode

LARGEST_CONFIG = 64 * 1024
LONGEST_COMMAND = 4096
LONGEST_NAME = 256

_CONFIG = ("body", "connection_config")
_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"(?:[\x21-\x7e](?:[\x20-\x7e\t]*[\x21-\x7e])?)?")
_OF_THE_CONNECTION = frozenset({
    "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te",
    "trailer", "transfer-encoding", "upgrade", "expect", "host", "content-length",
})  # fmt: skip
_OF_THE_PROTOCOL = frozenset({
    "mcp-session-id", "mcp-protocol-version", "mcp-method", "mcp-name", "last-event-id",
})  # fmt: skip

Loc = tuple[str | int, ...]


class _Faults:
    """What is wrong so far; raised together, so that one answer names everything."""

    def __init__(self) -> None:
        self._found: list[FieldError] = []

    def add(self, loc: Loc, message: str) -> None:
        if len(self._found) < MOST_FAULTS:
            self._found.append(FieldError(loc, message))

    def finish(self) -> None:
        if self._found:
            raise ValidationError(self._found)


class Admission:
    def __init__(
        self, *, stdio: StdioMode, profiles: Profiles, variables: Variables, outbound: OutboundPolicy
    ) -> None:
        self._stdio = stdio
        self._profiles = profiles
        self._variables = variables
        self._outbound = outbound

    @classmethod
    def from_settings(
        cls, settings: Settings, outbound: OutboundPolicy, environ: Mapping[str, str] = os.environ
    ) -> "Admission":
        """Reads the operator's profiles. Raises `SettingsError`."""
        return cls(
            stdio=settings.stdio_mode,
            profiles=load_profiles(settings.stdio_profiles) if settings.stdio_profiles else Profiles({}),
            variables=Variables(settings.allowed_variables, environ),
            outbound=outbound,
        )

    # Judging

    def admit(self, spec: ServerSpec) -> None:
        faults = _Faults()
        if len(spec_to_json(spec)) > LARGEST_CONFIG:
            raise ValidationError.at(*_CONFIG, msg="connection_config is larger than 64 KiB")
        match spec:
            case StdioSpec() | ProfileSpec():
                self._admit_mode(spec)
                self._admit_process(spec, faults)
            case SseSpec():
                self._admit_endpoint(spec.url, (*_CONFIG, "url"), spec.headers, faults)
            case HttpSpec():
                self._admit_endpoint(spec.base_url, (*_CONFIG, "base_url"), spec.headers, faults)
        faults.finish()

    def admit_url(self, url: str, *loc: str) -> None:
        """For an address that is kept and shown in clear: it takes neither `${VAR}` nor a secret."""
        faults = _Faults()
        if "${" in url:
            faults.add(loc, "This address takes no ${NAME}")
        self._judge_url(url, loc, faults)
        parts = split_url(url)
        for name, _ in parse_qsl(parts.query or "", keep_blank_values=True) if parts else ():
            if tells_of_secret(name):
                faults.add(loc, f"This address is shown to readers, and '{name[:64]}' seems to be a secret")
        faults.finish()

    def _admit_mode(self, spec: StdioSpec | ProfileSpec) -> None:
        if self._stdio == "off":
            raise Forbidden(
                "STDIO servers are off on this gateway (the default unless it is bound to loopback): "
                "MCP_AGGREGATOR_STDIO=profiles allows the command lines of the operator's file, and "
                "MCP_AGGREGATOR_STDIO=any allows every command"
            )
        if self._stdio == "profiles" and isinstance(spec, StdioSpec):
            known = ", ".join(self._profiles.names) or "none yet"
            raise Forbidden(
                "This gateway starts only the operator's command lines (MCP_AGGREGATOR_STDIO=profiles): name "
                f"one in 'profile' instead of 'command'. There are: {known}"
            )

    def _admit_process(self, spec: StdioSpec | ProfileSpec, faults: _Faults) -> None:
        if isinstance(spec, ProfileSpec):
            for name, value in spec.parameters.items():
                if isinstance(value, str) and (MASK in value or "${" in value):
                    faults.add((*_CONFIG, "parameters", name), "A parameter takes no ${NAME} and no mask")
            faults.finish()
            self._admit_table("env", self._profiles.expand(spec).env, faults)
            return
        self._admit_argument(spec.command, (*_CONFIG, "command"), faults)
        if "\n" in spec.command or "\r" in spec.command:
            faults.add((*_CONFIG, "command"), "A command takes no line break")
        if not 0 < len(spec.command) <= LONGEST_COMMAND or spec.command != spec.command.strip():
            message = f"A command has 1 to {LONGEST_COMMAND} characters and no space at its ends"
            faults.add((*_CONFIG, "command"), message)
        if "${" in spec.command:
            faults.add((*_CONFIG, "command"), "'command' takes no ${NAME}: only args and env do")
        if len(spec.args) > MOST_ENTRIES:
            faults.add((*_CONFIG, "args"), f"There are more than {MOST_ENTRIES} args")
        for index, arg in enumerate(spec.args):
            loc = (*_CONFIG, "args", index)
            self._admit_argument(arg, loc, faults)
            self._admit_references(arg, loc, faults)
        self._admit_table("env", spec.env, faults)

    def _admit_argument(self, text: str, loc: Loc, faults: _Faults) -> None:
        if "\0" in text:
            faults.add(loc, "An argument takes no NUL")
        _refuse_mask(text, loc, faults)

    def _admit_endpoint(self, url: str, loc: Loc, headers: Mapping[str, str], faults: _Faults) -> None:
        parts = split_url(url)
        if "${" in (parts.authority if parts else url):
            faults.add(loc, "${NAME} may stand in the path and the query of a url, never in its host")
        else:
            self._admit_references(url, loc, faults)
            self._judge_url(url, loc, faults)
        _refuse_mask(url, loc, faults)
        self._admit_table("headers", headers, faults)
        seen: set[str] = set()
        for name in headers:
            if name.lower() in seen:
                faults.add((*_CONFIG, "headers", name), "This header is given twice")
            seen.add(name.lower())

    def _judge_url(self, url: str, loc: Loc, faults: _Faults) -> None:
        try:
            self._outbound.judge(url)
        except Forbidden as refusal:
            faults.add(loc, refusal.detail)

    def _admit_table(self, field: str, table: Mapping[str, str], faults: _Faults) -> None:
        """`env` or `headers`."""
        if len(table) > MOST_ENTRIES:
            faults.add((*_CONFIG, field), f"There are more than {MOST_ENTRIES} {field}")
        for name, value in table.items():
            loc = (*_CONFIG, field, name)
            wrong_name = _wrong_variable(name) if field == "env" else _wrong_header(name)
            if wrong_name:
                faults.add(loc, wrong_name)
            wrong_value = _wrong_value(field, value)
            if wrong_value:
                faults.add(loc, wrong_value)
            _refuse_mask(value, loc, faults)
            self._admit_references(value, loc, faults)

    def _admit_references(self, text: str, loc: Loc, faults: _Faults) -> None:
        try:
            self._variables.check(text)
        except VariableFault as fault:
            faults.add(loc, str(fault))

    # Resolving

    def resolve(self, spec: ServerSpec) -> tuple[ReachableSpec, frozenset[str]]:
        """Also raises `Forbidden` when the settings have come to exclude it since it was registered."""
        self.admit(spec)
        filling = _Filling(self._variables)
        reachable: ReachableSpec
        match spec:
            case StdioSpec():
                args = tuple(
                    filling.argument(arg, (*_CONFIG, "args", index)) for index, arg in enumerate(spec.args)
                )
                reachable = replace(spec, args=args, env=filling.table("env", spec.env))
                secrets = secret_values(named=reachable.env, args=(reachable.command, *reachable.args))
            case ProfileSpec():
                expanded = self._profiles.expand(spec)
                reachable = replace(expanded, env=filling.table("env", expanded.env))
                secrets = secret_values(
                    named=_telling_parameters(spec) | dict(reachable.env),
                    args=(reachable.command, *reachable.args),
                )
            case SseSpec():
                headers = filling.table("headers", spec.headers)
                reachable = replace(spec, url=filling.url(spec.url, (*_CONFIG, "url")), headers=headers)
                secrets = secret_values(named=headers, url=reachable.url)
            case HttpSpec():
                headers = filling.table("headers", spec.headers)
                url = filling.url(spec.base_url, (*_CONFIG, "base_url"))
                reachable = replace(spec, base_url=url, headers=headers)
                secrets = secret_values(named=headers, url=url)
        filling.finish()
        return reachable, secrets | filling.values


class _Filling:
    """Fills in variables and judges what came out; a fault names the variable, never what it holds."""

    def __init__(self, variables: Variables) -> None:
        self._variables = variables
        self._faults = _Faults()
        self.values: frozenset[str] = frozenset()

    def finish(self) -> None:
        self._faults.finish()

    def url(self, text: str, loc: Loc) -> str:
        """Values are percent-encoded, so that none can become another part of the url."""
        return self._fill(text, loc, encoded=True).text

    def argument(self, text: str, loc: Loc) -> str:
        return self._fill(text, loc).text

    def table(self, field: str, table: Mapping[str, str]) -> dict[str, str]:
        filled = {name: self._fill(value, (*_CONFIG, field, name)).text for name, value in table.items()}
        for name, value in filled.items():
            if _wrong_value(field, value):
                loc = (*_CONFIG, field, name)
                self._faults.add(
                    loc, f"A variable in {_where(loc)} holds a character that is not allowed there"
                )
        return filled

    def _fill(self, text: str, loc: Loc, *, encoded: bool = False) -> Filled:
        try:
            filled = self._variables.fill(text, _percent_encoded) if encoded else self._variables.fill(text)
        except VariableFault as fault:
            self._faults.add(loc, str(fault))
            return Filled("", frozenset())
        self.values |= filled.values
        return filled


def _telling_parameters(spec: ProfileSpec) -> dict[str, str]:
    return {
        name: value
        for name, value in spec.parameters.items()
        if isinstance(value, str) and tells_of_secret(name)
    }


def _percent_encoded(value: str) -> str:
    return quote(value, safe="")


def _where(loc: Loc) -> str:
    return ".".join(str(part) for part in loc[2:])


def _refuse_mask(text: str, loc: Loc, faults: _Faults) -> None:
    if MASK in text:
        faults.add(loc, f"{MASK} stands for a hidden value and is none itself: send the value in full")


def _wrong_variable(name: str) -> str | None:
    if len(name) > LONGEST_NAME or not _VARIABLE_NAME.fullmatch(name):
        return "The name of an environment variable has letters, digits and _, and begins with no digit"
    return None


def _wrong_header(name: str) -> str | None:
    lower = name.lower()
    if len(name) > LONGEST_NAME or not _HEADER_NAME.fullmatch(name):
        return "The name of a header has only letters, digits and - (RFC 9110 token characters)"
    if lower in _OF_THE_CONNECTION:
        return f"{name} belongs to the connection: the gateway sets it itself"
    if lower in _OF_THE_PROTOCOL or lower.startswith("mcp-param-"):
        return f"{name} belongs to the protocol: the gateway sets it itself"
    return None


def _wrong_value(field: str, value: str) -> str | None:
    if field == "env":
        return "An environment variable takes no NUL" if "\0" in value else None
    if _HEADER_VALUE.fullmatch(value) is None:
        return (
            "The value of a header has only visible ASCII characters, and no space or line break at its ends"
        )
    return None
