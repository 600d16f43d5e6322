"""What one address shows its clients: every server, or one under its own names; lists as bytes, made once.

A shelf is made from a catalogue and the servers that should be connected, whether they are or not: a slow
or dead server never empties a list. It is immutable and looked things up in; sending is the router's part.
"""

import base64
import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import quote as percent

import msgspec

from trunkline.core.catalog import Catalog
from trunkline.model import Era, Item, ItemKind, Server, Tool
from trunkline.wire import jsonrpc
from trunkline.wire.names import aliases
from trunkline.wire.translate import joined

PAGE = 1000
NAME_KEY = "trunkline/name"
"""Where the canonical name stands in the `_meta` of what is advertised under an alias."""

_PLACEHOLDER = re.compile(r"\{([+#./;?&]?)[^{}]*\}")
_LIST_OF = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
}


class BadCursor(ValueError):
    """A cursor that this shelf did not give."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A prompt, resource or task as it is found again: whose it is, and its name, URI or id there."""

    server_id: str
    key: str


@dataclass(frozen=True)
class Shelf:
    servers: tuple[Server, ...]
    single: bool
    tools: Mapping[str, Tool] = field(default_factory=dict)
    """By the name that is advertised."""
    prompts: Mapping[str, Placed] = field(default_factory=dict)
    """By each name that is accepted."""
    resources: Mapping[str, Placed] = field(default_factory=dict)
    templates: Sequence[tuple[re.Pattern[str], str]] = ()
    """What fits, and the server it belongs to."""
    template_owners: Mapping[str, str] = field(default_factory=dict)
    shown: Mapping[str, Sequence[tuple[str, bytes]]] = field(default_factory=dict)
    """List method → (name, definition) in order, for clients of the newer era."""
    _pages: dict[tuple[str, bool, str | None], tuple[bytes, bytes]] = field(default_factory=dict)

    def page(self, method: str, *, modern: bool, cursor: str | None) -> bytes:
        """The members of a list result. Raises `BadCursor`."""
        key = (method, modern, cursor)
        if key not in self._pages:
            if len(self._pages) > PAGE:
                self._pages.clear()
            self._pages[key] = self._make_page(method, modern, cursor)
        definitions, more = self._pages[key]
        return definitions + more

    def _make_page(self, method: str, modern: bool, cursor: str | None) -> tuple[bytes, bytes]:
        entries = self.shown.get(method, ())
        start = 0
        if cursor is not None:
            after = _read_cursor(cursor)
            start = next((index for index, (name, _) in enumerate(entries) if name > after), len(entries))
        page = entries[start : start + PAGE]
        more = b""
        if start + PAGE < len(entries):
            more = b',"nextCursor":' + jsonrpc.quote(_cursor(page[-1][0]))
        definitions = [
            found for _, definition in page if (found := definition if modern else _for_legacy(definition))
        ]
        return b'"%b":[%b]' % (_LIST_OF[method].encode(), b",".join(definitions)), more

    def resource_at(self, uri: str) -> Placed | None:
        found = self.resources.get(uri)
        if found is not None:
            return found
        for pattern, server_id in self.templates:
            if pattern.fullmatch(uri):
                return Placed(server_id, uri)
        if self.single:
            return Placed(self.servers[0].id, uri)
        return None

    def owner_of(self, uri: str) -> str | None:
        """The server of a resource, or of a template named by its own text."""
        if uri in self.template_owners:
            return self.template_owners[uri]
        found = self.resource_at(uri)
        return found.server_id if found is not None else None

    @functools.cached_property
    def marks(self) -> Mapping[str, int]:
        """List method → what it shows, in short: equal marks mean nothing to announce."""
        return {method: hash(tuple(entries)) for method, entries in self.shown.items()}


def shelf_of_all(catalog: Catalog, servers: Iterable[Server], *, dotted: bool) -> Shelf:
    """In the order the servers were registered: of several resources with one URI the oldest keeps it."""
    in_order = tuple(sorted(servers, key=lambda server: (server.registered_at, server.name)))
    tools: dict[str, Tool] = {}
    prompts: dict[str, Placed] = {}
    resources: dict[str, Placed] = {}
    templates: list[tuple[re.Pattern[str], str]] = []
    owners: dict[str, str] = {}
    shown: dict[str, list[tuple[str, bytes]]] = {method: [] for method in _LIST_OF}
    for server in in_order:
        own = catalog.tools_of(server.id)
        for alias, name in aliases(server.prefix, server.name, own).items():
            tool = own[name]
            advertised = tool.name if dotted else alias
            definition = _without_tasks(tool.definition, server)
            if definition:
                tools[alias] = tools[tool.name] = tool
                shown["tools/list"].append((advertised, _renamed(definition, advertised, tool.name)))
        items = _by_kind(catalog.items.get(server.id, ()))
        own_prompts = {item.key: item for item in items[ItemKind.PROMPT]}
        for alias, name in aliases(server.prefix, server.name, own_prompts).items():
            canonical = f"{server.name}.{name}"
            advertised = canonical if dotted else alias
            prompts[alias] = prompts[canonical] = Placed(server.id, name)
            definition = _renamed(own_prompts[name].definition, advertised, canonical)
            shown["prompts/list"].append((advertised, definition))
        for item in items[ItemKind.RESOURCE]:
            explicit = f"trunkline://{server.name}/{percent(item.key, safe='')}"
            uri = explicit if item.key in resources else item.key
            resources[uri] = resources[explicit] = Placed(server.id, item.key)
            shown["resources/list"].append((uri, _with_uri(item.definition, uri, server.name)))
        for item in items[ItemKind.TEMPLATE]:
            templates.append((_pattern(item.key), server.id))
            owners.setdefault(item.key, server.id)
            shown["resources/templates/list"].append((item.key, item.definition))
    ordered = {method: sorted(entries) for method, entries in shown.items()}
    return Shelf(in_order, False, tools, prompts, resources, templates, owners, ordered)


def shelf_of_one(catalog: Catalog, server: Server) -> Shelf:
    """Under its own names, nothing changed."""
    own = catalog.tools_of(server.id)
    items = _by_kind(catalog.items.get(server.id, ()))
    tools = {**{tool.name: tool for tool in own.values()}, **own}
    shown = {
        "tools/list": [
            (tool.original_name, definition)
            for tool in own.values()
            if (definition := _without_tasks(tool.definition, server))
        ],
        "prompts/list": [(item.key, item.definition) for item in items[ItemKind.PROMPT]],
        "resources/list": [(item.key, item.definition) for item in items[ItemKind.RESOURCE]],
        "resources/templates/list": [(item.key, item.definition) for item in items[ItemKind.TEMPLATE]],
    }
    prompts = {item.key: Placed(server.id, item.key) for item in items[ItemKind.PROMPT]}
    ordered = {method: sorted(entries) for method, entries in shown.items()}
    return Shelf((server,), True, tools, prompts, {}, (), {}, ordered)


def _by_kind(items: Iterable[Item]) -> dict[ItemKind, list[Item]]:
    found: dict[ItemKind, list[Item]] = {kind: [] for kind in ItemKind}
    for item in items:
        found[item.kind].append(item)
    return found


def _renamed(definition: bytes, advertised: str, canonical: str) -> bytes:
    """The definition under another name; what it is really called stands in its title and its `_meta`."""
    members = jsonrpc.fields(definition)
    members["name"] = jsonrpc.quote(advertised)
    title = _text(members.get("title"))
    members["title"] = jsonrpc.quote(f"{title} ({canonical})" if title else canonical)
    members["_meta"] = _with_member(members.get("_meta"), NAME_KEY, jsonrpc.quote(canonical))
    return joined(members)


def _without_tasks(definition: bytes, server: Server) -> bytes:
    """Without the tasks of 2025-11-25, an experiment that nothing newer speaks; empty if it needs them.

    A newer server has other tasks, whatever its definitions still say.
    """
    if b'"execution"' not in definition:
        return definition
    members = jsonrpc.fields(definition)
    try:
        support = jsonrpc.fields(members.pop("execution", b"{}")).get("taskSupport")
    except jsonrpc.Malformed:
        support = None
    needed = support == b'"required"' and server.era is not Era.MODERN
    return b"" if needed else joined(members)


def _with_uri(definition: bytes, uri: str, server: str) -> bytes:
    members = jsonrpc.fields(definition)
    if _text(members.get("uri")) != uri:
        members["uri"] = jsonrpc.quote(uri)
    members["_meta"] = _with_member(members.get("_meta"), "trunkline/server", jsonrpc.quote(server))
    return joined(members)


def _for_legacy(definition: bytes) -> bytes:
    """As the session era can hold it: an output schema describes an object there, or there is none."""
    if b'"outputSchema"' not in definition:
        return definition
    members = jsonrpc.fields(definition)
    try:
        kind = jsonrpc.fields(members.get("outputSchema", b"{}")).get("type")
    except jsonrpc.Malformed:
        kind = None
    if kind != b'"object"' and "outputSchema" in members:
        del members["outputSchema"]
        return joined(members)
    return definition


def _with_member(data: bytes | None, key: str, value: bytes) -> bytes:
    try:
        members = jsonrpc.fields(data or b"{}")
    except jsonrpc.Malformed:
        members = {}
    members[key] = value
    return joined(members)


def _text(value: bytes | None) -> str:
    try:
        return msgspec.json.decode(value, type=str) if value else ""
    except msgspec.DecodeError:
        return ""


def _pattern(template: str) -> re.Pattern[str]:
    """Which URIs a template can make, a little generously: its server judges for itself."""
    parts: list[str] = []
    end = 0
    for found in _PLACEHOLDER.finditer(template):
        parts.append(re.escape(template[end : found.start()]))
        parts.append(".*" if found[1] else "[^/?#]+")
        end = found.end()
    parts.append(re.escape(template[end:]))
    return re.compile("".join(parts))


def _cursor(last: str) -> str:
    return base64.urlsafe_b64encode(b"after:" + last.encode()).decode()


def _read_cursor(cursor: str) -> str:
    try:
        text = base64.b64decode(cursor, altchars=b"-_", validate=True).decode()
    except (ValueError, UnicodeDecodeError):
        raise BadCursor from None
    if not text.startswith("after:"):
        raise BadCursor
    return text.removeprefix("after:")
