"""`trunkline keys …`: who may use the gateway, and how much."""

from typing import Annotated, Any

import typer

from trunkline.cli.desk import Desk, asks_gateway
from trunkline.cli.gateway_client import AGGREGATOR, segment
from trunkline.cli.screen import Column
from trunkline.cli.servers import confirm
from trunkline.model import Scope

KEYS = f"{AGGREGATOR}/keys"

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Make keys for others, and take them back."
)


@app.command("create")
@asks_gateway
def create_key(
    desk: Desk,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Who or what it is for.")],
    scope: Annotated[
        Scope, typer.Option(case_sensitive=False, help="What it may do; each includes those before it.")
    ] = Scope.CALL,
    expires_days: Annotated[
        int | None, typer.Option("--expires-days", metavar="N", min=1, help="Ends after so many days.")
    ] = None,
) -> None:
    """Make a key. It is shown this once; the gateway keeps only its hash.

    \b
    trunkline keys create laptop --scope call
    trunkline keys create dashboard --scope read --expires-days 30
    """
    body: dict[str, Any] = {"name": name, "scope": scope.value}
    if expires_days is not None:
        body["expires_in_days"] = expires_days
    key = desk.gateway.post(KEYS, body)
    if desk.screen.as_json:
        desk.screen.json(key)
        return
    desk.screen.say(key["key"], style="bold")
    until = f", until {key['expires_at']}" if key.get("expires_at") else ""
    desk.screen.note(
        f"Keep it: it is not shown again. {key['name']} may {key['scope']}{until}; id {key['id']}"
    )


@app.command("list")
@asks_gateway
def list_keys(desk: Desk) -> None:
    """Show all keys, without their secrets.

    \b
    trunkline keys list
    """
    keys = list(desk.gateway.every(KEYS, "keys"))
    if desk.screen.as_json:
        desk.screen.json({"keys": keys, "total": len(keys)})
        return
    if not keys:
        desk.screen.say("No keys.")
        return
    desk.screen.table(
        [Column("ID"), Column("NAME", folds=True), Column("SCOPE"), Column("CREATED"), Column("ENDS")],
        [(key["id"], key["name"], key["scope"], key["created_at"], _ends(key)) for key in keys],
    )


@app.command("revoke")
@asks_gateway
def revoke_key(
    desk: Desk,
    key_id: Annotated[str, typer.Argument(metavar="ID", help="As `keys list` shows it.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Take a key back; it stops working at once.

    \b
    trunkline keys revoke 4b1d… --yes
    """
    confirm(desk.screen, f"Revoke the key {key_id}?", yes=yes)
    desk.gateway.delete(f"{KEYS}/{segment(key_id)}")
    if desk.screen.as_json:
        desk.screen.json({"id": key_id, "revoked": True})
    else:
        desk.screen.say(f"Revoked {key_id}.")


def _ends(key: dict[str, Any]) -> str:
    if key.get("revoked_at"):
        return f"revoked {key['revoked_at']}"
    return key.get("expires_at") or "never"
