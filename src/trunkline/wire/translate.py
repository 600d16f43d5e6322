"""Between the eras: what has to change in a result, a question or an error on its way from one to the other.

Pure. What both eras can hold stays the bytes it was: a result is looked into only where it crosses from one
era to the other, and then one level deep. Who asks whom, and when, is decided by the fronts and `upstream/`.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from trunkline.wire import eras, jsonrpc

COMPLETE, INPUT_REQUIRED, TASK = "complete", "input_required", "task"
RESOURCE_NOT_FOUND = -32002
URL_ELICITATION_REQUIRED = -32042

_CACHED = frozenset({"resources/read", "server/discover"})
_MARK = b'"resultType"'
_STRUCTURED = b'"structuredContent"'
_NOT_KEPT = b',"ttlMs":0,"cacheScope":"private"'


class _Typed(msgspec.Struct, rename="camel"):
    result_type: str = COMPLETE


class _InputRequired(msgspec.Struct, rename="camel"):
    input_requests: dict[str, msgspec.Raw] = {}
    request_state: msgspec.Raw = msgspec.Raw(b"")


class _Question(msgspec.Struct):
    method: str
    params: msgspec.Raw = msgspec.Raw(b"{}")


_typed = msgspec.json.Decoder(_Typed)


def is_marked(result: bytes) -> bool:
    """Whether it may say what kind of result it is, as each of the newer era must."""
    return _MARK in result


def result_type(result: bytes) -> str:
    """What kind of result it is. One without the mark is of an older server, and complete."""
    if _MARK not in result:
        return COMPLETE
    try:
        return _typed.decode(result).result_type
    except (msgspec.DecodeError, RecursionError):
        return COMPLETE


def is_error(result: bytes) -> bool:
    """Whether a tool's result says that the tool failed."""
    if b'"isError"' not in result:
        return False
    try:
        return jsonrpc.fields(result).get("isError") == b"true"
    except jsonrpc.Malformed:
        return False


def questions(result: bytes) -> tuple[dict[str, tuple[str, bytes]], bytes]:
    """What a result that asks for input asks: (method, params) by key, and its state as JSON, if any.

    Raises `Malformed`.
    """
    try:
        wanted = msgspec.json.decode(result, type=_InputRequired)
        asked = {key: msgspec.json.decode(raw, type=_Question) for key, raw in wanted.input_requests.items()}
    except (msgspec.DecodeError, RecursionError):
        raise jsonrpc.Malformed("a result that asks for input in a way that cannot be read") from None
    return {key: (each.method, bytes(each.params)) for key, each in asked.items()}, bytes(
        wanted.request_state
    )


class _Elicitations(msgspec.Struct):
    elicitations: list[msgspec.Raw] = []


def visits_of_error(data: bytes) -> list[str]:
    """The ids of the visits that a `URL_ELICITATION_REQUIRED` error wants."""
    try:
        wanted = msgspec.json.decode(data, type=_Elicitations).elicitations
    except (msgspec.DecodeError, RecursionError):
        return []
    return [visit for each in wanted if (visit := eras.elicitation_id(bytes(each))) is not None]


def questions_of_error(data: bytes) -> dict[str, tuple[str, bytes]]:
    """What the data of a `URL_ELICITATION_REQUIRED` error wants of the user; empty if it cannot be read."""
    try:
        wanted = msgspec.json.decode(data, type=_Elicitations).elicitations
        return {
            f"q{number}": ("elicitation/create", question_for_modern("elicitation/create", bytes(each)))
            for number, each in enumerate(wanted, 1)
        }
    except (msgspec.DecodeError, RecursionError, jsonrpc.Malformed):
        return {}


def input_required(asked: Mapping[str, tuple[str, bytes]], state: str | None = None) -> bytes:
    requests = b",".join(
        b'%b:{"method":%b,"params":%b}' % (jsonrpc.quote(key), jsonrpc.quote(method), params or b"{}")
        for key, (method, params) in asked.items()
    )
    kept = b"" if state is None else b',"requestState":' + jsonrpc.quote(state)
    return b'{"resultType":"input_required","inputRequests":{%b}%b}' % (requests, kept)


def answers(responses: Mapping[str, bytes], state: bytes) -> bytes:
    """The members a request is repeated with."""
    given = b",".join(b"%b:%b" % (jsonrpc.quote(key), value) for key, value in responses.items())
    members = b'"inputResponses":{%b}' % given
    return members + b',"requestState":' + state if state else members


# Results


def to_modern(method: str, result: bytes) -> bytes:
    """A result of the session era for a client of the newer one."""
    inner = result.strip()[1:-1].strip()
    hints = b""
    if method in _CACHED and b'"ttlMs"' not in inner:
        hints = _NOT_KEPT
    if _MARK in inner and "resultType" in jsonrpc.fields(result):
        return result
    return b'{"resultType":"complete"%b%b%b}' % (hints, b"," if inner else b"", inner)


def to_legacy(result: bytes) -> bytes:
    """A result of the newer era for a client of the older one, which has objects alone as structure."""
    if _STRUCTURED not in result:
        return result
    members = jsonrpc.fields(result)
    structured = members.get("structuredContent", b"{").lstrip()
    if structured[:1] == b"{":
        return result
    del members["structuredContent"]
    return joined(members)


def cut(result: bytes, limit: int) -> bytes:
    """A tool's result within `limit`: its texts shortened, what else is large left out, and both said so."""
    members = jsonrpc.fields(result)
    notice = f"[Cut by the gateway: the result has {len(result)} bytes, and at most {limit} are passed on]"
    kept: list[bytes] = []
    room = max(0, limit - 1024)
    for block in _blocks(members.get("content", b"[]")):
        if len(block) > room:
            kept.append(_shortened(block, room))
            break
        kept.append(block)
        room -= len(block)
    told = b'{"type":"text","text":%b}' % jsonrpc.quote(notice)
    members["content"] = b"[%b]" % b",".join([*filter(None, kept), told])
    rest = {key: value for key, value in members.items() if key == "content" or len(value) <= 1024}
    return joined(rest)


def _blocks(content: bytes) -> list[bytes]:
    try:
        return jsonrpc.elements(content)
    except jsonrpc.Malformed:
        return []


def _shortened(block: bytes, room: int) -> bytes:
    try:
        members = jsonrpc.fields(block)
        text = msgspec.json.decode(members.get("text", b""), type=str)
    except (msgspec.DecodeError, jsonrpc.Malformed):
        return b""
    while len(quoted := jsonrpc.quote(text)) > max(0, room - 256):
        text = text[: len(text) * max(0, room - 256) // len(quoted)] if room > 256 else ""
        if not text:
            return b""
    members["text"] = quoted
    return joined(members)


def joined(members: Mapping[str, bytes]) -> bytes:
    """The object of these members."""
    return b"{%b}" % b",".join(b"%b:%b" % (jsonrpc.quote(key), value) for key, value in members.items())


# Questions


def question_for_legacy(method: str, params: bytes, elicitation_id: str) -> bytes:
    if method != "elicitation/create":
        return params or b"{}"
    members = jsonrpc.fields(params)
    if members.get("mode") == b'"url"' and "elicitationId" not in members:
        members["elicitationId"] = jsonrpc.quote(elicitation_id)
    return joined(members)


def question_for_modern(method: str, params: bytes) -> bytes:
    if method != "elicitation/create":
        return params or b"{}"
    members = jsonrpc.fields(params)
    members.pop("elicitationId", None)
    members.setdefault("mode", b'"form"')
    return joined(members)


def needs_of(method: str, params: bytes) -> tuple[str, str | None]:
    """The capability a client must have declared to be asked this, and the part of it if it has parts."""
    if method == "elicitation/create":
        return "elicitation", "url" if b'"url"' in params and _mode(params) == "url" else "form"
    return ("sampling" if method == "sampling/createMessage" else "roots"), None


def _mode(params: bytes) -> str:
    try:
        return msgspec.json.decode(jsonrpc.fields(params).get("mode", b'"form"'), type=str)
    except (msgspec.DecodeError, jsonrpc.Malformed):
        return "form"


def can_answer(capabilities: Mapping[str, Any], method: str, params: bytes) -> bool:
    """Whether a client that declared this may be asked. An elicitation without parts means forms."""
    capability, part = needs_of(method, params)
    declared = capabilities.get(capability)
    if not isinstance(declared, dict):
        return False
    if part is None:
        return True
    return part in declared or (part == "form" and not declared)


def required_capabilities(method: str, params: bytes) -> bytes:
    capability, part = needs_of(method, params)
    return msgspec.json.encode({"requiredCapabilities": {capability: {part: {}} if part else {}}})


def capabilities_for_modern(declared: Mapping[str, Any], version: str) -> bytes:
    """What a client of the session era declared, as far as we relay it, in the newer era's words."""
    relayed: dict[str, Any] = {}
    for name in eras.RELAYED:
        value = declared.get(name)
        if isinstance(value, dict):
            relayed[name] = value
    if "elicitation" in relayed:
        relayed["elicitation"] = relayed["elicitation"] or {"form": {}}
        if version < "2025-11-25":
            relayed["elicitation"] = {"form": {}}
    if "roots" in relayed:
        relayed["roots"] = {}
    return msgspec.json.encode(relayed)


# Errors


def error_code_for_modern(code: int) -> int:
    return jsonrpc.INVALID_PARAMS if code == RESOURCE_NOT_FOUND else _no_code_of_ours(code)


def error_code_for_legacy(code: int, method: str) -> int:
    if code in (eras.HEADER_MISMATCH, eras.MISSING_CAPABILITY, eras.UNSUPPORTED_VERSION):
        return jsonrpc.INVALID_REQUEST
    if code == jsonrpc.INVALID_PARAMS and method == "resources/read":
        return RESOURCE_NOT_FOUND
    return _no_code_of_ours(code)


def _no_code_of_ours(code: int) -> int:
    """-32000 and -32001 are what SDKs make up for a lost connection; no server means them."""
    return jsonrpc.INTERNAL_ERROR if code in (-32000, -32001) else code
