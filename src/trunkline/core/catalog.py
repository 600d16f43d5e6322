"""The immutable snapshot of everything callable: look-ups without I/O, replaced whole by one assignment.

Readers take the snapshot they find and never lock; the tool aggregator alone makes the next one. It knows
names and definitions, not whether a server is up: that is asked of the registry.
"""

import heapq
import itertools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from trunkline.model import Item, Tool

_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_LONGEST_GUESSED = 100
"""Nobody mistypes a longer name; what a guess costs is bounded by this, and not by who asks."""
_MOST_SEARCHED = 64
_MOST_WORDS = 5
_LONGEST_WORD = 8
_MOST_COMPARED = 200
_LEAST_ALIKE = 0.4


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
        """Names somebody may have meant, the nearest first; none for a name too long to be a slip."""
        if len(name) > _LONGEST_GUESSED:
            return []
        found = (word.lower() for word in _WORDS.findall(name) if len(word) > 2)
        words = list(dict.fromkeys(word[:_LONGEST_WORD] for word in found))
        likely = self._with_most_of(words[:_MOST_WORDS])
        if not likely:
            chunks = dict.fromkeys([name[:3].lower(), *(word[:3] for word in words)])
            likely = self._with_most_of(list(chunks)[:_MOST_WORDS])
        wanted = _pairs(name)
        alike = {known: max(_likeness(wanted, known), _likeness(wanted, _tail(known))) for known in likely}
        ranked = sorted(alike, key=lambda known: (-alike[known], known))
        return [known for known in ranked if alike[known] >= _LEAST_ALIKE][:most]

    def _with_most_of(self, parts: list[str]) -> list[str]:
        """A count of substrings is cheap enough to look at ten thousand names."""
        hits: dict[str, int] = {}
        for known in self.by_name:
            text = known[-_MOST_SEARCHED:].lower()
            if count := [part in text for part in parts].count(True):
                hits[known] = count
        return heapq.nlargest(_MOST_COMPARED, hits, key=hits.__getitem__)


def _likeness(wanted: frozenset[str], known: str) -> float:
    """Shared pairs of letters, 0 to 1. Linear in the lengths, which no comparison of sequences is."""
    pairs = _pairs(known)
    return 2 * len(wanted & pairs) / (len(wanted) + len(pairs))


def _pairs(text: str) -> frozenset[str]:
    text = f" {text[:_LONGEST_GUESSED].lower()} "
    return frozenset(map("".join, itertools.pairwise(text)))


def _tail(known: str) -> str:
    return known.partition(".")[2]


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
