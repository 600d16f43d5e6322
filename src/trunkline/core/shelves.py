"""Keeps the shelf of each address until what it was made of changes: calls find it again by two numbers."""

from dataclasses import dataclass

from trunkline.core.server_registry import ServerRegistry
from trunkline.core.shelf import Shelf, shelf_of_all, shelf_of_one
from trunkline.core.tool_aggregator import ToolAggregator


@dataclass(slots=True)
class _Kept:
    """A shelf, and what it was made of."""

    shelf: Shelf
    catalog: int
    """The version of the catalogue."""
    ids: tuple[str, ...]
    registered: int
    """The registry's version it was last seen to be right for."""


class Shelves:
    def __init__(self, *, registry: ServerRegistry, aggregator: ToolAggregator, dotted: bool) -> None:
        self._registry = registry
        self._aggregator = aggregator
        self._dotted = dotted
        self._kept: dict[str | None, _Kept] = {}

    def of(self, server: str | None) -> Shelf:
        """What is shown of everything, or of one server. Raises `ServerNotFound`."""
        catalog, registered = self._aggregator.catalog, self._registry.version
        kept = self._kept.get(server)
        if kept is not None and kept.catalog == catalog.version and kept.registered == registered:
            return kept.shelf
        if server is None:
            shown = tuple(each for each in self._registry.all() if each.wanted)
        else:
            shown = (self._registry.get(server),)
        ids = tuple(each.id for each in shown)
        if kept is not None and kept.catalog == catalog.version and kept.ids == ids:
            kept.registered = registered
            return kept.shelf
        shelf = (
            shelf_of_one(catalog, shown[0]) if server else shelf_of_all(catalog, shown, dotted=self._dotted)
        )
        self._kept[server] = _Kept(shelf, catalog.version, ids, registered)
        return shelf

    def forget(self, server: str) -> None:
        self._kept.pop(server, None)
