"""Reads what a server lists: one definition at a time, so that an odd one costs only itself.

Pure. A definition stays the bytes it was; read out of it is only what routing, search and safety need.
What cannot be used is refused with a reason meant for the person who looks at the server.
"""

import hashlib
import re
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

import msgspec

from trunkline.model import ItemKind

LONGEST_NAME = 255
DEEPEST_SCHEMA = 100
LARGEST_DEFINITION = 1024 * 1024

_CONTROL = re.compile(
    "[\x00-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\U000e0000-\U000e007f]"
)
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_HALF_CHARACTER = re.compile(rb"\\u[dD][89a-fA-F]")
_MIRRORED = "x-mcp-header"
_ONE_SCHEMA = frozenset((
    "items", "contains", "unevaluatedItems", "additionalProperties", "propertyNames",
    "unevaluatedProperties", "not", "if", "then", "else", "contentSchema",
))  # fmt: skip
_LISTED_SCHEMAS = frozenset(("allOf", "anyOf", "oneOf", "prefixItems"))
_NAMED_SCHEMAS = frozenset(("patternProperties", "dependentSchemas", "$defs", "definitions"))

KEY_OF = {ItemKind.PROMPT: "name", ItemKind.RESOURCE: "uri", ItemKind.TEMPLATE: "uriTemplate"}


class Unusable(ValueError):
    """A definition that has to be kept out. `name` is what it calls itself, as far as that can be read."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(reason)
        self.name = name
        self.reason = reason


class ToolFacts(msgspec.Struct, frozen=True):
    """What is read out of a tool's definition."""

    name: str
    description: str
    input_schema: dict[str, Any]
    read_only: bool
    idempotent: bool
    mirrored: tuple[tuple[str, tuple[str, ...]], ...]


def fingerprint(definition: bytes) -> str:
    return hashlib.sha256(definition).hexdigest()


def read_tool(definition: bytes) -> ToolFacts:
    """Raises `Unusable`."""
    fields = _object(definition)
    name = _key(fields, "name")
    schema = fields.get("inputSchema")
    if not isinstance(schema, dict):
        raise Unusable(name, "its inputSchema is not a JSON object")
    if schema.get("type", "object") != "object":
        raise Unusable(name, "its inputSchema does not describe an object")
    if _deeper_than(schema, DEEPEST_SCHEMA):
        raise Unusable(name, f"its inputSchema is nested deeper than {DEEPEST_SCHEMA} levels")
    if (cycle := _reference_cycle(schema)) is not None:
        raise Unusable(name, f"its inputSchema has a $ref cycle that never ends: {cycle}")
    mirrored = tuple(_mirrored_parameters(name, schema))
    description = fields.get("description")
    hints = fields.get("annotations")
    hints = hints if isinstance(hints, dict) else {}
    return ToolFacts(
        name=name,
        description=description if isinstance(description, str) else "",
        input_schema=schema,
        read_only=hints.get("readOnlyHint") is True,
        idempotent=hints.get("idempotentHint") is True,
        mirrored=mirrored,
    )


def read_item(kind: ItemKind, definition: bytes) -> str:
    """The key of a prompt, resource or template. Raises `Unusable`."""
    return _key(_object(definition), KEY_OF[kind], longest=LONGEST_NAME if kind is ItemKind.PROMPT else 4096)


def _object(definition: bytes) -> dict[str, Any]:
    if len(definition) > LARGEST_DEFINITION:
        raise Unusable(
            "(unnamed)",
            f"its definition is larger than {LARGEST_DEFINITION // 1024} KiB ({len(definition)} bytes)",
        )
    try:
        fields = msgspec.json.decode(definition)
    except RecursionError:
        raise Unusable(_name_of(definition), "its definition is nested too deeply to be read") from None
    except msgspec.DecodeError:
        halved = _HALF_CHARACTER.search(definition) is not None
        reason = (
            "has text that is no valid Unicode (half a surrogate pair)"
            if halved
            else "is not JSON that can be read"
        )
        raise Unusable(_name_of(definition), f"its definition {reason}") from None
    if not isinstance(fields, dict):
        raise Unusable("(unnamed)", "its definition is not a JSON object")
    return fields


def _name_of(definition: bytes) -> str:
    found = re.search(rb'"name"\s*:\s*"([^"\\]{1,80})"', definition)
    return found.group(1).decode("utf-8", "replace") if found else "(unnamed)"


def _key(fields: Mapping[str, Any], field: str, longest: int = LONGEST_NAME) -> str:
    key = fields.get(field)
    if key is None or key == "":
        raise Unusable("(unnamed)", f"it has no {field}")
    if not isinstance(key, str):
        raise Unusable("(unnamed)", f"its {field} is not a string")
    if len(key) > longest:
        raise Unusable(key[:60] + "…", f"its {field} has {len(key)} characters; at most {longest} are taken")
    if _CONTROL.search(key):
        raise Unusable(_CONTROL.sub("�", key)[:60], f"its {field} has control or invisible characters")
    try:
        key.encode("utf-8")
    except UnicodeEncodeError:
        raise Unusable("(unnamed)", f"its {field} is not valid text") from None
    return key


def _deeper_than(schema: dict[str, Any], limit: int) -> bool:
    level: list[Any] = [schema]
    for _ in range(limit):
        level = [child for node in level for child in _children(node)]
        if not level:
            return False
    return True


def _children(node: Any) -> Iterator[Any]:
    values = node.values() if isinstance(node, dict) else node
    return (value for value in values if isinstance(value, dict | list))


def _reference_cycle(schema: dict[str, Any]) -> str | None:
    """A chain of local `$ref`s that leads back to itself without ever reaching a schema.

    Recursion through properties is ordinary and stays; only a reference that is nothing but references
    can never be resolved.
    """
    ending: set[str] = set()
    pending: list[Any] = [schema]
    while pending:
        node = pending.pop()
        pending.extend(_children(node))
        chain: dict[str, None] = {}
        while isinstance(node, dict) and isinstance(reference := node.get("$ref"), str):
            if reference in chain:
                return " → ".join([*list(chain)[:4], reference])[:200]
            if reference in ending:
                break
            chain[reference] = None
            node = _follow(schema, reference)
        ending.update(chain)
    return None


def _follow(schema: dict[str, Any], reference: str) -> Any:
    """What a JSON pointer within the schema leads to; None for any other reference."""
    if reference != "#" and not reference.startswith("#/"):
        return None
    node: Any = schema
    for part in unquote(reference).split("/")[1:]:
        part = part.replace("~1", "/").replace("~0", "~")
        if isinstance(node, list) and part.isdecimal() and len(part) < 8:
            node = node[int(part)] if int(part) < len(node) else None
        else:
            node = node.get(part) if isinstance(node, dict) else None
    return node


def _mirrored_parameters(name: str, schema: dict[str, Any]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Arguments that `x-mcp-header` wants mirrored. The specification: an invalid mark drops the tool."""
    used: set[str] = set()
    for path, node in _schemas(schema):
        if _MIRRORED not in node:
            continue
        if not path:
            raise Unusable(name, "x-mcp-header stands where no chain of properties leads")
        suffix = node[_MIRRORED]
        if not isinstance(suffix, str) or not _TOKEN.fullmatch(suffix):
            raise Unusable(name, f"the x-mcp-header of {'.'.join(path)} is not a header name")
        if node.get("type") not in ("string", "integer", "boolean"):
            raise Unusable(name, f"x-mcp-header stands on {'.'.join(path)}, which is no plain value")
        if suffix.lower() in used:
            raise Unusable(name, f"the x-mcp-header {suffix} is used twice")
        used.add(suffix.lower())
        yield suffix, path


def _schemas(root: dict[str, Any]) -> Iterator[tuple[tuple[str, ...] | None, dict[str, Any]]]:
    """Every schema in a schema, with its path if nothing but `properties` lead to it.

    Only the keywords that hold schemas are entered: a property, a default or an extension that merely
    looks like a schema is data.
    """
    waiting: deque[tuple[tuple[str, ...] | None, Any]] = deque([((), root)])
    while waiting:
        path, node = waiting.popleft()
        if not isinstance(node, dict):
            continue
        yield path, node
        for keyword, value in node.items():
            if keyword == "properties" and isinstance(value, dict):
                waiting.extend(
                    (None if path is None else (*path, key), child) for key, child in value.items()
                )
            elif keyword in _ONE_SCHEMA:
                waiting.append((None, value))
            elif keyword in _LISTED_SCHEMAS and isinstance(value, list):
                waiting.extend((None, child) for child in value)
            elif keyword in _NAMED_SCHEMAS and isinstance(value, dict):
                waiting.extend((None, child) for child in value.values())
