"""`key=value` on a command line -> the JSON arguments a tool's input schema asks for.

Pure. A value is read as what the schema says it is, and where a string is allowed it stays the string that
was typed: `id=007` is not 7. `key:=JSON` says exactly what is meant. What does not fit is refused with the
list of what the tool wants.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trunkline.cli.failures import UsageFailure

_YES = ("true", "yes", "on")
_NO = ("false", "no", "off")
_WHOLE = re.compile(r"[+-]?\d+")
_LONGEST_WHOLE = 4000
_LONGEST_SHOWN = 60
_ALL_TYPES = ("string", "integer", "number", "boolean", "array", "object", "null")


class Unfit(ValueError):
    """The text cannot be what the schema wants; its message says what that is."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What an input schema says of its top-level properties."""

    properties: Mapping[str, Any]
    required: tuple[str, ...]
    open: bool
    """Whether it says that further properties are welcome."""


def read_arguments(
    pairs: Sequence[str], schema: Mapping[str, Any], given: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """`pairs` typed by `schema`, over `given` (whole arguments, taken as they are).

    Raises `UsageFailure`. When whole arguments are given, nothing is said to be missing: the tool judges.
    """
    wanted = describe(schema)
    arguments: dict[str, Any] = dict(given or {})
    for key, values in _grouped(pairs).items():
        if key not in wanted.properties and not wanted.open and not any(raw for _, raw in values):
            raise UsageFailure(f"The tool has no argument {key!r}", *usage_lines(schema))
        try:
            arguments[key] = _value(values, wanted.properties.get(key, {}), schema)
        except Unfit as unfit:
            raise UsageFailure(f"{key}: {unfit}", *usage_lines(schema)) from None
    if given is None and (missing := [key for key in wanted.required if key not in arguments]):
        raise UsageFailure(f"Missing: {', '.join(missing)}", *usage_lines(schema))
    return arguments


def describe(schema: Mapping[str, Any]) -> Wanted:
    properties: dict[str, Any] = {}
    required: list[str] = []
    is_open = False
    for part, always in _parts(schema, schema):
        if isinstance(part.get("properties"), dict):
            properties |= part["properties"]
        if always and isinstance(part.get("required"), list):
            required += [key for key in part["required"] if isinstance(key, str) and key not in required]
        extra = part.get("additionalProperties")
        is_open |= extra is True or isinstance(extra, dict) or "patternProperties" in part
    return Wanted(properties, tuple(required), is_open)


def usage_lines(schema: Mapping[str, Any]) -> list[str]:
    """What the tool wants, an argument a line."""
    wanted = describe(schema)
    if not wanted.properties:
        return ["It takes no arguments."] if not wanted.open else ["It takes any arguments."]
    names = sorted(wanted.properties, key=lambda key: key not in wanted.required)
    width = max(len(name) for name in names)
    lines = ["It takes:"]
    for name in names:
        about = [type_words(wanted.properties[name], schema)]
        about += ["required"] if name in wanted.required else []
        text = f"{name:<{width}}  {', '.join(about)}"
        description = _follow(wanted.properties[name], schema).get("description")
        if isinstance(description, str) and description.strip():
            text += f": {' '.join(description.split())}"
        lines.append(text)
    return lines


def type_words(node: Any, root: Mapping[str, Any]) -> str:
    """`string`, `integer or null`, `one of "a", "b"`."""
    options = _options(node, root)
    if options is not None:
        return "one of " + ", ".join(json.dumps(option, ensure_ascii=False) for option in options)
    types = _types(node, root)
    if len(types) == len(_ALL_TYPES):
        return "any"
    if types == ("array",):
        items = _follow(node, root).get("items")
        return f"list of {type_words(items, root)}" if isinstance(items, dict) and items else "list"
    return " or ".join(types)


def _grouped(pairs: Sequence[str]) -> dict[str, list[tuple[str, bool]]]:
    """Key -> its values in order, each with whether it was given as raw JSON."""
    grouped: dict[str, list[tuple[str, bool]]] = {}
    for pair in pairs:
        key, sign, value = pair.partition("=")
        if not sign or key in ("", ":"):
            raise UsageFailure(f"{pair!r} is not key=value (or key:=JSON)")
        raw = key.endswith(":")
        grouped.setdefault(key.removesuffix(":"), []).append((value, raw))
    return grouped


def _value(values: Sequence[tuple[str, bool]], node: Any, root: Mapping[str, Any]) -> Any:
    read = [_json(text) if raw else read_value(text, node, root) for text, raw in values]
    if len(read) == 1:
        return read[0]
    if "array" not in _types(node, root) or not all(isinstance(value, list) for value in read):
        raise Unfit("is given more than once, and is not a list")
    return [item for value in read for item in value]


def read_value(text: str, node: Any, root: Mapping[str, Any]) -> Any:
    """One text as the schema's type. Raises `Unfit`."""
    options = _options(node, root)
    if options is not None:
        return _chosen(text, options)
    types = _types(node, root)
    if "string" in types:
        return text
    for kind in ("null", "boolean", "integer", "number", "array", "object"):
        if kind in types:
            try:
                return _typed(text, kind, node, root)
            except Unfit:
                if types == (kind,):
                    raise
    raise Unfit(f"must be {' or '.join(types)}, not {_short(text)}")


def _typed(text: str, kind: str, node: Any, root: Mapping[str, Any]) -> Any:
    bare = text.strip()
    if kind == "null":
        if bare.lower() in ("null", ""):
            return None
        raise Unfit(f"must be null, not {_short(text)}")
    if kind == "boolean":
        if bare.lower() in _YES + _NO:
            return bare.lower() in _YES
        raise Unfit(f"must be true or false, not {_short(text)}")
    if kind == "integer":
        if _WHOLE.fullmatch(bare) and len(bare) <= _LONGEST_WHOLE:
            return int(bare)
        raise Unfit(f"must be a whole number, not {_short(text)}")
    if kind == "number":
        return _number(text)
    if kind == "array":
        return _list(text, node, root)
    value = _json(text)
    if not isinstance(value, dict):
        raise Unfit(f"must be a JSON object like {{\"key\": \"value\"}}, not {_short(text)}")  # fmt: skip
    return value


def _number(text: str) -> int | float:
    bare = text.strip()
    if _WHOLE.fullmatch(bare) and len(bare) <= _LONGEST_WHOLE:
        return int(bare)
    try:
        value = float(bare) if "_" not in bare else math.nan
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise Unfit(f"must be a number, not {_short(text)}")
    return value


def _list(text: str, node: Any, root: Mapping[str, Any]) -> list[Any]:
    """A JSON array, or the one item it is; more items come by giving the key again."""
    if text.strip().startswith("["):
        value = _json(text)
        if isinstance(value, list):
            return value
    items = _follow(_array_branch(node, root), root).get("items", {})
    return [read_value(text, items, root)]


def _array_branch(node: Any, root: Mapping[str, Any]) -> Any:
    """The schema that speaks of the list, where `anyOf` offers several."""
    for part, _ in _parts(node, root):
        if "items" in part:
            return part
    return node


def _json(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise Unfit(f"must be JSON, and {_short(text)} is not") from None


def _no_constant(name: str) -> Any:
    raise ValueError(name)


def _chosen(text: str, options: Sequence[Any]) -> Any:
    if text in options:
        return text
    for option in options:
        if not isinstance(option, str) and json.dumps(option) == text.strip():
            return option
    shown = ", ".join(json.dumps(option, ensure_ascii=False) for option in options)
    raise Unfit(f"must be one of {shown}, not {_short(text)}")


def _options(node: Any, root: Mapping[str, Any]) -> list[Any] | None:
    """The values of an `enum` or `const`, through references and unions of nothing but such."""
    node = _follow(node, root)
    if isinstance(node.get("enum"), list):
        return list(node["enum"])
    if "const" in node:
        return [node["const"]]
    branches = _branches(node)
    if not branches:
        return None
    found: list[Any] = []
    for branch in branches:
        options = [None] if branch.get("type") == "null" else _plain_options(branch, root)
        if options is None:
            return None
        found += options
    return found


def _plain_options(branch: Mapping[str, Any], root: Mapping[str, Any]) -> list[Any] | None:
    branch = _follow(branch, root)
    if isinstance(branch.get("enum"), list):
        return list(branch["enum"])
    return [branch["const"]] if "const" in branch else None


def _types(node: Any, root: Mapping[str, Any]) -> tuple[str, ...]:
    """Every type the schema allows; all of them when it names none."""
    found: list[str] = []
    for part, _ in _parts(node, root):
        named = part.get("type")
        for kind in [named] if isinstance(named, str) else named if isinstance(named, list) else []:
            if kind in _ALL_TYPES and kind not in found:
                found.append(kind)
    return tuple(found) or _ALL_TYPES


def _parts(
    node: Any, root: Mapping[str, Any], always: bool = True, depth: int = 0
) -> Iterator[tuple[Mapping[str, Any], bool]]:
    """The schema and those it is made of, each with whether it holds in every case."""
    node = _follow(node, root)
    yield node, always
    if depth > 8:
        return
    for part in _list_at(node, "allOf"):
        if isinstance(part, dict):
            yield from _parts(part, root, always, depth + 1)
    for part in _branches(node):
        yield from _parts(part, root, False, depth + 1)


def _branches(node: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    parts = [*_list_at(node, "anyOf"), *_list_at(node, "oneOf")]
    return [part for part in parts if isinstance(part, dict)]


def _list_at(node: Mapping[str, Any], key: str) -> list[Any]:
    value = node.get(key)
    return value if isinstance(value, list) else []


def _follow(node: Any, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """Through local `$ref`s, so many at most; what leads nowhere or is no object says nothing."""
    for _ in range(16):
        if not isinstance(node, dict):
            return {}
        reference = node.get("$ref")
        if not isinstance(reference, str) or not reference.startswith("#"):
            return node
        target: Any = root
        for part in reference.lstrip("#").split("/")[1:]:
            part = part.replace("~1", "/").replace("~0", "~")
            target = target.get(part) if isinstance(target, dict) else None
        node = target
    return {}


def _short(text: str) -> str:
    return repr(text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + "…")
