"""What a handler's signature says of its route, and which signatures are mistakes."""

from typing import Annotated, Any

import pytest
from msgspec import UNSET, Meta, Struct

from trunkline.errors import ValidationError
from trunkline.front.answers import Answer
from trunkline.front.exchange import Exchange
from trunkline.front.rest.routes import Operation, Route, Routes
from trunkline.model import Principal, Scope


class Order(Struct, forbid_unknown_fields=True):
    name: str


class Query(Struct, forbid_unknown_fields=True):
    limit: Annotated[int, Meta(ge=1)] = 5


class Said(Struct):
    name: str


def route_of(handler: Any, path: str = "/{server}", **more: Any) -> Route:
    routes = Routes("/servers", "servers")
    assert routes("POST", path, Scope.CALL, "Do it", **more)(handler) is handler
    (route,) = routes.routes
    return route


def operation_of(handler: Any, path: str = "/{server}", **more: Any) -> Operation:
    return route_of(handler, path, **more).operation


async def change(server: str, query: Query, body: Order, by: Principal, exchange: Exchange) -> Said:
    """What it does.

    In detail.
    """
    return Said(f"{server} {query} {body} {by} {exchange}")


def test_a_signature_says_what_a_route_takes_and_says() -> None:
    route = route_of(change)
    operation = route.operation
    assert (operation.method, operation.path, operation.scope) == ("POST", "/servers/{server}", Scope.CALL)
    assert (operation.name, operation.summary, operation.tag) == ("change", "Do it", "servers")
    assert operation.description == "What it does.\n\nIn detail."
    assert (operation.query, operation.body, operation.says) == (Query, Order, Said)
    assert operation.parameters is not None
    assert operation.parameters.__struct_fields__ == ("server",)
    assert (operation.body_required, operation.status) == (True, 200)
    assert route.supplied == {"by", "exchange"}


def test_what_it_says_is_a_struct_or_nothing_or_an_answer() -> None:
    async def nothing() -> None: ...

    async def answer() -> Answer:
        return Answer(200, b"")

    async def either() -> Said | Answer:
        return Said("")

    assert (operation_of(nothing, "").status, operation_of(nothing, "").says) == (204, None)
    assert (operation_of(answer, "", status=202).status, operation_of(answer, "").says) == (202, None)
    assert operation_of(either, "").says is Said


def test_a_route_cannot_be_written_without_its_scope() -> None:
    """R-47: denied by default."""
    routes: Any = Routes("/servers", "servers")
    with pytest.raises(TypeError):
        routes("GET", "", summary="List them")
    with pytest.raises(TypeError):
        Operation(method="GET", path="/", name="x", summary="", tag="")  # type: ignore[call-arg]


async def takes_nothing() -> Said:
    return Said("")


async def takes_another(name: str) -> Said:
    return Said(name)


async def takes_two(server: str, name: str) -> Said:
    return Said(server + name)


async def takes_a_text_as_body(server: str, body: str) -> Said:
    return Said(server + body)


async def takes_somebody_else(server: str, by: Scope) -> Said:
    return Said(server + by)


async def says_a_text(server: str) -> str:
    return server


async def says_anything(server: str) -> dict[str, object]:
    return {"server": server}


@pytest.mark.parametrize(
    "handler",
    [
        *(takes_nothing, takes_another, takes_two, takes_a_text_as_body, takes_somebody_else),
        *(says_a_text, says_anything),
    ],
)
def test_what_no_request_has_and_what_cannot_be_described_is_a_mistake(handler: Any) -> None:
    with pytest.raises(TypeError):
        route_of(handler)


def test_a_request_is_read_into_what_the_handler_takes() -> None:
    found = route_of(change).read({"server": "s"}, [("limit", "2")], {"name": "n"})
    assert found == {"server": "s", "query": Query(2), "body": Order("n")}


def test_the_faults_of_path_query_and_body_are_named_together() -> None:
    with pytest.raises(ValidationError) as refused:
        route_of(change).read({"server": "\x00"}, [("limit", "0"), ("x", "1")], {})
    assert [fault.loc for fault in refused.value.faults] == [
        ("path", "server"),
        ("query", "limit"),
        ("query", "x"),
        ("body", "name"),
    ]


def test_a_parameter_of_the_path_is_of_its_type() -> None:
    async def show(number: Annotated[int, Meta(ge=1)]) -> Said:
        return Said(str(number))

    route = route_of(show, "/{number}")
    assert route.read({"number": "7"}, [], UNSET) == {"number": 7}
    for text in ("0", "x", ""):
        with pytest.raises(ValidationError) as refused:
            route.read({"number": text}, [], UNSET)
        assert refused.value.faults[0].loc == ("path", "number")


def test_a_body_may_be_left_out_where_the_handler_says_so() -> None:
    async def optional(body: Order | None) -> None: ...

    async def required(body: Order) -> None: ...

    assert not operation_of(optional, "").body_required
    for left_out in (UNSET, None):
        assert route_of(optional, "").read({}, [], left_out) == {"body": None}
    with pytest.raises(ValidationError) as refused:
        route_of(required, "").read({}, [], UNSET)
    assert [(fault.loc, fault.type) for fault in refused.value.faults] == [(("body",), "missing")]
    with pytest.raises(ValidationError):
        route_of(required, "").read({}, [], None)
    with pytest.raises(ValidationError):
        route_of(optional, "").read({}, [], [])
