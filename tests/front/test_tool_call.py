"""The hot path: what a call's body may be, and that what a server answers comes back as it was."""

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.front.conftest import Running, registered, until
from trunkline.errors import ExecutionFailed, ValidationError
from trunkline.front.tool_call import compose, read_call
from trunkline.model import Outcome, Scope

CALL = "/api/v1/tools/call"
DEEP = b"[" * 5000 + b"]" * 5000


def outcome(result: bytes, warning: str | None = None) -> Outcome:
    return Outcome(result, "id-1", "srv", 1.25, 10.5, warning)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"name":"a.b","arguments":{"x": 1.0}}', ("a.b", b'{"x": 1.0}', None)),
        (b'{"name":"a"}', ("a", b"{}", None)),
        (b'{"name":"a","arguments":null,"server_id":null}', ("a", b"{}", None)),
        (b'{"server_id":"s","name":"a","arguments": { } }', ("a", b"{ }", "s")),
        (b'{"name":"first","name":"last"}', ("last", b"{}", None)),
        (b'{"name":"a","arguments":{"x":1},"arguments":{"x":2}}', ("a", b'{"x":2}', None)),
        ('{"name":"é","arguments":{"ü":"日"}}'.encode(), ("é", '{"ü":"日"}'.encode(), None)),
        (
            b'{"name":"a","arguments":{"x": "cut \\ud83d"},"server_id":"s"}',
            ("a", b'{"x": "cut \\ud83d"}', "s"),
        ),
        (b'{"name":"a","arguments":{"x":' + DEEP + b"}}", ("a", b'{"x":' + DEEP + b"}", None)),
    ],
)
def test_a_call_is_read_with_its_arguments_as_they_came(body: bytes, expected: object) -> None:
    """R-30."""
    assert read_call(body) == expected


@pytest.mark.parametrize(
    ("body", "loc", "kind"),
    [
        (b"", ("body",), "json_invalid"),
        (b"{", ("body",), "json_invalid"),
        (b'{"name":"a"} x', ("body",), "json_invalid"),
        (b'{"name":"a","arguments":{"x":"\xff"}}', ("body",), "json_invalid"),
        (b'{"name":"\\ud800"}', ("body",), "json_invalid"),
        (b'{"name":"\\ud800","arguments":{"x":"\\ud800"}}', ("body",), "json_invalid"),
        (b'{"name":"a","arguments":{"x":"\\ud800"', ("body",), "json_invalid"),
        (b'{"name":"a","arguments":{"x":"\\ud800",}}', ("body",), "json_invalid"),
        (b'{"name":"a","argument":{"x":"\\ud800"}}', ("body", "argument"), "extra_forbidden"),
        (b'{"name":7,"arguments":{"x":"\\ud800"}}', ("body", "name"), "string_type"),
        (b'{"arguments":{"x":"\\ud800"}}', ("body", "name"), "missing"),
        (b'{"name":"a","arguments":{"x":["\\ud800"' + b",1" * 50_000 + b"]}}", ("body",), "json_invalid"),
        (b'{"name":"a","arguments":' + b"[" * 5000 + b"]" * 5000 + b"}", ("body", "arguments"), "dict_type"),
        (b"[]", ("body",), "model_attributes_type"),
        (b"null", ("body",), "model_attributes_type"),
        (b"{}", ("body", "name"), "missing"),
        (b'{"name":7}', ("body", "name"), "string_type"),
        (b'{"name":null}', ("body", "name"), "string_type"),
        (b'{"name":""}', ("body", "name"), "value_error"),
        (b'{"name":"' + b"n" * 1025 + b'"}', ("body", "name"), "value_error"),
        (b'{"name":"a","server_id":7}', ("body", "server_id"), "string_type"),
        (b'{"name":"a","arguments":[]}', ("body", "arguments"), "dict_type"),
        (b'{"name":"a","arguments":"{}"}', ("body", "arguments"), "dict_type"),
        (b'{"name":"a","Name":"b"}', ("body", "Name"), "extra_forbidden"),
        (b'{"name":"a","serverId":"b"}', ("body", "serverId"), "extra_forbidden"),
    ],
)
def test_a_body_that_cannot_be_meant_says_which_field_is_wrong(
    body: bytes, loc: tuple[str, ...], kind: str
) -> None:
    with pytest.raises(ValidationError) as refused:
        read_call(body)
    assert [(fault.loc, fault.type) for fault in refused.value.faults] == [(loc, kind)]


def test_every_fault_of_a_body_is_named() -> None:
    with pytest.raises(ValidationError) as refused:
        read_call(b'{"x":1,"server_id":2}')
    assert {fault.loc for fault in refused.value.faults} == {
        ("body", "x"),
        ("body", "name"),
        ("body", "server_id"),
    }


@pytest.mark.parametrize(
    "result",
    [
        b'{ "content" : [ {"type":"hologram","n": 1.0} ] ,"isError" : true , "x":12345678901234567890123 }',
        b'{"isError":false,"content":[],"structuredContent":{"a":[1,2,  3]}}',
        b'{"content":null,"isError":null}',
    ],
)
def test_the_fields_of_a_result_are_answered_byte_for_byte(result: bytes) -> None:
    """R-26, R-30."""
    answer = compose(outcome(result), 20.0)
    assert answer[1:].startswith(result.strip()[1:-1].strip())
    assert json.loads(answer)["metadata"] == {
        "routed_to": "srv",
        "server_id": "id-1",
        "routing_time_ms": 1.25,
        "execution_time_ms": 10.5,
        "total_time_ms": 20.0,
    }


def test_content_and_is_error_are_there_even_when_the_server_left_them_out() -> None:
    """R-26."""
    answer = json.loads(compose(outcome(b" {} "), 20.0))
    assert (answer["content"], answer["isError"]) == ([], False)


def test_metadata_of_the_server_is_kept_below_ours() -> None:
    answer = compose(outcome(b'{"metadata":{"cost": 1.50},"content":[{"k":1.0}]}', "slow today"), 20.0)
    assert b'"upstream":{"cost": 1.50}' in answer
    assert b'"content":[{"k":1.0}]' in answer
    decoded = json.loads(answer)
    assert decoded["metadata"]["warning"] == "slow today"
    assert decoded["metadata"]["routed_to"] == "srv"


@pytest.mark.parametrize("result", [b'"text"', b"[]", b"null", b"{"])
def test_a_result_that_is_no_object_is_the_servers_failure(result: bytes) -> None:
    with pytest.raises(ExecutionFailed, match="srv"):
        compose(outcome(result), 1.0)


async def test_a_tool_is_called_by_its_name(front: Running, echo: str) -> None:
    """R-26: content, isError and metadata; the arguments arrive as the bytes they were (R-30)."""
    body = b'{"name":"echo.echo","arguments":{"n": 1.0, "n2":1e2,  "text":"\\u00e9"}}'
    headers = {"Content-Type": "application/json"}
    status, answer = await front.ask("POST", CALL, scope=Scope.CALL, data=body, headers=headers)
    assert status == 200
    assert '{"n": 1.0, "n2":1e2,  "text":"\\u00e9"}' in answer["content"][0]["text"]
    metadata = answer["metadata"]
    assert (metadata["routed_to"], metadata["server_id"]) == ("echo", echo)
    assert metadata["total_time_ms"] >= metadata["execution_time_ms"] > 0


async def test_a_text_cut_inside_an_emoji_reaches_the_server(front: Running, echo: str) -> None:
    """R-30: it is JSON by the grammar, and JavaScript writes it."""
    assert echo
    body = b'{"name":"echo.echo","arguments":{"text": "cut \\ud83d"}}'
    headers = {"Content-Type": "application/json"}
    status, answer = await front.ask("POST", CALL, scope=Scope.CALL, data=body, headers=headers)
    assert status == 200, answer
    assert '{"text": "cut \\ud83d"}' in answer["content"][0]["text"]


async def test_an_unusual_result_passes_unchanged(front: Running, echo: str) -> None:
    """R-29: isError is the tool's answer, 200. R-30."""
    headers = {**front.bearer(Scope.CALL), "Content-Type": "application/json"}
    async with front.client.post(front.url + CALL, data=b'{"name":"echo.odd"}', headers=headers) as answer:
        text = await answer.text()
    assert answer.status == 200
    assert '"structuredContent" : {"n": 1.0, "big": 12345678901234567890123}' in text
    assert '"x-new":[1,  2]' in text
    assert '"content": [{"type":"hologram","é":"\\u00e9"}],"isError" : true' in text


async def test_the_server_may_be_named_beside_the_original_name(front: Running, echo: str) -> None:
    """R-27."""
    status, answer = await front.call("bare", server_id=echo)
    assert (status, answer["content"], answer["isError"]) == (200, [], False)


async def test_errors_of_a_call_are_answers_with_a_code(front: Running, echo: str) -> None:
    """R-27, R-29."""
    status, answer = await front.call("echo.ecko")
    assert (status, answer["error_code"]) == (404, "TOOL_NOT_FOUND")
    assert "echo.echo" in json.dumps(answer)
    status, answer = await front.call("echo.refuse")
    assert (status, answer["error_code"]) == (502, "EXECUTION_FAILED")
    status, answer = await front.call("echo.nonsense")
    assert (status, answer["error_code"]) == (502, "EXECUTION_FAILED")


async def test_the_same_original_name_on_two_servers_is_ambiguous(
    front: Running, echo: str, tmp_path: Path
) -> None:
    """R-27: 400 with the candidates."""
    await registered(front, tmp_path, "second")
    status, answer = await front.call("bare")
    assert (status, answer["error_code"]) == (400, "TOOL_AMBIGUOUS")
    assert "echo.bare" in json.dumps(answer)
    assert "second.bare" in json.dumps(answer)


async def test_a_server_that_is_not_connected_is_unavailable(front: Running, echo: str) -> None:
    """R-28: 503 with the server's id, name and status beside detail and code."""
    await front.ask("POST", f"/api/v1/aggregator/servers/{echo}/disconnect")
    status, answer = await front.call("echo", server_id=echo)
    assert (status, answer["error_code"]) == (503, "SERVER_UNAVAILABLE")
    assert answer["server"] == {"id": echo, "name": "echo", "status": "DISCONNECTED"}


async def test_a_client_that_goes_away_cancels_its_call(front: Running, echo: str, tmp_path: Path) -> None:
    assert echo
    started = time.monotonic()
    body: dict[str, Any] = {"name": "echo.wait", "arguments": {"seconds": 20}}
    with pytest.raises(asyncio.TimeoutError):
        async with asyncio.timeout(0.3):
            await front.ask("POST", CALL, scope=Scope.CALL, json=body)
    await until((tmp_path / "cancelled").exists)
    assert time.monotonic() - started < 5


async def test_calls_are_refused_while_the_gateway_drains(front: Running, echo: str) -> None:
    assert echo
    await front.gateway.drain()
    async with front.client.post(
        front.url + CALL, json={"name": "echo.bare"}, headers=front.bearer(Scope.CALL)
    ) as answer:
        assert answer.status == 503
        assert int(answer.headers["Retry-After"]) > 0
