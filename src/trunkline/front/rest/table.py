"""Finds the route of a request by its path and method: a tree of path parts, built once.

At each part what is spelled out goes before a parameter, and that before a rest of any length. A path that is
there and does not take the method is 405 with what it takes; any other is 404.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from trunkline.errors import MethodNotAllowed, NotFound
from trunkline.front.rest.routes import Operation, Parameter, Route, parts_of


@dataclass(slots=True)
class _Node:
    """What can follow one beginning of a path."""

    spelled: dict[str, "_Node"] = field(default_factory=dict)
    one: "_Node | None" = None
    rest: "_Node | None" = None
    routes: dict[str, Route | None] = field(default_factory=dict)
    """By method, of the path that ends here; None for one that is answered elsewhere."""


class Table:
    def __init__(self, routes: Iterable[Route], elsewhere: Iterable[Operation] = ()) -> None:
        self._root = _Node()
        for operation in elsewhere:
            self._place(operation, None)
        for route in routes:
            self._place(route.operation, route)

    def _place(self, operation: Operation, route: Route | None) -> None:
        node = self._root
        for part in parts_of(operation.path):
            node = _step(node, part)
        if operation.method in node.routes:
            raise TypeError(f"There are two of {operation.method} {operation.path}")
        node.routes[operation.method] = route

    def find(self, method: str, path: str) -> tuple[Route, dict[str, str]]:
        """The route and the parameters of its path. Raises `NotFound` and `MethodNotAllowed`."""
        allowed = set[str]()
        for node, values in _ends(self._root, path.split("/"), ()):
            route = node.routes.get(method)
            if route is not None:
                return route, dict(zip(route.names, values, strict=True))
            allowed |= node.routes.keys()
        if not allowed:
            raise NotFound(f"There is nothing at {path}")
        raise MethodNotAllowed(f"{method} is not possible at {path}", sorted(allowed))


def _step(node: _Node, part: str | Parameter) -> _Node:
    if isinstance(part, str):
        return node.spelled.setdefault(part, _Node())
    if part.takes_rest:
        node.rest = node.rest or _Node()
        return node.rest
    node.one = node.one or _Node()
    return node.one


def _ends(node: _Node, parts: list[str], values: tuple[str, ...]) -> Iterator[tuple[_Node, tuple[str, ...]]]:
    """The nodes at which the whole path ends, the most particular one first, with its parameters."""
    if not parts:
        yield node, values
        return
    part, after = parts[0], parts[1:]
    if part in node.spelled:
        yield from _ends(node.spelled[part], after, values)
    if node.one is not None and part:
        yield from _ends(node.one, after, (*values, part))
    if node.rest is not None:
        yield node.rest, (*values, "/".join(parts))
