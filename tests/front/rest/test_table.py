"""Finding a route: by path and method, the most particular first, and what a path allows."""

import pytest

from trunkline.errors import MethodNotAllowed, NotFound
from trunkline.front.rest.routes import Operation, Route
from trunkline.front.rest.table import Table
from trunkline.model import Scope


async def nothing() -> None: ...


def operation(method: str, path: str) -> Operation:
    return Operation(method=method, path=path, scope=Scope.READ, name=path, summary="", tag="")


def table(*routes: str, elsewhere: str | None = None) -> Table:
    """Of routes written as `GET /path`."""
    there = [operation(*elsewhere.split(" "))] if elsewhere else []
    return Table([Route(operation(*route.split(" ")), nothing, frozenset()) for route in routes], there)


SERVERS = table(
    "GET /servers",
    "POST /servers",
    "GET /servers/{server}",
    "DELETE /servers/{server}",
    "POST /servers/{server}/connect",
    "GET /servers/all",
    "GET /servers/{server}/tools/{tool}",
    "GET /servers/all/tools",
    "GET /tools/{name:path}",
    "HEAD /health",
    "GET /health",
    elsewhere="POST /tools/call",
)


@pytest.mark.parametrize(
    ("method", "path", "route", "parameters"),
    [
        ("GET", "/servers", "/servers", {}),
        ("POST", "/servers", "/servers", {}),
        ("GET", "/servers/a", "/servers/{server}", {"server": "a"}),
        ("GET", "/servers/ä b", "/servers/{server}", {"server": "ä b"}),
        ("GET", "/servers/{server}", "/servers/{server}", {"server": "{server}"}),
        ("POST", "/servers/connect/connect", "/servers/{server}/connect", {"server": "connect"}),
        ("GET", "/servers/all", "/servers/all", {}),
        ("DELETE", "/servers/all", "/servers/{server}", {"server": "all"}),
        ("POST", "/servers/all/connect", "/servers/{server}/connect", {"server": "all"}),
        ("GET", "/servers/all/tools", "/servers/all/tools", {}),
        *(("GET", f"/servers/{name}/tools/t", "/servers/{server}/tools/{tool}", {"server": name, "tool": "t"})
          for name in ("a", "all")),
        ("GET", "/tools/a.b", "/tools/{name:path}", {"name": "a.b"}),
        ("GET", "/tools/a/b//c/", "/tools/{name:path}", {"name": "a/b//c/"}),
        ("GET", "/tools/", "/tools/{name:path}", {"name": ""}),
        ("GET", "/tools/call", "/tools/{name:path}", {"name": "call"}),
        ("HEAD", "/health", "/health", {}),
    ],
)  # fmt: skip
def test_a_route_is_found_with_the_parameters_of_its_path(
    method: str, path: str, route: str, parameters: dict[str, str]
) -> None:
    found, given = SERVERS.find(method, path)
    assert (found.operation.method, found.operation.path, given) == (method, route, parameters)


@pytest.mark.parametrize(
    "path",
    [
        *("", "/", "//", "*", "servers", "/server", "/servers/", "/servers//connect", "/servers/a/"),
        *("/servers/a/b", "/servers/a/connect/", "/servers\n", "/Servers", "/tools", "/health/", "//health"),
    ],
)
def test_a_path_that_is_not_there_is_not_found(path: str) -> None:
    with pytest.raises(NotFound) as refused:
        SERVERS.find("GET", path)
    assert refused.value.detail == f"There is nothing at {path}"


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "/servers", ("GET", "POST")),
        ("HEAD", "/servers", ("GET", "POST")),
        ("get", "/servers", ("GET", "POST")),
        ("POST", "/servers/a", ("DELETE", "GET")),
        ("POST", "/servers/all", ("DELETE", "GET")),
        ("GET", "/servers/a/connect", ("POST",)),
        ("PUT", "/tools/a/b", ("GET",)),
        ("PUT", "/tools/call", ("GET", "POST")),
        ("POST", "/health", ("GET", "HEAD")),
    ],
)
def test_a_method_that_is_not_possible_is_told_which_are(
    method: str, path: str, allowed: tuple[str, ...]
) -> None:
    with pytest.raises(MethodNotAllowed) as refused:
        SERVERS.find(method, path)
    assert refused.value.detail == f"{method} is not possible at {path}"
    assert refused.value.allowed == allowed


def test_the_same_route_twice_is_a_mistake() -> None:
    for twice in (("GET /a/{x}", "GET /a/{y}"), ("GET /a", "GET /a"), ("GET /a/{x:path}", "GET /a/{y:path}")):
        with pytest.raises(TypeError):
            table(*twice)
    with pytest.raises(TypeError):
        table("POST /a", elsewhere="POST /a")


def test_nothing_can_follow_a_rest() -> None:
    with pytest.raises(TypeError):
        table("GET /tools/{name:path}/skills")


def test_a_long_path_costs_no_recursion() -> None:
    with pytest.raises(NotFound):
        SERVERS.find("GET", "/servers" * 5000)
    found, given = SERVERS.find("GET", "/tools" + "/" * 60_000)
    assert (found.operation.path, given) == ("/tools/{name:path}", {"name": "/" * 59_999})
