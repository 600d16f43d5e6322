"""Reads everything a server lists: all pages, within bounds, one definition at a time.

It ends whatever the server does: so many pages, so many definitions, so many seconds, and never the same
cursor twice. What could be read is kept, and what could not is a `Problem` that says why. It stores
nothing; the tool aggregator compares and persists.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import msgspec

from trunkline.errors import RpcError, UpstreamError
from trunkline.model import Item, ItemKind, Problem
from trunkline.upstream.connection import Connection
from trunkline.wire import definitions, jsonrpc
from trunkline.wire.definitions import ToolFacts, Unusable

MOST_PAGES = 100
MOST_SECONDS = 30.0
MOST_ITEMS = 10_000

_ITEM_LISTS = (
    (ItemKind.PROMPT, "prompts", "prompts/list", "prompts"),
    (ItemKind.RESOURCE, "resources", "resources/list", "resources"),
    (ItemKind.TEMPLATE, "resources", "resources/templates/list", "resourceTemplates"),
)


@dataclass(slots=True)
class Listed:
    """The definitions of one list, in the order they came."""

    definitions: list[bytes] = field(default_factory=list)
    complete: bool = True
    """False when the list was cut short: what is missing from it may still exist.

    Our own limit leaves it complete: what lies beyond it is not kept, or a server that renames its tools
    would fill the limit with names that are gone.
    """
    reason: str | None = None

    def cut(self, reason: str) -> None:
        self.complete, self.reason = False, reason


@dataclass(slots=True)
class Inventory:
    """What a server has, and what had to be left out."""

    tools: dict[str, tuple[bytes, ToolFacts]] = field(default_factory=dict)
    tools_complete: bool = True
    items: dict[tuple[ItemKind, str], Item] = field(default_factory=dict)
    complete_kinds: set[ItemKind] = field(default_factory=set)
    problems: list[Problem] = field(default_factory=list)


async def take_inventory(
    server_id: str, connection: Connection, *, most_tools: int, on_page: Callable[[int], None]
) -> Inventory:
    inventory = Inventory()
    listed = await _read_list(connection, "tools/list", "tools", most_tools, on_page)
    inventory.tools_complete = listed.complete
    _take_tools(inventory, listed)
    capabilities = connection.introduction.capabilities
    for kind, capability, method, key in _ITEM_LISTS:
        if capability not in capabilities:
            inventory.complete_kinds.add(kind)
            continue
        found = await _read_list(connection, method, key, MOST_ITEMS, on_page)
        if found.complete:
            inventory.complete_kinds.add(kind)
        if found.reason is not None:
            inventory.problems.append(Problem("list", method, found.reason))
        _take_items(inventory, server_id, kind, found)
    return inventory


def _take_tools(inventory: Inventory, listed: Listed) -> None:
    if listed.reason is not None:
        inventory.problems.append(Problem("list", "tools/list", listed.reason))
    for definition in listed.definitions:
        try:
            facts = definitions.read_tool(definition)
        except Unusable as unusable:
            inventory.problems.append(Problem("tool", unusable.name, unusable.reason))
            continue
        if facts.name in inventory.tools:
            inventory.problems.append(
                Problem("tool", facts.name, "listed more than once; the last definition is used")
            )
        inventory.tools[facts.name] = (definition, facts)


def _take_items(inventory: Inventory, server_id: str, kind: ItemKind, listed: Listed) -> None:
    for definition in listed.definitions:
        try:
            key = definitions.read_item(kind, definition)
        except Unusable as unusable:
            inventory.problems.append(Problem(kind.value, unusable.name, unusable.reason))
            continue
        mark = definitions.fingerprint(definition)
        inventory.items[kind, key] = Item(kind, server_id, key, definition, mark)


async def _read_list(
    connection: Connection, method: str, key: str, most: int, on_page: Callable[[int], None]
) -> Listed:
    listed = Listed()
    try:
        async with asyncio.timeout(MOST_SECONDS):
            await _read_pages(connection, method, key, most, on_page, listed)
    except TimeoutError:
        listed.cut(f"not complete after {MOST_SECONDS:g} s; what had come by then is used")
    except RpcError as error:
        if error.rpc_code != jsonrpc.METHOD_NOT_FOUND:
            listed.cut(f"the server answered with an error: {error.message}")
    except jsonrpc.Malformed as error:
        listed.cut(f"the server's answer cannot be read: {error}")
    except UpstreamError as error:
        listed.cut(error.reason)
    return listed


async def _read_pages(
    connection: Connection, method: str, key: str, most: int, on_page: Callable[[int], None], listed: Listed
) -> None:
    cursor: str | None = None
    seen: set[str] = set()
    for _ in range(MOST_PAGES):
        params = b"" if cursor is None else msgspec.json.encode({"cursor": cursor})
        page, cursor = _page(await connection.request(method, params, seconds=MOST_SECONDS), key)
        room = most - len(listed.definitions)
        listed.definitions.extend(page[:room])
        on_page(len(listed.definitions))
        if len(page) > room or (cursor is not None and len(page) == room):
            listed.reason = f"only the first {most} are taken"
            return
        if cursor is None:
            return
        if cursor in seen:
            listed.cut("the server gives the same cursor again and again; the pages so far are used")
            return
        seen.add(cursor)
    listed.cut(f"more than {MOST_PAGES} pages; the first {MOST_PAGES} are used")


def _page(result: bytes, key: str) -> tuple[list[bytes], str | None]:
    parts: Mapping[str, bytes] = jsonrpc.fields(result)
    if key not in parts:
        raise jsonrpc.Malformed(f"a list without {key!r}")
    cursor = None
    if "nextCursor" in parts:
        try:
            cursor = msgspec.json.decode(parts["nextCursor"], type=str | None)
        except msgspec.DecodeError:
            raise jsonrpc.Malformed("a cursor that is not a string") from None
    return jsonrpc.elements(parts[key]), cursor
