"""The wall where errors of the databases and their drivers become errors of the house.

Nothing of a driver's own text passes: it can quote addresses, values of a statement or parts of a URL.
The log gets the kind of the error and its code, which is what somebody who runs a database looks up.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.exc import TimeoutError as NoConnectionFree

from trunkline.errors import StorageUnavailable, TrunklineError
from trunkline.telemetry import Flood

_log = logging.getLogger(__name__)
_flood = Flood()

FOREIGN: tuple[type[Exception], ...] = (DBAPIError, NoConnectionFree, OSError)
"""What a database that is away, full, damaged or overloaded raises; anything else is a mistake of ours.

A driver may add errors that reach us without SQLAlchemy's wrapping.
"""


def driver_error(error: BaseException) -> BaseException:
    """What the driver raised, under the wrappings of SQLAlchemy."""
    while (wrapped := getattr(error, "orig", None)) is not None:
        error = wrapped
    return error


def code_of(error: BaseException) -> str | None:
    """The SQLSTATE of PostgreSQL or the error name of SQLite."""
    original = driver_error(error)
    return getattr(original, "sqlstate", None) or getattr(original, "sqlite_errorname", None)


def unavailable(error: BaseException) -> StorageUnavailable:
    if _flood.passes():
        kind = type(driver_error(error)).__name__
        _log.error("The database failed: %s %s", kind, code_of(error) or "")
    refusal = StorageUnavailable("The database is not available now; try again shortly.")
    refusal.__cause__ = error
    return refusal


@contextmanager
def translated(foreign: tuple[type[Exception], ...] = FOREIGN) -> Iterator[None]:
    try:
        yield
    except IntegrityError as error:
        raise TrunklineError("The change contradicts what is already stored.") from error
    except foreign as error:
        raise unavailable(error) from error
