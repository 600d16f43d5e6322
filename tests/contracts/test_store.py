"""What every `Store` owes, on SQLite and on PostgreSQL alike (R-54)."""

import asyncio
from dataclasses import replace
from datetime import timedelta, timezone

import pytest

from tests.conftest import StorePlace
from tests.samples import NOON, new_record, new_server
from trunkline.errors import KeyNotFound, ServerAlreadyExists, ServerNotFound, StorageUnavailable
from trunkline.model import (
    ApiKey,
    AuditRecord,
    Era,
    HistoryEvent,
    HistoryRecord,
    Item,
    ItemKind,
    Scope,
    Server,
    ServerStatus,
    StatusMove,
    Transport,
)
from trunkline.ports import AuditFilter, Store, StoredTool, ToolDraft

STRANGER = "00000000-0000-4000-8000-000000000000"


def draft(
    name: str, definition: bytes = b"{}", *, fingerprint: str = "f1", description: str = ""
) -> ToolDraft:
    return ToolDraft(name, description, definition, fingerprint, {"type": "object"})


async def added(store: Store, server: Server) -> Server:
    await store.add_server(server, AuditRecord("server.registered", "admin", server.registered_at))
    return server


async def only_server(store: Store) -> Server:
    (server,) = await store.load_servers()
    return server


# Servers


async def test_a_server_reads_back_field_for_field(store: Store) -> None:
    """R-04: nothing of a registration is lost or changed, also over a restart."""
    elsewhere = timezone(timedelta(hours=-7))
    full = new_server(
        "full",
        transport=Transport.STDIO,
        health_check_url="https://example.org/health",
        wanted=False,
        status=ServerStatus.ERROR,
        error_message="exit code 1: naïve “error” 🚫",
        tool_count=7,
        era=Era.MODERN,
        registered_at=NOON.astimezone(elsewhere),
        connected_at=NOON + timedelta(seconds=1),
        last_health_check=NOON + timedelta(seconds=2),
    )
    bare = new_server("bare", description=None, registered_at=NOON + timedelta(seconds=9))
    await added(store, full)
    await added(store, bare)
    await store.close()
    await store.open()
    assert await store.load_servers() == [full, bare]
    assert all(server.registered_at.utcoffset() == timedelta(0) for server in await store.load_servers())


async def test_a_name_is_taken_once_and_the_refused_one_leaves_nothing(store: Store) -> None:
    """R-02."""
    first = await added(store, new_server("twin"))
    with pytest.raises(ServerAlreadyExists, match="Server already exists: twin"):
        await store.add_server(new_server("twin"), new_record("server.refused"))
    assert await store.load_servers() == [first]
    assert await store.read_audit(AuditFilter(event="server.refused")) == ([], 0)


async def test_of_many_that_want_one_name_at_once_exactly_one_gets_it(store: Store) -> None:
    """R-02: the race is decided by the database."""
    rivals = [new_server("prize") for _ in range(20)]
    ends = await asyncio.gather(*(added(store, rival) for rival in rivals), return_exceptions=True)
    winners = [end for end in ends if isinstance(end, Server)]
    assert await store.load_servers() == winners
    assert len(winners) == 1
    assert sum(isinstance(end, ServerAlreadyExists) for end in ends) == 19


async def test_an_update_changes_what_the_operator_may_change_and_no_more(store: Store) -> None:
    """R-10: the name is not among it, and neither is what the gateway observed."""
    server = await added(store, new_server(status=ServerStatus.CONNECTED, tool_count=3))
    later = NOON + timedelta(hours=1)
    allowed = {
        "description": None,
        "sealed_config": "v1.k2.other",
        "health_check_url": "https://example.org/up",
        "wanted": False,
        "era": Era.LEGACY,
        "updated_at": later,
    }
    observed = {"name": "other", "status": ServerStatus.ERROR, "tool_count": 0}
    await store.update_server(replace(server, **allowed, **observed), new_record("server.updated"))  # type: ignore[arg-type]
    assert await only_server(store) == replace(server, **allowed)  # type: ignore[arg-type]
    assert (await store.read_audit(AuditFilter(event="server.updated")))[1] == 1


async def test_verbs_on_a_server_that_is_gone_say_so(store: Store) -> None:
    """R-04, R-07: and they leave no audit record of what did not happen."""
    with pytest.raises(ServerNotFound):
        await store.update_server(new_server(), new_record())
    with pytest.raises(ServerNotFound):
        await store.remove_server(STRANGER, new_record())
    with pytest.raises(ServerNotFound):
        await store.apply_tools(STRANGER, [draft("echo")], [], NOON)
    with pytest.raises(ServerNotFound):
        await store.apply_items(STRANGER, [], [])
    assert await store.read_audit(AuditFilter()) == ([], 0)


async def test_a_move_leaves_status_and_history(store: Store) -> None:
    """R-14."""
    server = await added(store, new_server())
    connecting, connected, error = ServerStatus.CONNECTING, ServerStatus.CONNECTED, ServerStatus.ERROR
    at = [NOON + timedelta(seconds=second) for second in range(4)]
    await store.record_move(StatusMove(server.id, server.status, connecting, at[1]))
    await store.record_move(StatusMove(server.id, connecting, connected, at[2], event=HistoryEvent.CONNECTED))
    now = await only_server(store)
    assert (now.status, now.connected_at, now.updated_at) == (connected, at[2], at[2])
    lost = StatusMove(server.id, connected, error, at[3], "connection refused", HistoryEvent.ERROR)
    await store.record_move(lost)
    now = await only_server(store)
    assert (now.status, now.error_message, now.connected_at) == (error, "connection refused", at[2])
    assert await store.history(server.id) == [
        HistoryRecord(
            server.id,
            HistoryEvent.ERROR,
            {"from": "CONNECTED", "to": "ERROR", "error_message": "connection refused"},
            at[3],
        ),
        HistoryRecord(server.id, HistoryEvent.CONNECTED, {"from": "CONNECTING", "to": "CONNECTED"}, at[2]),
    ]
    assert [record.event for record in await store.history(server.id, limit=1)] == [HistoryEvent.ERROR]


async def test_a_degraded_server_that_recovers_was_connected_all_the_time(store: Store) -> None:
    """R-32."""
    server = await added(store, new_server(status=ServerStatus.DEGRADED, connected_at=NOON))
    later = NOON + timedelta(hours=1)
    await store.record_move(StatusMove(server.id, ServerStatus.DEGRADED, ServerStatus.CONNECTED, later))
    assert (await only_server(store)).connected_at == NOON


async def test_what_is_observed_of_a_server_that_is_gone_is_dropped(store: Store) -> None:
    """R-07: a late move, check or count does not fail whoever reports it."""
    move = StatusMove(STRANGER, ServerStatus.CONNECTED, ServerStatus.ERROR, NOON, "late", HistoryEvent.ERROR)
    await store.record_move(move)
    await store.record_health({STRANGER: NOON})
    await store.set_tool_count(STRANGER, 1)
    await store.remember_era(STRANGER, Era.MODERN)
    assert await store.history(STRANGER) == []


async def test_observations_are_kept(store: Store) -> None:
    """R-17, R-31."""
    one, two = await added(store, new_server("one")), await added(store, new_server("two"))
    later = NOON + timedelta(seconds=30)
    await store.record_health({one.id: NOON, two.id: later})
    await store.record_health({})
    await store.set_tool_count(one.id, 12)
    await store.remember_era(one.id, Era.LEGACY)
    await store.remember_era(two.id, Era.MODERN)
    await store.remember_era(two.id, None)
    assert await store.load_servers() == [
        replace(one, last_health_check=NOON, tool_count=12, era=Era.LEGACY),
        replace(two, last_health_check=later),
    ]


async def test_a_removed_server_takes_everything_of_its_own_along_and_leaves_the_audit(store: Store) -> None:
    """R-07."""
    gone, stays = await added(store, new_server("gone")), await added(store, new_server("stays"))
    for server in (gone, stays):
        await store.apply_tools(server.id, [draft("echo")], [], NOON)
        await store.apply_items(server.id, [Item(ItemKind.RESOURCE, server.id, "file:///a", b"{}", "f")], [])
        await store.record_move(
            StatusMove(server.id, server.status, ServerStatus.CONNECTED, NOON, event=HistoryEvent.CONNECTED)
        )
    removal = new_record("server.removed", server_id=gone.id, server_name="gone")
    await store.remove_server(gone.id, removal)
    assert [server.name for server in await store.load_servers()] == ["stays"]
    assert [tool.server_id for tool in await store.load_tools()] == [stays.id]
    assert [item.server_id for item in await store.load_items()] == [stays.id]
    assert await store.history(gone.id) == []
    assert len(await store.history(stays.id)) == 1
    assert await store.read_audit(AuditFilter(server=gone.id)) == ([removal], 1)


# Definitions


async def test_a_definition_comes_back_byte_for_byte(store: Store) -> None:
    """R-30: unknown fields, odd spacing, escapes and bytes that are no UTF-8."""
    server = await added(store, new_server())
    odd = b'{ "name" :"a.b",\t"x-new":[1e2, "\\u0000\\ud83d\\ude00"],"\xff\xfe\x00": 1 }\r\n'
    ids = await store.apply_tools(server.id, [draft("a.b", odd)], [], NOON)
    await store.close()
    await store.open()
    assert await store.load_tools() == [StoredTool(ids["a.b"], server.id, "a.b", odd, "f1", NOON)]


async def test_text_that_a_database_refuses_costs_no_tool(store: Store) -> None:
    """R-20."""
    server = await added(store, new_server())
    hostile = [
        draft("nul", description="a\x00b"),
        draft("surrogate", description="\ud800"),
        draft("quotes'\"; DROP TABLE tools --", description="%s :name ? $1"),
        draft("ü" * 255),
        replace(draft("schema"), input_schema={"\x00": ["\ud800", None, 1e300, {"deep": {}}]}),
    ]
    ids = await store.apply_tools(server.id, hostile, [], NOON)
    assert set(ids) == {tool.original_name for tool in hostile}
    assert {tool.original_name: tool.id for tool in await store.load_tools()} == ids


async def test_a_changed_tool_keeps_its_id_and_age_and_loses_its_classification(
    store: Store, store_place: StorePlace
) -> None:
    """R-18: same name again updates."""
    server = await added(store, new_server())
    later = NOON + timedelta(hours=1)
    ids = await store.apply_tools(server.id, [draft("changed"), draft("same"), draft("absent")], [], NOON)
    store_place.execute(
        "UPDATE mcp.tools SET is_classified = true, skill_ids = '[\"files\"]', primary_skill_id = 'files'"
    )
    news = [draft("changed", b'{"v":2}', fingerprint="f2"), draft("same"), draft("new")]
    after = await store.apply_tools(server.id, news, [], later)
    assert after == {"changed": ids["changed"], "same": ids["same"], "new": after["new"]}
    tools = {tool.original_name: tool for tool in await store.load_tools()}
    assert tools["changed"] == StoredTool(ids["changed"], server.id, "changed", b'{"v":2}', "f2", NOON)
    kept = StoredTool(ids["same"], server.id, "same", b"{}", "f1", NOON, ("files",), "files", True)
    assert tools["same"] == kept
    assert tools["absent"] == replace(kept, id=ids["absent"], original_name="absent")
    assert tools["new"].discovered_at == later


async def test_removed_tools_go_and_others_of_that_name_stay(store: Store) -> None:
    """R-18: a tool that vanished is removed, of this server alone."""
    one, two = await added(store, new_server("one")), await added(store, new_server("two"))
    for server in (one, two):
        await store.apply_tools(server.id, [draft("a"), draft("b")], [], NOON)
    assert await store.apply_tools(one.id, [], ["a", "never-there"], NOON) == {}
    names = [(tool.server_id, tool.original_name) for tool in await store.load_tools()]
    assert sorted(names) == sorted([(one.id, "b"), (two.id, "a"), (two.id, "b")])


async def test_thousands_of_tools_are_written_at_once_each_under_its_own_id(store: Store) -> None:
    """R-18: 500+ tools."""
    server = await added(store, new_server())
    many = [draft(f"tool_{number}", b"%d" % number) for number in range(3000)]
    ids = await store.apply_tools(server.id, many, [], NOON)
    stored = {tool.id: tool.definition for tool in await store.load_tools()}
    assert {ids[f"tool_{number}"]: b"%d" % number for number in range(3000)} == stored
    changed = [replace(tool, fingerprint="f2") for tool in many[:2000]]
    names = [tool.original_name for tool in many[2000:]]
    again = await store.apply_tools(server.id, changed, names, NOON)
    assert again.items() < ids.items()
    assert len(await store.load_tools()) == 2000


async def test_items_are_kept_by_kind_and_key_however_long_the_key(store: Store) -> None:
    """R-17: prompts, resources and templates."""
    server = await added(store, new_server())
    # Neither repeats itself, so that no index can squeeze it.
    uri = "data:," + "".join(chr(0x4E00 + number) for number in range(4000))
    prompt = Item(ItemKind.PROMPT, server.id, "name", b'{"p":1}', "f1")
    resource = Item(ItemKind.RESOURCE, server.id, uri, b'{"r":1}', "f1")
    template = Item(ItemKind.TEMPLATE, server.id, "name", b"\xff", "f1")
    await store.apply_items(server.id, [prompt, resource, template], [])
    assert await store.load_items() == [prompt, resource, template]
    changed = replace(resource, definition=b'{"r":2}', fingerprint="f2")
    await store.apply_items(server.id, [changed], [(ItemKind.PROMPT, "name"), ("resource", "never-there")])
    assert await store.load_items() == [changed, template]


# Keys


async def test_keys_read_back_and_are_revoked_once(store: Store) -> None:
    """R-47."""
    lasting = ApiKey("k1", "ops", Scope.ADMIN, bytes(range(32)), NOON)
    brief = ApiKey("k2", "ci", Scope.CALL, b"\x00\xff", NOON, expires_at=NOON + timedelta(days=1))
    for key in (lasting, brief):
        await store.add_key(key, new_record("key.created"))
    later = NOON + timedelta(hours=1)
    await store.revoke_key("k1", later, new_record("key.revoked"))
    for gone in ("k1", "k3"):
        with pytest.raises(KeyNotFound):
            await store.revoke_key(gone, later + timedelta(hours=1), new_record("key.revoked"))
    assert await store.load_keys() == [replace(lasting, revoked_at=later), brief]
    assert (await store.read_audit(AuditFilter(event="key.created")))[1] == 2
    assert (await store.read_audit(AuditFilter(event="key.revoked")))[1] == 1


# Audit


async def test_audit_records_are_filtered_and_paged_newest_first(store: Store) -> None:
    """R-51."""
    records = [
        new_record("server.registered", minutes=0, server_id="id-a", server_name="a", ip_address="::1"),
        new_record("server.registered", minutes=1, server_id="id-b", server_name="b", actor="ops"),
        new_record("tool.called", minutes=2, server_name="a", details={"tool": "a.echo", "ok": True}),
        new_record("key.created", minutes=3, actor="ops"),
    ]
    await store.append_audit(records[::-1])
    await store.append_audit([])
    newest = records[::-1]
    assert await store.read_audit(AuditFilter()) == (newest, 4)
    assert await store.read_audit(AuditFilter(limit=2, offset=1)) == (newest[1:3], 4)
    assert await store.read_audit(AuditFilter(offset=4)) == ([], 4)
    assert await store.read_audit(AuditFilter(event="server.registered")) == (records[1::-1], 2)
    assert await store.read_audit(AuditFilter(server="a")) == ([records[2], records[0]], 2)
    assert await store.read_audit(AuditFilter(server="id-b")) == ([records[1]], 1)
    assert await store.read_audit(AuditFilter(actor="ops", limit=1)) == ([records[3]], 2)
    assert await store.read_audit(AuditFilter(since=NOON + timedelta(minutes=2))) == (newest[:2], 2)
    assert await store.read_audit(AuditFilter(event="server.registered", actor="ops", server="b")) == (
        [records[1]],
        1,
    )


async def test_of_records_of_one_moment_the_later_written_comes_first(store: Store) -> None:
    """R-51: pages neither repeat nor skip a record."""
    records = [new_record(f"event.{number}") for number in range(30)]
    await store.append_audit(records)
    pages = [(await store.read_audit(AuditFilter(limit=7, offset=start)))[0] for start in range(0, 30, 7)]
    assert [record for page in pages for record in page] == records[::-1]


async def test_old_audit_records_are_pruned_however_many(store: Store) -> None:
    """R-51: what is exactly as old as the limit stays."""
    kept = new_record("kept", minutes=0)
    await store.append_audit([new_record(minutes=-1)] * 12_001 + [kept])
    assert await store.prune_audit(NOON) == 12_001
    assert await store.prune_audit(NOON) == 0
    assert await store.read_audit(AuditFilter()) == ([kept], 1)


# Marks, and the store as a whole


async def test_a_mark_holds_its_last_value(store: Store) -> None:
    assert await store.get_mark("admin-key") is None
    await store.set_mark("admin-key", "k1")
    await asyncio.gather(*(store.set_mark("race", "same") for _ in range(8)))
    await store.set_mark("admin-key", "")
    assert await store.get_mark("admin-key") == ""
    assert await store.get_mark("race") == "same"


async def test_64_writers_at_once_all_succeed(store: Store) -> None:
    """R-54: no writer ever meets a locked database."""

    async def writer(number: int) -> None:
        server = await added(store, new_server(f"server-{number}"))
        await store.apply_tools(server.id, [draft("echo"), draft("sum")], [], NOON)
        await store.record_move(StatusMove(server.id, server.status, ServerStatus.CONNECTING, NOON))
        await store.load_tools()

    await asyncio.gather(*(writer(number) for number in range(64)))
    assert {server.status for server in await store.load_servers()} == {ServerStatus.CONNECTING}
    assert len(await store.load_tools()) == 128


async def test_closing_lets_what_was_begun_end_and_takes_nothing_new(store: Store) -> None:
    writes = [asyncio.create_task(store.set_mark(f"m{number}", "kept")) for number in range(50)]
    await asyncio.sleep(0)
    await store.close()
    for _ in range(5):  # turns of the loop, in which those answered can say so
        await asyncio.sleep(0)
    assert all(write.done() for write in writes)
    with pytest.raises(StorageUnavailable):
        await store.set_mark("late", "lost")
    with pytest.raises(StorageUnavailable):
        await store.ping()
    await asyncio.gather(*writes)
    await store.open()
    await store.ping()
    assert [await store.get_mark(f"m{number}") for number in range(50)] == ["kept"] * 50
    assert await store.get_mark("late") is None


async def test_a_ping_tells_of_writes_that_fail_while_reads_work(
    store: Store, store_place: StorePlace
) -> None:
    """R-33: until one succeeds again."""
    await store.ping()
    store_place.execute("ALTER TABLE mcp.marks RENAME TO marks_away")
    with pytest.raises(StorageUnavailable):
        await store.set_mark("m", "lost")
    assert await store.load_servers() == []
    for _ in range(2):
        with pytest.raises(StorageUnavailable, match="takes no write"):
            await store.ping()
    store_place.execute("ALTER TABLE mcp.marks_away RENAME TO marks")
    await store.ping()
    await store.set_mark("m", "kept")
    assert await store.get_mark("m") == "kept"
