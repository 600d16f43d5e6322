"""One API: a table of routes, answered in the same few steps, and its description.

Find the route, judge the scope, read everything, hand on, answer. It raises errors of the tree and says none
of them: that is for who asked it. `admin.py` puts the admin API together; who has heard the key before is
`entrance.py`.
"""

from collections.abc import Iterable
from functools import cached_property
from urllib.parse import parse_qsl

from msgspec import UNSET

from trunkline.errors import Forbidden
from trunkline.front.answers import Answer, encode
from trunkline.front.bodies import read_json
from trunkline.front.exchange import Exchange
from trunkline.front.rest.describing import About, describe
from trunkline.front.rest.routes import Routes
from trunkline.front.rest.table import Table
from trunkline.model import Principal, Scope


class Api:
    def __init__(self, about: About, parts: Iterable[Routes], *, described_at: str) -> None:
        """Its description is at that path, for whoever may read."""
        self._about = about
        itself = Routes("", "description")
        itself("GET", described_at, Scope.READ, "Describe the API", described=False)(self._describe)
        parts = [*parts, itself]
        self._routes = [route for part in parts for route in part.routes]
        self._elsewhere = [operation for part in parts for operation in part.elsewhere]
        self.operations = [*self._elsewhere, *(route.operation for route in self._routes)]
        self._table = Table(self._routes, self._elsewhere)

    async def answer(self, exchange: Exchange, by: Principal) -> Answer:
        """Raises `TrunklineError`."""
        route, parameters = self._table.find(exchange.method, exchange.path)
        operation = route.operation
        if not by.scope.includes(operation.scope):
            raise Forbidden(
                f"This needs a key with scope {operation.scope}; the one given has scope {by.scope}"
            )
        query = parse_qsl(exchange.query.decode("utf-8", "replace"), keep_blank_values=True)
        given = route.read(parameters, query, read_json(exchange.body) if exchange.body else UNSET)
        supplied = {"by": by, "exchange": exchange}
        given.update({name: supplied[name] for name in route.supplied})
        said = await route.handler(**given)
        if isinstance(said, Answer):
            return said
        return Answer(operation.status, b"" if said is None else encode(said))

    async def _describe(self) -> Answer:
        return self._description

    @cached_property
    def _description(self) -> Answer:
        return Answer(200, encode(describe(self._about, self.operations)))
