"""The tasks extension of 2026-07-28 as an intermediary must speak it: what is a task, and where its id is.

Pure. A server that takes long answers a call with a task, and its client asks after it by its id. Whose task
it is and how its id is made is `core/tasks.py`'s; what a task is in the middle of is for client and server.
"""

import re
from collections.abc import Iterable, Mapping

import msgspec

from trunkline.wire import jsonrpc, translate

EXTENSION = "io.modelcontextprotocol/tasks"
GET, UPDATE, CANCEL = "tasks/get", "tasks/update", "tasks/cancel"
METHODS = frozenset({GET, UPDATE, CANCEL})
TOLD = "notifications/tasks"

WORKING, INPUT_REQUIRED = "working", "input_required"
COMPLETED, FAILED, CANCELLED = "completed", "failed", "cancelled"
FINAL = frozenset({COMPLETED, FAILED, CANCELLED})

REQUIRED = msgspec.json.encode({"requiredCapabilities": {"extensions": {EXTENSION: {}}}})
"""The data of an error that says a client must have declared the extension."""

_NAME = EXTENSION.encode()
_TASK = b'"task"'
_FIRST = re.compile(rb'\s*\{\s*"resultType"\s*:\s*("[^"\\]*")')


class _Declared(msgspec.Struct):
    extensions: dict[str, msgspec.Raw] = {}


class _Required(msgspec.Struct, rename="camel"):
    required_capabilities: _Declared = msgspec.field(default_factory=_Declared)


class Fault(msgspec.Struct, frozen=True):
    """The error of a task that failed."""

    message: str = ""


class Told(msgspec.Struct, rename="camel", frozen=True):
    """What is read of a task in a result or a notification."""

    task_id: str = ""
    status: str = ""
    status_message: str = ""
    poll_interval_ms: float | None = None
    error: Fault = Fault()


_READ = Told.__struct_encode_fields__


class _Filter(msgspec.Struct, rename="camel"):
    task_ids: list[str] = []


class _Acknowledged(msgspec.Struct):
    notifications: _Filter = msgspec.field(default_factory=_Filter)


def declared(capabilities: bytes) -> bool:
    """Whether a client that sent these capabilities takes tasks."""
    if _NAME not in capabilities:
        return False
    try:
        settings = msgspec.json.decode(capabilities, type=_Declared).extensions.get(EXTENSION)
    except (msgspec.DecodeError, RecursionError):
        return False
    return settings is not None and bytes(settings)[:1] == b"{"


def declaring(capabilities: bytes) -> bytes:
    """The same capabilities with the extension among them. Raises `Malformed`."""
    members = jsonrpc.fields(capabilities)
    extensions = jsonrpc.fields(members.get("extensions", b"{}"))
    members["extensions"] = translate.joined({**extensions, EXTENSION: b"{}"})
    return translate.joined(members)


def required(data: bytes | None) -> bool:
    """Whether an error with this data says that its client would have to take tasks."""
    if data is None or _NAME not in data:
        return False
    try:
        return EXTENSION in msgspec.json.decode(data, type=_Required).required_capabilities.extensions
    except (msgspec.DecodeError, RecursionError):
        return False


def is_task(result: bytes) -> bool:
    """Whether the answer to a call is a task; cheap where the answer begins with its kind."""
    if found := _FIRST.match(result):
        return found[1] == _TASK
    return _TASK in result and translate.result_type(result) == translate.TASK


def read(told: bytes) -> Told:
    """Raises `Malformed`."""
    members = jsonrpc.fields(told)
    try:
        return msgspec.json.decode(
            translate.joined({name: members[name] for name in _READ if name in members}), type=Told
        )
    except (msgspec.DecodeError, RecursionError):
        raise jsonrpc.Malformed("a task that cannot be read") from None


def result_of(told: bytes) -> bytes:
    """What a completed task has come to. Raises `Malformed`."""
    result = jsonrpc.fields(told).get("result", b"")
    if result[:1] != b"{":
        raise jsonrpc.Malformed("a task that is completed and has no result")
    return result


def with_id(told: bytes, task_id: str) -> bytes:
    """The same under another id. Raises `Malformed`."""
    members = jsonrpc.fields(told)
    members["taskId"] = jsonrpc.quote(task_id)
    return translate.joined(members)


def params_of(task_id: str, more: bytes = b"") -> bytes:
    """The members of a request about a task."""
    return b'"taskId":%b%b%b' % (jsonrpc.quote(task_id), b"," if more else b"", more)


def within(told: bytes, limit: int) -> bytes:
    """A task in which the result is no larger than that of a call may be. Raises `Malformed`."""
    if len(told) <= limit:
        return told
    members = jsonrpc.fields(told)
    result = members.get("result", b"")
    if len(result) <= limit:
        return told
    members["result"] = translate.cut(result, limit)
    return translate.joined(members)


def wanted(task_ids: Iterable[str]) -> bytes:
    """The params of a subscription to these tasks."""
    return msgspec.json.encode({"notifications": {"taskIds": list(task_ids)}})


def agreed(params: bytes) -> frozenset[str]:
    """The ids a server says in its acknowledgement it will tell of."""
    try:
        return frozenset(msgspec.json.decode(params, type=_Acknowledged).notifications.task_ids)
    except (msgspec.DecodeError, RecursionError):
        return frozenset()


def notification(told: bytes, meta: Mapping[str, bytes]) -> bytes:
    """The message that tells a subscriber of a task; `meta` stands over what the server's own `_meta` says.

    Also from the result of asking after it, which says the same of a task. Raises `Malformed`.
    """
    members = jsonrpc.fields(told)
    members.pop("resultType", None)
    own = jsonrpc.fields(members.pop("_meta", b"{}"))
    members["_meta"] = translate.joined({**own, **meta})
    return jsonrpc.encode_notification(TOLD, translate.joined(members))
