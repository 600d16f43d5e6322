"""What a server offers, brought level with what it said: behind `apply_tools` and `apply_items`.

They run inside a transaction of the store and hold the server's row, so that two gateways on one
PostgreSQL that discover the same server do so one after the other.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime

from sqlalchemy import Connection, bindparam, delete, insert, select, update

from trunkline.errors import ServerNotFound
from trunkline.model import Item
from trunkline.ports import ToolDraft
from trunkline.store.rows import Values, item_values, key_digest
from trunkline.store.tables import external_servers, items, tools


def apply_tools(
    connection: Connection,
    server_id: str,
    upserts: Iterable[ToolDraft],
    removed: Iterable[str],
    at: datetime,
) -> dict[str, int]:
    server_name = _hold(connection, server_id)
    _remove_tools(connection, server_id, removed)
    drafts = {draft.original_name: draft for draft in upserts}
    stored = connection.execute(
        select(tools.c.original_name, tools.c.id).where(tools.c.source_server_id == server_id)
    )
    ids = {name: tool_id for name, tool_id in stored if name in drafts}
    _change_tools(connection, [_changed(ids[name], drafts[name], at) for name in ids])
    fresh = [draft for name, draft in drafts.items() if name not in ids]
    return ids | _insert_tools(connection, server_id, server_name, fresh, at)


def _remove_tools(connection: Connection, server_id: str, names: Iterable[str]) -> None:
    statement = delete(tools).where(
        tools.c.source_server_id == bindparam("server"), tools.c.original_name == bindparam("gone")
    )
    if values := [{"server": server_id, "gone": name} for name in names]:
        connection.execute(statement, values)


def _changed(tool_id: int, draft: ToolDraft, at: datetime) -> Values:
    return {"changed_id": tool_id, "new_fingerprint": draft.fingerprint, **_read_out(draft, at)}


def _change_tools(connection: Connection, values: list[Values]) -> None:
    # One that another gateway has already brought up to date keeps the classification it got since.
    statement = update(tools).where(
        tools.c.id == bindparam("changed_id"), tools.c.fingerprint != bindparam("new_fingerprint")
    )
    if values:
        connection.execute(statement, values)


def _insert_tools(
    connection: Connection, server_id: str, server_name: str, drafts: Sequence[ToolDraft], at: datetime
) -> dict[str, int]:
    if not drafts:
        return {}
    values = [
        {
            **_read_out(draft, at),
            "name": f"{server_name}.{draft.original_name}",
            "original_name": draft.original_name,
            "source_server_id": server_id,
            "is_external": True,
            "discovered_at": at,
        }
        for draft in drafts
    ]
    new_ids = connection.execute(insert(tools).returning(tools.c.id, sort_by_parameter_order=True), values)
    return {draft.original_name: tool_id for draft, (tool_id,) in zip(drafts, new_ids, strict=True)}


def _read_out(draft: ToolDraft, at: datetime) -> Values:
    """What a definition says, and that nobody has classified it yet."""
    return {
        "description": draft.description,
        "input_schema": dict(draft.input_schema),
        "definition": draft.definition,
        "fingerprint": draft.fingerprint,
        "updated_at": at,
        "is_classified": False,
        "skill_ids": [],
        "primary_skill_id": None,
    }


def apply_items(
    connection: Connection, server_id: str, upserts: Iterable[Item], removed: Iterable[tuple[str, str]]
) -> None:
    _hold(connection, server_id)
    fresh = {(str(item.kind), item.key): item for item in upserts}
    # Nothing refers to an item's row: one that changed is simply written anew.
    replaced = [
        {"server": server_id, "gone_kind": str(kind), "gone_digest": key_digest(key)}
        for kind, key in {*removed, *fresh}
    ]
    statement = delete(items).where(
        items.c.source_server_id == bindparam("server"),
        items.c.kind == bindparam("gone_kind"),
        items.c.key_digest == bindparam("gone_digest"),
    )
    if replaced:
        connection.execute(statement, replaced)
    if fresh:
        connection.execute(insert(items), [item_values(item) for item in fresh.values()])


def _hold(connection: Connection, server_id: str) -> str:
    """Keep the server's row as it is until the transaction ends; its name."""
    query = (
        select(external_servers.c.name)
        .where(external_servers.c.id == server_id)
        .with_for_update(key_share=True)
    )
    name = connection.execute(query).scalar_one_or_none()
    if name is None:
        raise ServerNotFound(server_id)
    return str(name)
