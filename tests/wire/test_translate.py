"""What changes between the eras, and that nothing else does."""

import json
from typing import Any

import pytest

from trunkline.wire import eras, jsonrpc, translate
from trunkline.wire.jsonrpc import Malformed


@pytest.mark.parametrize(
    ("result", "kind"),
    [
        (b'{"content":[]}', "complete"),
        (b'{"resultType":"complete"}', "complete"),
        (b'{"resultType":"input_required","inputRequests":{}}', "input_required"),
        (b'{"resultType":"task","taskId":"1"}', "task"),
        (b'{"content":[{"type":"text","text":"\\"resultType\\":\\"input_required\\""}]}', "complete"),
        (b'{"structuredContent":{"resultType":"input_required"}}', "complete"),
        (b'{"resultType":7}', "complete"),
    ],
)
def test_the_kind_of_a_result_is_its_own_member_alone(result: bytes, kind: str) -> None:
    assert translate.result_type(result) == kind


def test_a_result_for_the_newer_era_is_marked_and_else_unchanged() -> None:
    given = b'{ "content": [ 1.50 ], "x":{"resultType":"y"} }'
    made = translate.to_modern("tools/call", given)
    assert made == b'{"resultType":"complete","content": [ 1.50 ], "x":{"resultType":"y"}}'
    assert translate.to_modern("tools/call", b'{"resultType":"task"}') == b'{"resultType":"task"}'
    read = json.loads(translate.to_modern("resources/read", b"{}"))
    assert read == {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (b'{"content":[],"structuredContent":[1]}', b'{"content":[]}'),
        (b'{"structuredContent":null,"content":[]}', b'{"content":[]}'),
        (b'{"structuredContent": {"a":1}}', b'{"structuredContent": {"a":1}}'),
        (b'{"content":["structuredContent"]}', b'{"content":["structuredContent"]}'),
    ],
)
def test_the_older_era_holds_objects_alone_as_structure(given: bytes, kept: bytes) -> None:
    assert translate.to_legacy(given) == kept


def test_questions_are_read_and_asked() -> None:
    asked = {"a": ("roots/list", b"{}"), "b": ("elicitation/create", b'{"message":"Who?"}')}
    result = translate.input_required(asked, "state")
    assert translate.questions(result) == (asked, b'"state"')
    assert translate.result_type(result) == translate.INPUT_REQUIRED
    with pytest.raises(Malformed):
        translate.questions(b'{"resultType":"input_required","inputRequests":{"a":{}}}')


def test_a_question_by_address_has_an_id_in_the_older_era_alone() -> None:
    given = b'{"mode":"url","url":"https://x"}'
    older = json.loads(translate.question_for_legacy("elicitation/create", given, "e1"))
    assert older["elicitationId"] == "e1"
    newer = translate.question_for_modern("elicitation/create", json.dumps(older).encode())
    assert json.loads(newer) == json.loads(given)
    form = json.loads(translate.question_for_modern("elicitation/create", b'{"message":"Who?"}'))
    assert form == {"message": "Who?", "mode": "form"}


@pytest.mark.parametrize(
    ("declared", "method", "params", "able"),
    [
        ({"elicitation": {}}, "elicitation/create", b"{}", True),
        ({"elicitation": {"form": {}}}, "elicitation/create", b"{}", True),
        ({"elicitation": {"form": {}}}, "elicitation/create", b'{"mode":"url"}', False),
        ({"elicitation": {"url": {}}}, "elicitation/create", b'{"mode":"form"}', False),
        ({"sampling": {}}, "sampling/createMessage", b"{}", True),
        ({}, "roots/list", b"{}", False),
        ({"roots": 1}, "roots/list", b"{}", False),
    ],
)
def test_only_what_was_declared_is_asked(
    declared: dict[str, Any], method: str, params: bytes, able: bool
) -> None:
    assert translate.can_answer(declared, method, params) is able


def test_codes_of_one_era_do_not_reach_the_other() -> None:
    for code in (eras.HEADER_MISMATCH, eras.MISSING_CAPABILITY, eras.UNSUPPORTED_VERSION):
        assert translate.error_code_for_legacy(code, "tools/call") == jsonrpc.INVALID_REQUEST
    assert translate.error_code_for_legacy(jsonrpc.INVALID_PARAMS, "resources/read") == -32002
    assert translate.error_code_for_legacy(-32042, "tools/call") == -32042
    assert translate.error_code_for_modern(-32002) == jsonrpc.INVALID_PARAMS
    assert translate.error_code_for_modern(-32000) == jsonrpc.INTERNAL_ERROR
    assert translate.error_code_for_modern(17) == 17


@pytest.mark.parametrize("limit", [1024, 2000, 5000])
def test_a_result_is_cut_to_its_limit_and_says_so(limit: int) -> None:
    blocks = [{"type": "text", "text": "é" * 3000}, {"type": "image", "data": "x" * 9000}]
    result = json.dumps(
        {"content": blocks, "structuredContent": {"a": "y" * 9000}, "isError": False}
    ).encode()
    cut = json.loads(translate.cut(result, limit))
    assert len(json.dumps(cut, ensure_ascii=False).encode()) <= limit + 512
    assert f"at most {limit} are passed on" in cut["content"][-1]["text"]
    assert cut["isError"] is False
    assert "structuredContent" not in cut
