"""`trunkline audit`: what was done to the gateway, when, and by whom."""

import re
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Annotated

import typer

from trunkline.cli.desk import Desk, asks_gateway
from trunkline.cli.failures import UsageFailure
from trunkline.cli.gateway_client import AGGREGATOR
from trunkline.cli.screen import Column

_AGO = re.compile(r"(\d{1,6})([smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


@asks_gateway
def read_audit(
    desk: Desk,
    event: Annotated[str | None, typer.Option(help="Only this event, like server.registered.")] = None,
    server: Annotated[str | None, typer.Option(metavar="NAME", help="Only this server.")] = None,
    actor: Annotated[str | None, typer.Option(metavar="NAME", help="Only this actor.")] = None,
    since: Annotated[
        str | None, typer.Option(metavar="WHEN", help="2026-11-19T09:30, or 90s, 30m, 2h, 7d ago.")
    ] = None,
    limit: Annotated[int, typer.Option(metavar="N", min=1, max=100_000, help="Most records shown.")] = 50,
) -> None:
    """Show the newest records of the audit log first.

    \b
    trunkline audit
    trunkline audit --server files --since 2h
    trunkline audit --event server.registered --json
    """
    moment = None if since is None else read_moment(since, datetime.now(UTC)).isoformat()
    wanted = {"event": event, "server": server, "actor": actor, "since": moment}
    records = list(islice(desk.gateway.every(f"{AGGREGATOR}/audit", "records", **wanted), limit))
    if desk.screen.as_json:
        desk.screen.json({"records": records})
        return
    if not records:
        desk.screen.say("No records.")
        return
    desk.screen.table(
        [
            Column("TIME"),
            Column("EVENT"),
            Column("SERVER"),
            Column("ACTOR"),
            Column("FROM"),
            Column("DETAILS", folds=True),
        ],
        [
            (
                record["timestamp"],
                record["event"],
                record.get("server_name"),
                record["actor"],
                record.get("ip_address"),
                _details(record.get("details") or {}),
            )
            for record in records
        ],
    )


def read_moment(text: str, now: datetime) -> datetime:
    """A time, or how long ago it was. Raises `UsageFailure`."""
    if ago := _AGO.fullmatch(text.strip()):
        return now - timedelta(**{_UNITS[ago.group(2)]: int(ago.group(1))})
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise UsageFailure(
            f"--since must be a time like 2026-11-19T09:30 or how long ago, like 2h, not {text!r}"
        ) from None
    return moment if moment.tzinfo else moment.astimezone()


def _details(details: dict[str, object]) -> str:
    return ", ".join(f"{name}: {value}" for name, value in details.items()) or "-"
