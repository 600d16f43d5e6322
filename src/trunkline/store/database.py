"""What a `SqlStore` needs from a database: opened and closed, and work run on it in a transaction.

`work` is plain synchronous SQLAlchemy Core on one connection, so that every statement of the store is
written once. `sqlite.py` and `postgresql.py` implement this; how a write becomes durable is theirs alone.
"""

import json
from collections.abc import Callable
from typing import Protocol, TypeVar

import msgspec
from sqlalchemy import Connection

Result = TypeVar("Result")


def as_json(value: object) -> str:
    """For JSON columns: the quick way, which half a surrogate pair is too much for."""
    try:
        return msgspec.json.encode(value).decode()
    except UnicodeEncodeError:
        return json.dumps(value)


class Database(Protocol):
    async def open(self) -> None:
        """Reach it and bring its tables up to date. Raises `StartRefused`."""
        ...

    async def close(self) -> None:
        """Finish what waits, let go of everything."""
        ...

    async def read(self, work: Callable[[Connection], Result]) -> Result: ...

    async def write(self, work: Callable[[Connection], Result]) -> Result:
        """Durable when it returns. What `work` raises undoes its own changes and comes out here."""
        ...
