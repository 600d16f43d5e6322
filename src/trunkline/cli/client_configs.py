"""Reads the server lists that MCP clients keep: Claude Desktop, Claude Code, Cursor, VS Code and their kin.

Pure, but for the files it is given. Each entry becomes a `Registration` ready to be sent, or an `Unusable`
that says why not; one odd entry never costs the others. What the clients write as `${env:VAR}` becomes the
gateway's `${VAR}`; what only the client can know (`${input:…}`) has to be given.
"""

import itertools
import json
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from trunkline.cli.failures import UsageFailure
from trunkline.errors import Forbidden, ValidationError
from trunkline.security.admission import Admission
from trunkline.security.configuration import masked, read_spec
from trunkline.security.outbound import Outbound
from trunkline.security.profiles import Profiles
from trunkline.security.variables import Variables

LONGEST_NAME = 255
_REMOTE_TRANSPORTS = {
    "sse": "SSE",
    "http": "HTTP",
    "streamable-http": "HTTP",
    "streamablehttp": "HTTP",
    "streamable_http": "HTTP",
}
_LEFT_OUT = {"cwd": "working folder", "envFile": "file of variables"}
_PLACEHOLDER = re.compile(r"\$\{([^{}]*)\}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OUTBOUND_BY_DEFAULT = Outbound(allowed_networks=(), on_loopback=True, allow_insecure_http=False)
_ADMITS_MOST = Admission(
    stdio="any",
    profiles=Profiles({}),
    variables=Variables(["*"], {}),
    outbound=Outbound(allowed_networks=("0.0.0.0/0", "::/0"), on_loopback=True, allow_insecure_http=True),
)
"""As a gateway that allows all that can be allowed: what this refuses, every gateway does."""


@dataclass(frozen=True, slots=True)
class Registration:
    name: str
    original_name: str
    transport: str
    config: Mapping[str, Any]
    shown: Mapping[str, Any]
    """The configuration with its secrets masked."""
    connect: bool = True
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Unusable:
    original_name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Values:
    """What the placeholders of a file stand for."""

    inputs: Mapping[str, str] = field(default_factory=dict)
    environ: Mapping[str, str] | None = None
    """When given, `${VAR}` is filled in from here; else it stays and the gateway resolves it."""
    workspace: Path | None = None
    home: Path | None = None


class _Refused(ValueError):
    pass


def read_config(text: str) -> dict[str, Any]:
    """JSON as editors write it: comments and trailing commas are passed over. Raises `UsageFailure`."""
    try:
        content = json.loads(without_comments(text.removeprefix("\ufeff")))
    except RecursionError:
        raise UsageFailure("The file is nested too deeply to be read") from None
    except ValueError as error:
        raise UsageFailure(f"The file is not JSON: {error}") from None
    if not isinstance(content, dict):
        raise UsageFailure("The file is not a JSON object with mcpServers (or servers) in it")
    return content


def without_comments(text: str) -> str:
    """The same text with comments and trailing commas blanked, so that positions in errors stay true."""
    kept: list[str] = []
    comma = -1
    for kind, piece in _pieces(text):
        if kind == "comment":
            kept.append(re.sub(r"[^\n]", " ", piece))
            continue
        if piece in ("]", "}") and comma >= 0:
            kept[comma] = " "
        if not piece.isspace():
            comma = len(kept) if piece == "," else -1
        kept.append(piece)
    return "".join(kept)


_PIECE = re.compile(r'(?P<string>"(?:\\.|[^"\\])*")|(?P<comment>//[^\n]*|/\*.*?\*/)|(?P<other>.)', re.DOTALL)


def _pieces(text: str) -> Iterator[tuple[str, str]]:
    for found in _PIECE.finditer(text):
        yield str(found.lastgroup), found.group()


def entries_of(content: Mapping[str, Any]) -> dict[str, Any]:
    """The servers of a file, wherever its client keeps them; another of the same name gets a number.

    Raises `UsageFailure`.
    """
    found: dict[str, Any] = {}
    known = False
    for place in _places(content):
        if isinstance(place, dict):
            known = True
            for name, entry in place.items():
                found.setdefault(_free_or_same(name, entry, found), entry)
    if not known:
        keys = ", ".join(list(content)[:6]) or "nothing"
        raise UsageFailure(f"There is no mcpServers (or servers) object in the file, only {keys}")
    return found


def _free_or_same(name: str, entry: Any, found: Mapping[str, Any]) -> str:
    """Two projects may each have a server of this name, and one may have the other's."""
    numbered = (name if number == 1 else f"{name} ({number})" for number in itertools.count(1))
    return next(each for each in numbered if found.get(each, entry) == entry)


def _places(content: Mapping[str, Any]) -> Iterator[Any]:
    yield content.get("mcpServers")
    yield content.get("servers")
    for outer in (content.get("mcp"), content.get("mcp.servers")):
        if isinstance(outer, dict):
            yield outer.get("servers", outer if outer is content.get("mcp.servers") else None)
    projects = content.get("projects")
    for project in projects.values() if isinstance(projects, dict) else ():
        if isinstance(project, dict) and project.get("mcpServers"):
            yield project["mcpServers"]


def inputs_of(content: Mapping[str, Any]) -> dict[str, tuple[str, bool]]:
    """VS Code's `inputs`: id -> its question, and whether the answer is a secret."""
    listed = content.get("inputs") or _inner(content, "mcp").get("inputs")
    asked: dict[str, tuple[str, bool]] = {}
    for entry in listed if isinstance(listed, list) else ():
        if isinstance(entry, dict) and isinstance(entry.get("id"), str):
            question = entry.get("description")
            asked[entry["id"]] = (
                question if isinstance(question, str) else entry["id"],
                bool(entry.get("password")),
            )
    return asked


def inputs_used(entries: Mapping[str, Any]) -> list[str]:
    """The ids of `${input:id}` that occur, in order."""
    found = re.findall(r"\$\{input:([^{}]+)\}", json.dumps(entries))
    return list(dict.fromkeys(found))


def _inner(content: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = content.get(key)
    return value if isinstance(value, dict) else {}


def plan(entries: Mapping[str, Any], values: Values) -> list[Registration | Unusable]:
    """Every entry, in order, judged; two that end in the same name are told apart by a number."""
    planned: list[Registration | Unusable] = []
    taken: set[str] = set()
    for original, entry in entries.items():
        try:
            registration = _registration(original, entry, values, taken)
        except _Refused as refused:
            planned.append(Unusable(original, str(refused)))
            continue
        taken.add(registration.name)
        planned.append(registration)
    return planned


def normal_name(original: str) -> str:
    """The name a gateway takes: `^[a-z][a-z0-9_-]*$`. Empty when nothing of it can be kept."""
    ascii_only = unicodedata.normalize("NFKD", original).encode("ascii", "ignore").decode().lower()
    name = re.sub(r"[^a-z0-9_-]+", "-", ascii_only).strip("-_")
    if name and not name[0].isalpha():
        name = f"mcp-{name}"
    return name[:LONGEST_NAME]


def _registration(original: str, entry: Any, values: Values, taken: set[str]) -> Registration:
    if not isinstance(entry, dict):
        raise _Refused("its entry is not an object")
    notes: list[str] = []
    name = normal_name(original)
    if not name:
        raise _Refused("no name can be made of it: names are a-z, 0-9, - and _, a letter first")
    if name in taken:
        number = next(n for n in range(2, len(taken) + 3) if f"{name}-{n}" not in taken)
        notes.append(f"another entry is called {name} too")
        name = f"{name[: LONGEST_NAME - len(f'-{number}')]}-{number}"
    fill = _filler(values, notes)
    transport, config = _transport_and_config(entry, fill, notes)
    try:
        spec = read_spec(transport, config)
        _ADMITS_MOST.admit(spec)
        shown = masked(spec)
    except (ValidationError, Forbidden) as error:
        raise _Refused(f"no gateway takes it: {error.detail}") from None
    notes += _depends(config.get("url") or config.get("base_url"))
    for key, words in _LEFT_OUT.items():
        if entry.get(key):
            notes.append(f"its {key} ({words}) is left out")
    disabled = entry.get("disabled") is True or entry.get("enabled") is False
    if disabled:
        notes.append("disabled there, so it is not connected")
    return Registration(name, original, transport, config, shown, not disabled, tuple(dict.fromkeys(notes)))


def _depends(url: str | None) -> Iterator[str]:
    """What is refused unless the gateway's operator allows it, which cannot be known here."""
    try:
        if url is not None:
            _OUTBOUND_BY_DEFAULT.judge(url)
    except Forbidden as refusal:
        yield f"the gateway refuses it unless it is set to allow it. {refusal.detail}"


def _transport_and_config(
    entry: Mapping[str, Any], fill: Callable[[str], str], notes: list[str]
) -> tuple[str, dict[str, Any]]:
    kind = entry.get("type") or entry.get("transport") or entry.get("transportType")
    if kind is not None and not isinstance(kind, str):
        raise _Refused("its type is not a text")
    url = next((entry[key] for key in ("url", "serverUrl", "httpUrl") if entry.get(key)), None)
    spelled = (kind or ("stdio" if url is None else "")).lower()
    if spelled == "stdio":
        return "STDIO", _stdio(entry, fill)
    if spelled not in _REMOTE_TRANSPORTS and spelled != "":
        raise _Refused(f"its type {kind!r} is none that a gateway can reach (stdio, sse, http)")
    if not isinstance(url, str):
        raise _Refused("it has no url")
    address = fill(url)
    if spelled:
        transport = _REMOTE_TRANSPORTS[spelled]
    else:
        transport = "SSE" if urlsplit(address).path.rstrip("/").endswith("/sse") else "HTTP"
        if "httpUrl" in entry:
            transport = "HTTP"
        else:
            notes.append(f"no type is given; {transport} by its address")
    config: dict[str, Any] = {"url" if transport == "SSE" else "base_url": address}
    if headers := _texts(entry, "headers", fill):
        config["headers"] = headers
    return transport, config


def _stdio(entry: Mapping[str, Any], fill: Callable[[str], str]) -> dict[str, Any]:
    command = entry.get("command")
    if not isinstance(command, str) or not command.strip():
        raise _Refused("it has neither a command nor a url")
    args = entry.get("args") or []
    if not isinstance(args, list) or not all(isinstance(arg, str | int | float) for arg in args):
        raise _Refused("its args are not a list of texts")
    words = [Path(command.strip()).stem, *args]
    if ("trunkline", "stdio") in itertools.pairwise(words):
        raise _Refused("it is this gateway itself")
    config: dict[str, Any] = {"command": fill(command)}
    if args:
        config["args"] = [fill(str(arg)) for arg in args]
    if env := _texts(entry, "env", fill):
        config["env"] = env
    return config


def _texts(entry: Mapping[str, Any], key: str, fill: Callable[[str], str]) -> dict[str, str]:
    given = entry.get(key) or {}
    if not isinstance(given, dict):
        raise _Refused(f"its {key} are not an object of texts")
    texts: dict[str, str] = {}
    for name, value in given.items():
        if value is None:
            continue
        if isinstance(value, bool):
            value = str(value).lower()
        if not isinstance(value, str | int | float):
            raise _Refused(f"its {key} are not an object of texts")
        texts[name] = fill(str(value))
    return texts


def _filler(values: Values, notes: list[str]) -> Callable[[str], str]:
    """Replaces the placeholders of one entry. Raises `_Refused` for one nobody here can know."""

    def one(found: re.Match[str]) -> str:
        inside = found.group(1)
        kind, colon, name = inside.partition(":")
        if kind == "input" and colon:
            if name not in values.inputs:
                raise _Refused(f"it needs the value of {name!r}: give it with --input {name}=VALUE")
            return _literal(values.inputs[name])
        if kind == "env" and colon:
            return _variable(name, None, values, notes)
        if inside in ("workspaceFolder", "workspaceRoot") and values.workspace:
            return str(values.workspace)
        if inside == "userHome" and values.home:
            return str(values.home)
        if inside in ("pathSeparator", "/"):
            return "/"
        name, has_default, default = inside.partition(":-")
        if _VARIABLE.fullmatch(name) and not name.startswith("workspace"):
            return _variable(name, default if has_default else None, values, notes)
        raise _Refused(f"only its client knows what {found.group()} is")

    return lambda text: _PLACEHOLDER.sub(one, text)


def _variable(name: str, default: str | None, values: Values, notes: list[str]) -> str:
    if not _VARIABLE.fullmatch(name):
        raise _Refused(f"${{{name}}} names no variable")
    if values.environ is not None:
        found = values.environ.get(name, default)
        if found is None:
            raise _Refused(f"the variable {name} is not set here")
        return _literal(found)
    if default is not None:
        raise _Refused(
            f"${{{name}:-…}} has a default, which the gateway does not know: import with --fill-variables"
        )
    notes.append(f"the gateway must be allowed to read {name} (MCP_AGGREGATOR_ALLOWED_VARIABLES)")
    return f"${{{name}}}"


def _literal(value: str) -> str:
    """Written so that the gateway takes it as it is, whatever is in it."""
    return value.replace("${", "$${")
