"""How a server is reached: from flags to a `connection_config`, and from a masked one to a line of text.

Asks nobody and shows nothing; the verbs in `servers.py` and `importing.py` do.
"""

import json
from collections.abc import Mapping
from typing import Any

from trunkline.cli.failures import Failure, UsageFailure

_WHOLE = {
    "STDIO": "--env K=V -- COMMAND ARGS",
    "HTTP": "--http URL --header 'K: V'",
    "SSE": "--sse URL --header 'K: V'",
}


def connection_config(
    stdio: bool,
    command: list[str] | None,
    http: str | None,
    sse: str | None,
    header: list[str] | None,
    env: list[str] | None,
    profile: str | None,
    parameter: list[str] | None,
) -> tuple[str, dict[str, Any]]:
    """The transport and its configuration, as flags say them. Raises `UsageFailure`."""
    ways = [bool(command) or (stdio and not profile), http is not None, sse is not None, bool(profile)]
    if sum(ways) != 1:
        raise UsageFailure(
            "Say how to reach the server, in one way: a command behind --, --http URL, --sse URL "
            "or --profile NAME"
        )
    if profile:
        return "STDIO", _of_profile(profile, parameter, header, env)
    if parameter:
        raise UsageFailure("--parameter is for a --profile")
    if http is not None or sse is not None:
        if env:
            raise UsageFailure("--env is for a command; a server at an address takes --header")
        config: dict[str, Any] = {"base_url": http} if http is not None else {"url": sse}
        if header:
            config["headers"] = _headers(header)
        return ("HTTP" if http is not None else "SSE"), config
    if header:
        raise UsageFailure("--header is for a server at an address; a command takes --env")
    if not command:
        raise UsageFailure("--stdio needs a command: trunkline servers add NAME -- COMMAND ARGS")
    config = {"command": command[0], "args": command[1:]}
    if env:
        config["env"] = _variables(env)
    return "STDIO", config


def _of_profile(
    profile: str, parameter: list[str] | None, header: list[str] | None, env: list[str] | None
) -> dict[str, Any]:
    if header or env:
        raise UsageFailure("A profile says what is sent: it takes neither --header nor --env")
    config: dict[str, Any] = {"profile": profile}
    if parameter:
        config["parameters"] = dict(map(_parameter, parameter))
    return config


def _parameter(pair: str) -> tuple[str, Any]:
    """`key=text`, or `key:=JSON` for a number, true or false."""
    name, equals, value = pair.partition("=")
    if not equals or not name.removesuffix(":"):
        raise UsageFailure(f"--parameter must be NAME=value (or NAME:=JSON), and {pair!r} is not")
    if not name.endswith(":"):
        return name, value
    try:
        return name.removesuffix(":"), json.loads(value)
    except (ValueError, RecursionError):
        raise UsageFailure(f"--parameter {name}= needs JSON behind it, and {value!r} is none") from None


def changed_config(
    found: dict[str, Any],
    command: list[str] | None,
    http: str | None,
    sse: str | None,
    header: list[str] | None,
    env: list[str] | None,
) -> dict[str, Any]:
    """The masked configuration with the changes in it: what stays masked stays as it is sealed."""
    transport = found["transport_type"]
    needs = {"STDIO": (command, env), "HTTP": (http, header), "SSE": (sse, header)}[transport]
    if [bool(part) for part in needs].count(True) != sum(map(bool, (command, http, sse, header, env))):
        raise UsageFailure(f"{found['name']} is a {transport} server; its transport cannot be changed")
    if found["connection_config"] is None and not (command or http or sse):
        raise Failure(
            f"The configuration of {found['name']} cannot be opened, so nothing can be changed in it",
            f"Give it whole, with every secret: trunkline servers update {found['name']} {_WHOLE[transport]}",
        )
    config = dict(found["connection_config"] or {})
    if command:
        config |= {"command": command[0], "args": command[1:]}
    if http:
        config["base_url"] = http
    if sse:
        config["url"] = sse
    for key, given in (("headers", _headers(header or [])), ("env", _variables(env or []))):
        if given:
            merged = {**config.get(key, {}), **given}
            config[key] = {name: value for name, value in merged.items() if value != ""}
    return config


def reach_of(config: Mapping[str, Any]) -> str:
    """The profile, the command or the address of a masked configuration, in one line."""
    if config.get("profile"):
        parameters = (f"{name}={value}" for name, value in (config.get("parameters") or {}).items())
        return " ".join(["profile", str(config["profile"]), *parameters])
    if "command" in config:
        return " ".join(map(_quoted, [config["command"], *(config.get("args") or ())]))
    return str(config.get("url") or config.get("base_url") or "-")


def _quoted(word: object) -> str:
    text = str(word)
    return f'"{text}"' if not text or " " in text else text


def sent_with(config: Mapping[str, Any]) -> str:
    """The variables and headers of a masked configuration."""
    variables = (f"{name}={value}" for name, value in (config.get("env") or {}).items())
    headers = (f"{name}: {value}" for name, value in (config.get("headers") or {}).items())
    return ", ".join([*variables, *headers])


def _headers(lines: list[str]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name.strip():
            raise UsageFailure(f"--header must be 'Name: value', and {name!r} is not")
        headers[name.strip()] = value.strip()
    return headers


def _variables(pairs: list[str]) -> dict[str, str]:
    variables: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise UsageFailure(f"--env must be NAME=value, and {name!r} is not")
        variables[name] = value
    return variables
