"""The few steps of every route, in their order: find, scope, read, hand on, answer."""

import asyncio
from typing import Any

import pytest
from msgspec import Struct

from tests.front.conftest import Running
from trunkline.errors import Forbidden, MethodNotAllowed, NotFound, ValidationError
from trunkline.front.answers import Answer
from trunkline.front.exchange import Exchange, Headers
from trunkline.front.rest.api import Api
from trunkline.front.rest.describing import About
from trunkline.front.rest.routes import Routes
from trunkline.front.rest.shapes import Invalid, Refusal
from trunkline.model import Principal, Scope

READER = Principal("r", "reader", Scope.READ)
ADMIN = Principal("a", "admin", Scope.ADMIN)
SERVERS = "/api/v1/aggregator/servers"


class Order(Struct, forbid_unknown_fields=True):
    name: str


class Said(Struct):
    name: str
    by: str


class Nobody:
    """A line at whose end nobody listens."""

    def send(self, data: bytes) -> None: ...

    async def drained(self) -> None: ...

    def answered(self, *, whole: bool) -> None: ...


def exchange(method: str, path: str, body: bytes = b"", query: bytes = b"") -> Exchange:
    made = Exchange(
        Nobody(), method=method, target=path.encode(), path=path, query=query, headers=Headers(), http10=False
    )
    made.body = body
    return made


@pytest.fixture
def api() -> Api:
    routes = Routes("/things", "things")

    @routes("POST", "/{thing}", Scope.ADMIN, "Make a thing", status=201)
    async def make(thing: str, body: Order, by: Principal) -> Said:
        return Said(f"{thing}: {body.name}", by.name)

    @routes("DELETE", "/{thing}", Scope.ADMIN, "Remove a thing")
    async def remove(thing: str) -> None:
        assert thing

    @routes("GET", "/{thing}", Scope.READ, "Show a thing as text", media="text/plain")
    async def show(thing: str, exchange: Exchange) -> Answer:
        return Answer(203, thing.encode() + exchange.query, content_type=b"text/plain")

    about = About("Things", "1", invalid=Invalid, refusal=Refusal)
    return Api(about, [routes], described_at="/things.json")


async def test_what_a_handler_gives_back_is_the_answer(api: Api) -> None:
    made = await api.answer(exchange("POST", "/things/a", b'{"name":"n"}'), ADMIN)
    assert (made.status, made.body) == (201, b'{"name":"a: n","by":"admin"}')
    removed = await api.answer(exchange("DELETE", "/things/a"), ADMIN)
    assert (removed.status, removed.body) == (204, b"")
    shown = await api.answer(exchange("GET", "/things/a", query=b"?x"), READER)
    assert shown == Answer(203, b"a?x", content_type=b"text/plain")


async def test_an_api_describes_itself(api: Api) -> None:
    """Another one beside the admin API has its own table and its own document."""
    answer = await api.answer(exchange("GET", "/things.json"), READER)
    assert answer.status == 200
    assert b'"title":"Things"' in answer.body
    assert b'"/things/{thing}"' in answer.body
    assert b"things.json" not in answer.body


@pytest.mark.parametrize(
    ("method", "path", "body", "by", "refusal"),
    [
        ("POST", "/nothing", b"{", READER, NotFound),
        ("PUT", "/things/a", b"{", READER, MethodNotAllowed),
        ("POST", "/things/a", b"{", READER, Forbidden),
        ("POST", "/things/a", b"{", ADMIN, ValidationError),
        ("DELETE", "/things/a", b"{", ADMIN, ValidationError),
        ("POST", "/things/a", b"{}", ADMIN, ValidationError),
        ("POST", "/things/a", b"", ADMIN, ValidationError),
    ],
)
async def test_a_request_is_judged_by_its_address_then_its_scope_and_then_its_body(
    api: Api, method: str, path: str, body: bytes, by: Principal, refusal: type[Exception]
) -> None:
    with pytest.raises(refusal):
        await api.answer(exchange(method, path, body), by)


async def test_a_change_goes_on_when_its_client_has_gone(
    front: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was begun is carried through: half a removal would be worse than one nobody reads of."""
    begun, go_on, done = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def slow(*_: Any) -> None:
        begun.set()
        await go_on.wait()
        done.set()

    monkeypatch.setattr(front.gateway, "remove", slow)
    asking = asyncio.create_task(front.ask("DELETE", f"{SERVERS}/one"))
    await asyncio.wait_for(begun.wait(), 5)
    asking.cancel()
    await asyncio.sleep(0.05)
    go_on.set()
    await asyncio.wait_for(done.wait(), 5)
