"""Puts the admin API together: a router a noun, and one way to answer what goes wrong.

FastAPI is used for what it is good at, reading requests and describing them; its pages (which load scripts
from elsewhere), redirects and own error shapes are off.
"""

from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from trunkline import __version__, telemetry
from trunkline.core.gateway import Gateway
from trunkline.errors import (
    BadRequest,
    FieldError,
    MethodNotAllowed,
    NotFound,
    TrunklineError,
    ValidationError,
)
from trunkline.front import tool_call
from trunkline.front.answers import Answer, answer_to, unexpected
from trunkline.front.rest import audit, keys, servers, state, tools


def build_rest(gateway: Gateway) -> FastAPI:
    app = _Documented(
        title="Trunkline",
        version=__version__,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        strict_content_type=False,
        exception_handlers={
            TrunklineError: _respond,
            RequestValidationError: _respond,
            HTTPException: _respond,
            Exception: _respond,
        },
    )
    for part in (servers, tools, keys, audit, state):
        app.include_router(part.build(gateway))
    return app


class _Documented(FastAPI):
    def openapi(self) -> dict[str, Any]:
        document = super().openapi()
        document["paths"].setdefault(tool_call.PATH, tool_call.DESCRIPTION)
        schemes = {"key": {"type": "http", "scheme": "bearer"}}
        document.setdefault("components", {})["securitySchemes"] = schemes
        document["security"] = [{"key": []}]
        return document


def _response(answer: Answer) -> Response:
    response = Response(answer.body, answer.status, media_type="application/json")
    for name, value in answer.headers:
        response.headers[name.decode()] = value.decode()
    return response


async def _respond(request: Request, error: Exception) -> Response:
    match error:
        case TrunklineError():
            return _response(answer_to(error))
        case RequestValidationError():
            return _response(answer_to(ValidationError(_faults(error.errors()))))
        case HTTPException():
            response = _response(answer_to(_refusal(request, error)))
            if error.headers and "Allow" in error.headers:
                response.headers["allow"] = error.headers["Allow"]
            return response
        case _:
            return _response(unexpected(telemetry.request_id.get()))


def _faults(found: Sequence[Any]) -> list[FieldError]:
    return [FieldError(tuple(fault["loc"]), fault["msg"], fault["type"]) for fault in found]


def _refusal(request: Request, error: HTTPException) -> TrunklineError:
    """What the framework refuses by itself: unknown addresses and methods, and bodies it cannot read."""
    path = request.scope["path"]
    if error.status_code == 404:
        return NotFound(f"There is nothing at {path}")
    if error.status_code == 405:
        return MethodNotAllowed(f"{request.method} is not possible at {path}")
    return BadRequest(str(error.detail))
