"""The immutable snapshot of everything callable: look-ups without I/O, replaced whole by one assignment.

Readers take the snapshot they find and never lock; the tool aggregator alone makes the next one. It knows
names and definitions, not whether a server is up: that is asked of the registry.
"""

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from trunkline.model import Item, Tool

_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_MOST_COMPARED = 200


@dataclass(frozen=True, slots=True)
class Catalog:
    by_server: Mapping[str, Mapping[str, Tool]] = field(default_factory=dict)
    """Server id → original name → tool."""
    items: Mapping[str, tuple[Item, ...]] = field(default_factory=dict)
    """Server id → its prompts, resources and templates."""
    by_name: Mapping[str, Tool] = field(default_factory=dict)
    """`server.tool` → tool."""
    by_original: Mapping[str, tuple[Tool, ...]] = field(default_factory=dict)
    version: int = 0

    def with_server(self, server_id: str, tools: Iterable[Tool], items: Iterable[Item]) -> "Catalog":
        by_server = dict(self.by_server)
        by_server[server_id] = {tool.original_name: tool for tool in tools}
        return _assembled(by_server, {**self.items, server_id: tuple(items)}, self.version + 1)

    def without_server(self, server_id: str) -> "Catalog":
        by_server = {key: tools for key, tools in self.by_server.items() if key != server_id}
        items = {key: found for key, found in self.items.items() if key != server_id}
        return _assembled(by_server, items, self.version + 1)

    def tools_of(self, server_id: str) -> Mapping[str, Tool]:
        return self.by_server.get(server_id, {})

    def __len__(self) -> int:
        return len(self.by_name)

    def near(self, name: str, most: int = 3) -> list[str]:
        """Names somebody may have meant, the nearest first."""
        words = {word.lower() for word in _WORDS.findall(name) if len(word) > 2}
        hits = {
            known: sum(word in known.lower() for word in words) for known in self.by_name
        }  # a count of substrings is cheap enough to look at ten thousand names
        likely = sorted((known for known, count in hits.items() if count), key=lambda known: -hits[known])
        if not likely:
            chunks = {word[:3] for word in words} | {name[:3].lower()}
            likely = [known for known in self.by_name if any(chunk in known.lower() for chunk in chunks)]
        by_tail = {known: _likeness(name, known) for known in likely[:_MOST_COMPARED]}
        ranked = sorted(by_tail, key=lambda known: (-by_tail[known], known))
        return [known for known in ranked if by_tail[known] >= 0.5][:most]


def _likeness(wanted: str, known: str) -> float:
    whole = difflib.SequenceMatcher(None, wanted, known).ratio()
    return max(whole, difflib.SequenceMatcher(None, wanted, known.partition(".")[2]).ratio())


def _assembled(
    by_server: Mapping[str, Mapping[str, Tool]], items: Mapping[str, tuple[Item, ...]], version: int
) -> Catalog:
    by_name: dict[str, Tool] = {}
    by_original: dict[str, tuple[Tool, ...]] = {}
    for tools in by_server.values():
        for tool in tools.values():
            by_name[tool.name] = tool
            by_original[tool.original_name] = (*by_original.get(tool.original_name, ()), tool)
    return Catalog(by_server, items, by_name, by_original, version)
