"""What the front says: an error of the tree as status, headers and JSON, and JSON in general.

Pure. Every refusal of every route is made here, so that all have one shape:
`{"detail", "error_code", "context"}` and what the error adds; validation faults are a list under `detail`.
Neighbours: `errors.py` says what happened, `exchange.py` sends it.
"""

import json
from dataclasses import dataclass

import msgspec

from trunkline.errors import FieldError, MethodNotAllowed, TrunklineError, ValidationError

JSON = b"application/json"


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes
    headers: tuple[tuple[bytes, bytes], ...] = ()
    """Beside content type and length."""
    content_type: bytes = JSON
    """Of a body, where there is one."""


def encode(value: object) -> bytes:
    """JSON; raw pieces (`msgspec.Raw`) go in as they are."""
    try:
        return msgspec.json.encode(value, enc_hook=str)
    except UnicodeEncodeError:  # text with half a surrogate pair, which a client can send escaped
        return json.dumps(value, default=str).encode("ascii")


def answer_to(error: TrunklineError) -> Answer:
    headers: list[tuple[bytes, bytes]] = []
    if error.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if isinstance(error, MethodNotAllowed):
        headers.append((b"allow", ", ".join(error.allowed).encode()))
    if error.retry_after is not None:
        headers.append((b"retry-after", b"%d" % error.retry_after))
    body: dict[str, object] = {"detail": error.detail, "error_code": error.code, "context": error.context}
    if isinstance(error, ValidationError):
        body = {"detail": [_fault(fault) for fault in error.faults], "error_code": error.code}
    return Answer(error.status, encode({**error.extra, **body}), tuple(headers))


def _fault(fault: FieldError) -> dict[str, object]:
    return {"loc": list(fault.loc), "msg": fault.msg, "type": fault.type}


def unexpected(request_id: str) -> Answer:
    """For what should not have happened: the log has the traceback, the client the way to find it."""
    detail = "Something unexpected went wrong in the gateway; its log says more under this request id"
    body = {"detail": detail, "error_code": TrunklineError.code, "context": {"request_id": request_id}}
    return Answer(TrunklineError.status, encode(body))
