"""What is a task, where its id is, and that nothing else of it is touched."""

import json

import pytest

from trunkline.wire import jsonrpc, tasks

ASKED = b'{"extensions":{"io.modelcontextprotocol/tasks":{}}}'
TASK = b'{"taskId":"a","status":"working","ttlMs":null,"odd":1.50}'


@pytest.mark.parametrize(
    ("capabilities", "takes"),
    [
        (ASKED, True),
        (b'{"sampling":{},"extensions":{"a/b":{},"io.modelcontextprotocol/tasks":{"x":1}}}', True),
        (b"{}", False),
        (b'{"tasks":{}}', False),
        (b'{"io.modelcontextprotocol/tasks":{}}', False),
        (b'{"extensions":["io.modelcontextprotocol/tasks"]}', False),
        (b'{"extensions":{"io.modelcontextprotocol/tasks":null}}', False),
        (b'{"extensions":{"io.modelcontextprotocol/tasks": { } }}', True),
        (b'{"extensions":{"a/b":"io.modelcontextprotocol/tasks"}}', False),
    ],
)
def test_a_client_takes_tasks_if_it_declares_the_extension(capabilities: bytes, takes: bool) -> None:
    assert tasks.declared(capabilities) is takes
    assert tasks.declared(tasks.declaring(b"{}"))


def test_declaring_keeps_what_else_is_declared() -> None:
    given = b'{"sampling":{},"extensions":{"a/b":{"c":1.50}}}'
    assert tasks.declaring(given) == (
        b'{"sampling":{},"extensions":{"a/b":{"c":1.50},"io.modelcontextprotocol/tasks":{}}}'
    )
    with pytest.raises(jsonrpc.Malformed):
        tasks.declaring(b'{"extensions":[]}')


def test_an_error_says_that_tasks_are_needed() -> None:
    assert tasks.required(tasks.REQUIRED)
    assert not tasks.required(None)
    assert not tasks.required(b'"io.modelcontextprotocol/tasks"')
    assert not tasks.required(b'{"requiredCapabilities":{"sampling":{}}}')


@pytest.mark.parametrize(
    ("result", "is_one"),
    [
        (b'{"resultType":"task","taskId":"a"}', True),
        (b' { "resultType" : "task" }', True),
        (b'{"taskId":"a","resultType":"task"}', True),
        (b'{"structuredContent":{"resultType":"complete"},"resultType":"task"}', True),
        (b'{"resultType":"complete","taskId":"a"}', False),
        (b'{"content":[],"resultType":"complete"}', False),
        (b'{"content":[]}', False),
        (b'{"structuredContent":{"resultType":"task"},"resultType":"complete"}', False),
        (b'{"structuredContent":{"resultType":"task"}}', False),
        (b'{"content":[{"type":"text","text":"\\"resultType\\":\\"task\\""}]}', False),
    ],
)
def test_an_answer_is_a_task_if_it_says_so_itself(result: bytes, is_one: bool) -> None:
    assert tasks.is_task(result) is is_one


def test_another_id_changes_nothing_else() -> None:
    assert tasks.with_id(TASK, "b") == b'{"taskId":"b","status":"working","ttlMs":null,"odd":1.50}'
    assert tasks.with_id(b'{"status":"working"}', "b") == b'{"status":"working","taskId":"b"}'


def test_what_is_read_of_a_task() -> None:
    told = tasks.read(
        b'{"taskId":"a","status":"failed","statusMessage":"x","pollIntervalMs":250,"error":{"code":1,'
        b'"message":"y"},"result":' + b"[" * 5000 + b"]" * 5000 + b"}"
    )
    assert (told.task_id, told.status, told.status_message) == ("a", "failed", "x")
    assert (told.poll_interval_ms, told.error.message) == (250, "y")
    for broken in (b"[]", b'{"taskId":7}', b'{"taskId":"a","status":null}'):
        with pytest.raises(jsonrpc.Malformed):
            tasks.read(broken)


def test_the_result_of_a_task_is_an_object() -> None:
    assert tasks.result_of(b'{"result":{ "a":1.0}}') == b'{ "a":1.0}'
    for broken in (b"{}", b'{"result":[]}'):
        with pytest.raises(jsonrpc.Malformed):
            tasks.result_of(broken)


def test_only_the_result_in_a_task_is_cut() -> None:
    text = "x" * 10_000
    told = json.dumps(
        {"taskId": "a", "result": {"content": [{"type": "text", "text": text}], "structuredContent": text}}
    ).encode()
    assert tasks.within(told, len(told)) is told
    cut = json.loads(tasks.within(told, 2000))
    assert len(json.dumps(cut)) <= 2100
    assert "at most 2000 are passed on" in cut["result"]["content"][-1]["text"]
    without = b'{"taskId":"a","statusMessage":"%b"}' % text.encode()
    assert tasks.within(without, 2000) is without


def test_a_notification_says_what_asking_says_and_to_which_subscription_it_belongs() -> None:
    told = b'{"resultType":"complete","taskId":"a","n":1.0,"_meta":{"own":1.50,"s":1}}'
    assert tasks.notification(told, {"s": b'"2"'}) == (
        b'{"jsonrpc":"2.0","method":"notifications/tasks","params":'
        b'{"taskId":"a","n":1.0,"_meta":{"own":1.50,"s":"2"}}}'
    )


def test_what_a_server_agreed_to() -> None:
    assert tasks.agreed(b'{"notifications":{"taskIds":["a","b"]},"_meta":{}}') == {"a", "b"}
    for nothing in (b"{}", b"", b'{"notifications":{}}', b'{"notifications":{"taskIds":[7]}}'):
        assert tasks.agreed(nothing) == frozenset()
    assert tasks.wanted(["a", "b"]) == b'{"notifications":{"taskIds":["a","b"]}}'
