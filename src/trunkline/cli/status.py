"""`trunkline status`: the gateway at a glance."""

from trunkline.cli.desk import Desk, asks_gateway
from trunkline.cli.gateway_client import AGGREGATOR


@asks_gateway
def show_status(desk: Desk) -> None:
    """Show how many servers and tools there are, and whether all is well.

    \b
    trunkline status
    trunkline status --json
    """
    state = desk.gateway.get(f"{AGGREGATOR}/state")
    health = desk.gateway.get(f"{AGGREGATOR}/health")
    if desk.screen.as_json:
        desk.screen.json({"state": state, "health": health})
        return
    desk.screen.fields(
        [
            ("gateway", desk.gateway.address.url),
            ("status", health["status"]),
            ("issues", "; ".join(health.get("issues") or ()) or "none"),
            ("servers", f"{state['total_servers']} ({_parts(state)})"),
            ("tools", state["total_tools"]),
            ("last sync", state["last_sync"]),
            ("up for", duration(state["uptime_seconds"])),
        ]
    )


def _parts(state: dict[str, int]) -> str:
    kinds = ("connected", "connecting", "disconnected", "error")
    return ", ".join(f"{state[f'{kind}_servers']} {kind}" for kind in kinds)


def duration(seconds: float) -> str:
    """`3 d 4 h`, `12 min`, `8 s`: the two largest units."""
    parts = []
    rest = int(seconds)
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1)):
        number, rest = divmod(rest, size)
        if number:
            parts.append(f"{number} {unit}")
    return " ".join(parts[:2]) or "0 s"
