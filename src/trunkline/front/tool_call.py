"""`POST /api/v1/tools/call`, the hot path: bytes in, bytes out, nothing in between parsed that need not be.

`read_call` and `compose` are pure; `run_call` is the thin action between them. The arguments leave as the
bytes they came in, and every field of the result comes back as the bytes the server sent. `entrance.py` has
judged host and key and comes straight here; `rest/tools.py` describes it for the OpenAPI document.
"""

import time

import msgspec

from trunkline.core.gateway import Gateway
from trunkline.errors import ExecutionFailed, FieldError, Forbidden, ValidationError
from trunkline.front.bodies import bad_json
from trunkline.front.exchange import Exchange
from trunkline.model import Call, Outcome, Principal, Scope
from trunkline.wire.jsonrpc import Malformed, fields, quote

PATH = "/api/v1/tools/call"
LONGEST_NAME = 1024
MOST_TOKENS = 50_000
"""Of a body that has to be read the slow way: a client must not hold up the others with it."""

_CALLERS = frozenset(scope for scope in Scope if scope.includes(Scope.CALL))
_ABSENT = msgspec.Raw(b"")


class _Request(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    arguments: msgspec.Raw = _ABSENT
    server_id: str | None = None


_requests = msgspec.json.Decoder(_Request)


async def run_call(gateway: Gateway, principal: Principal, exchange: Exchange) -> bytes:
    """The body of the answer. Raises errors of the tree, and `ClientGone` when nobody waits any more."""
    started = time.perf_counter()
    if principal.scope not in _CALLERS:
        raise Forbidden(f"Calling tools needs a key with scope call; this one has {principal.scope}")
    name, arguments, server_id = read_call(exchange.body)
    call = Call(principal, name, arguments, server_id, exchange.request_id.decode())
    with exchange.watched():
        outcome = await gateway.call(call)
    return compose(outcome, (time.perf_counter() - started) * 1000)


def read_call(body: bytes) -> tuple[str, bytes, str | None]:
    """Name, arguments and server. Of a field given twice the last one counts, here and upstream."""
    try:
        if not body.isascii():
            body.decode("utf-8")
        request = _requests.decode(body)
    except msgspec.ValidationError:
        raise ValidationError(_faults(body)) from None
    except (msgspec.DecodeError, RecursionError):
        request = _read_shallow(body)
    except UnicodeDecodeError as error:
        raise bad_json(error) from None
    arguments = bytes(request.arguments).strip()
    if arguments[:1] != b"{":
        if arguments not in (b"", b"null"):
            raise ValidationError.at(
                "body", "arguments", msg="Input should be a valid dictionary", type="dict_type"
            )
        arguments = b"{}"
    if not 0 < len(request.name) <= LONGEST_NAME:
        raise ValidationError.at("body", "name", msg=f"A name has 1 to {LONGEST_NAME} characters")
    return request.name, arguments, request.server_id


def _read_shallow(body: bytes) -> _Request:
    """The same of a body that is JSON by the grammar and yet not to the decoder: arguments with half of a
    surrogate pair in a text, or nested deeply. They are the server's to judge."""
    try:
        given = fields(body, most_tokens=MOST_TOKENS)
        name, server_id = (
            msgspec.json.decode(given.get(key, b"null"), type=str | None) for key in ("name", "server_id")
        )
    except Malformed as error:
        raise bad_json(error) from None
    except msgspec.ValidationError:
        raise ValidationError(_faults(body)) from None
    except msgspec.DecodeError:
        raise bad_json(ValueError("name and server_id must be whole Unicode")) from None
    if name is None or not given.keys() <= set(_Request.__struct_fields__):
        raise ValidationError(_faults(body))
    return _Request(name, msgspec.Raw(given.get("arguments", b"")), server_id)


def _faults(body: bytes) -> list[FieldError]:
    """Everything that is wrong with a body that is JSON; the decoder above names only the first."""
    try:
        if body.lstrip()[:1] != b"{":
            msgspec.json.decode(body, type=msgspec.Raw)
            return [FieldError(("body",), "Input should be a valid dictionary", "model_attributes_type")]
        given = fields(body, most_tokens=MOST_TOKENS)
    except (Malformed, msgspec.DecodeError, RecursionError) as error:
        return list(bad_json(error).faults)
    faults = [
        FieldError(("body", key), "Extra inputs are not permitted", "extra_forbidden")
        for key in given
        if key not in _Request.__struct_fields__
    ]
    if "name" not in given:
        faults.append(FieldError(("body", "name"), "Field required", "missing"))
    for key in ("name", "server_id"):
        optional = key == "server_id" and given.get(key) == b"null"
        if key in given and not optional and given[key][:1] != b'"':
            faults.append(FieldError(("body", key), "Input should be a valid string", "string_type"))
    return faults or [FieldError(("body",), "The request cannot be read")]


def compose(outcome: Outcome, total_ms: float) -> bytes:
    """The result as it was, with `content` and `isError` where they are missing, and our `metadata`."""
    result = outcome.result.strip()
    try:
        given = fields(result)
    except Malformed:
        raise ExecutionFailed(
            f"The answer of server {outcome.server_name} is not the result of a tool call",
            context={"server_id": outcome.server_id},
        ) from None
    metadata = _metadata(outcome, total_ms, given.get("metadata"))
    if "metadata" in given:
        kept = [b"%b:%b" % (quote(key), value) for key, value in given.items() if key != "metadata"]
    else:
        kept = [inner] if (inner := result[1:-1].strip()) else []
    if "content" not in given:
        kept.append(b'"content":[]')
    if "isError" not in given:
        kept.append(b'"isError":false')
    kept.append(b'"metadata":' + metadata)
    return b"{%b}" % b",".join(kept)


def _metadata(outcome: Outcome, total_ms: float, upstream: bytes | None) -> bytes:
    spent = outcome.routing_ms + outcome.execution_ms
    times = (outcome.routing_ms, outcome.execution_ms, max(total_ms, spent))
    parts = [
        b'"routed_to":' + quote(outcome.server_name),
        b'"server_id":' + quote(outcome.server_id),
        b'"routing_time_ms":%.3f,"execution_time_ms":%.3f,"total_time_ms":%.3f' % times,
    ]
    if outcome.warning is not None:
        parts.append(b'"warning":' + quote(outcome.warning))
    if upstream is not None:
        parts.append(b'"upstream":' + upstream)
    return b"{%b}" % b",".join(parts)
