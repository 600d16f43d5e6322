"""The routes of an API: what each is called by, needs, takes and says, and who answers it.

No route can be written without the scope it needs. What it takes is said once, by the signature of its
handler: the parameters of its path by their names, `query` and `body` as Structs, `by` for who asks, and
`exchange` where the request itself is wanted. What the handler gives back is said as JSON; None is 204, an
`Answer` goes as it is. Neighbours: `table.py` finds a route, `api.py` has it answered.
"""

import inspect
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from types import NoneType
from typing import Any, NamedTuple, TypeVar, get_args, get_type_hints

import msgspec
from msgspec import Struct

from trunkline.front.answers import Answer
from trunkline.front.exchange import Exchange
from trunkline.front.rest.reading import Faults, Reader
from trunkline.model import Principal, Scope

Handler = Callable[..., Awaitable[object]]
H = TypeVar("H", bound=Handler)

_SUPPLIED: Mapping[str, type] = {"by": Principal, "exchange": Exchange}
_PARAMETER = re.compile(r"\{(\w+)(:path)?\}")


class Parameter(NamedTuple):
    """Of a path: `{name}` is one part of it, `{name:path}` all that is left, which may be nothing."""

    name: str
    takes_rest: bool


def parts_of(path: str) -> list[str | Parameter]:
    """Raises `TypeError` for a rest that something follows."""
    found = [(part, _PARAMETER.fullmatch(part)) for part in path.split("/")]
    parts = [Parameter(match[1], match[2] is not None) if match else part for part, match in found]
    if any(isinstance(part, Parameter) and part.takes_rest for part in parts[:-1]):
        raise TypeError(f"Nothing can follow a rest: {path}")
    return parts


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """All there is to say of a route, whoever answers it."""

    method: str
    path: str
    scope: Scope
    name: str
    """Its id in the description of the API."""
    summary: str
    description: str = ""
    tag: str
    parameters: type[Struct] | None = None
    """Of the path."""
    query: type[Struct] | None = None
    body: type[Struct] | None = None
    body_required: bool = True
    status: int = 200
    """When all went well."""
    says: type[Struct] | None = None
    """The body of the answer, if it is JSON."""
    media: str | None = None
    """Its type, if it is not."""
    also: tuple[int, ...] = ()
    """Other statuses with such a body."""
    keyless: bool = False
    """Whether something is said without a key too; `entrance.py` says it."""
    described: bool = True


class Route:
    """An operation and who answers it."""

    def __init__(self, operation: Operation, handler: Handler, supplied: frozenset[str]) -> None:
        self.operation = operation
        self.handler = handler
        self.supplied = supplied
        """Which of `by` and `exchange` the handler takes."""
        self.names = [part.name for part in parts_of(operation.path) if isinstance(part, Parameter)]
        self._parameters = _reader_of(operation.parameters)
        self._query = _reader_of(operation.query)
        self._body = _reader_of(operation.body)

    def read(
        self, parameters: Mapping[str, str], query: list[tuple[str, str]], body: object
    ) -> dict[str, object]:
        """What the handler is given. `body` is UNSET if none was sent. Raises `ValidationError`."""
        faults, given = Faults(), dict[str, object]()
        if self._parameters is not None:
            found = self._parameters.read_texts(parameters.items(), "path", faults)
            given.update({name: getattr(found, name, None) for name in parameters})
        if self._query is not None:
            given["query"] = self._query.read_texts(query, "query", faults)
        if self._body is not None:
            given["body"] = self._read_body(self._body, body, faults)
        faults.refuse()
        return given

    def _read_body(self, reader: Reader, body: object, faults: Faults) -> object:
        if not self.operation.body_required and body in (None, msgspec.UNSET):
            return None
        if body is msgspec.UNSET:
            faults.add(("body",), "Field required", "missing")
            return None
        return reader.read(body, "body", faults)


def _reader_of(kind: type[Struct] | None) -> Reader | None:
    return Reader(kind) if kind is not None else None


class Routes:
    """Gathers the routes of one noun: `@routes("GET", "/{server}", Scope.READ, "Show a server")`."""

    def __init__(self, prefix: str, tag: str) -> None:
        self._prefix = prefix
        self._tag = tag
        self.routes: list[Route] = []
        self.elsewhere: list[Operation] = []
        """Answered before the table is asked; they are described with the others."""

    def __call__(
        self,
        method: str,
        path: str,
        scope: Scope,
        summary: str,
        *,
        status: int = 200,
        name: str | None = None,
        media: str | None = None,
        also: tuple[int, ...] = (),
        keyless: bool = False,
        described: bool = True,
    ) -> Callable[[H], H]:
        """The description is the handler's docstring, the name the handler's own if none is given."""

        def take(handler: H) -> H:
            path_in_full = self._prefix + path
            taken = _taken(handler, path_in_full)
            operation = Operation(
                method=method,
                path=path_in_full,
                scope=scope,
                name=name or handler.__name__,
                summary=summary,
                description=inspect.getdoc(handler) or "",
                tag=self._tag,
                parameters=taken.parameters,
                query=taken.query,
                body=taken.body,
                body_required=taken.body_required,
                status=204 if taken.says_nothing else status,
                says=taken.says,
                media=media,
                also=also,
                keyless=keyless,
                described=described,
            )
            self.routes.append(Route(operation, handler, taken.supplied))
            return handler

        return take


class _Taken(NamedTuple):
    """What a handler's signature says."""

    parameters: type[Struct] | None
    query: type[Struct] | None
    body: type[Struct] | None
    body_required: bool
    supplied: frozenset[str]
    says: type[Struct] | None
    says_nothing: bool


def _taken(handler: Handler, path: str) -> _Taken:
    """Raises `TypeError` for what no request could supply, and for what could not be described."""
    kinds = get_type_hints(handler, include_extras=True)
    says = kinds.pop("return", object)
    in_path = [part.name for part in parts_of(path) if isinstance(part, Parameter)]
    query, body = kinds.pop("query", None), kinds.pop("body", None)
    supplied = frozenset(name for name, kind in kinds.items() if _SUPPLIED.get(name) is kind)
    parameters = [(name, kind) for name, kind in kinds.items() if name not in supplied]
    if sorted(name for name, _ in parameters) != sorted(in_path):
        raise TypeError(f"{path} has {in_path}, its handler takes {dict(parameters)}")
    return _Taken(
        parameters=_parameters(parameters) if parameters else None,
        query=_struct_in(query) if query is not None else None,
        body=_struct_in(body) if body is not None else None,
        body_required=NoneType not in get_args(body),
        supplied=supplied,
        says=None if says in (NoneType, Answer) else _struct_in(says),
        says_nothing=says is NoneType,
    )


def _parameters(fields: list[tuple[str, Any]]) -> type[Struct]:
    return msgspec.defstruct("Parameters", fields, forbid_unknown_fields=True)


def _struct_in(kind: Any) -> type[Struct]:
    """The one among what an annotation allows. Raises `TypeError` if there is none."""
    for each in get_args(kind) or (kind,):
        if isinstance(each, type) and issubclass(each, Struct):
            return each
    raise TypeError(f"A Struct is wanted, not {kind}")
