"""What the shapes of all nouns have in common: what is taken in is strict, and times are said in one way.

A noun's module has its own shapes, as the contract spells them: Structs, from which the reader and the
OpenAPI document are made. They say only what can be read: what a server may be called, how it may be reached
and how many there may be is for the registry, so that every door is judged by the same rules.
"""

from datetime import UTC, datetime
from typing import Annotated, Any

from msgspec import Meta, Struct

Reference = Annotated[str, Meta(description="Id or name of a server.")]
Moment = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
"""ISO 8601 in UTC, to the millisecond, with a Z."""


def moment(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def moment_or_none(at: datetime | None) -> str | None:
    return moment(at) if at is not None else None


class Order(Struct, forbid_unknown_fields=True, kw_only=True):
    """What is taken in, as a body or a query string: a field it does not know is a mistake."""


class Page(Order):
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100
    offset: Annotated[int, Meta(ge=0, le=1_000_000_000)] = 0


class Said(Struct, kw_only=True):
    """What is answered."""


class Fault(Said):
    loc: list[str | int]
    """Where: body, query, path or header, and what in it."""
    msg: str
    type: str


class Invalid(Said):
    """The request cannot be meant: everything that is wrong with it."""

    detail: list[Fault]
    error_code: str


class Refusal(Said):
    """Some codes bring further fields: docs/ERRORS.md has them all."""

    detail: str
    error_code: str
    context: dict[str, Any]
