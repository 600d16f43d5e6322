"""What the admin API takes in: bodies and query strings, each refusing fields it does not know.

Shapes alone are judged here. What a server may be called, how it may be reached and how many there may be
is for the registry, so that the command line and the import are judged by the same rules.
"""

from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StrictBool

from trunkline.model import Scope, ServerStatus


def _in_upper_case(value: object) -> object:
    return value.upper() if isinstance(value, str) else value


def _in_lower_case(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


def _in_utc(value: datetime) -> datetime:
    try:
        return value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)
    except OverflowError:
        raise ValueError("the time is out of range") from None


def _storable(value: str) -> str:
    if "\x00" in value:
        raise ValueError("must not have null characters")
    return value


Text = Annotated[str, AfterValidator(_storable)]
AnyCaseStatus = Annotated[ServerStatus, BeforeValidator(_in_upper_case)]
AnyCaseScope = Annotated[Scope, BeforeValidator(_in_lower_case)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Page(_Strict):
    limit: int = Field(default=100, ge=1, le=1000)
    offset: int = Field(default=0, ge=0, le=1_000_000_000)


class ServerQuery(Page):
    status: AnyCaseStatus | None = None
    include_tools: bool = False


class ToolQuery(Page):
    server: Text | None = Field(default=None, description="Id or name of a server.")


class HistoryQuery(_Strict):
    limit: int = Field(default=50, ge=1, le=1000)


class AuditQuery(Page):
    event: Text | None = None
    server: Text | None = Field(default=None, description="Id or name of a server.")
    actor: Text | None = None
    since: Annotated[datetime, AfterValidator(_in_utc)] | None = Field(
        default=None, description="ISO 8601; without a zone it is UTC."
    )


class ServerRegistration(_Strict):
    name: Text
    transport_type: str = Field(description="STDIO, SSE or HTTP, in any case.")
    connection_config: dict[str, Any]
    description: Text | None = None
    health_check_url: Text | None = None
    auto_connect: StrictBool = True


class ServerChange(_Strict):
    """What is not given stays. A server is not renamed: remove it and add it again."""

    description: Text | None = None
    connection_config: dict[str, Any] | None = None
    health_check_url: Text | None = None


class DisconnectOrder(_Strict):
    force: StrictBool = Field(default=False, description="Cancels calls in flight instead of waiting.")


class KeyOrder(_Strict):
    name: Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[^\x00-\x1f\x7f]+$")]
    scope: AnyCaseScope
    expires_in_days: int | None = Field(default=None, ge=1, le=36_500)
