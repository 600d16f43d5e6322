"""Writes the OpenAPI document of an API from its operations, so that it cannot say what the code does not do.

Pure: operations and the Structs they take and say in, a plain object ready for JSON out. The schemas are
msgspec's; what no Struct knows, such as who may ask, is said here.
"""

import inspect
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import msgspec
from msgspec import Struct

from trunkline.front.rest.routes import Operation, Parameter, parts_of

Object = dict[str, Any]

_SCHEMA = "#/components/schemas/{name}"
_INVALID, _REFUSED = "Invalid", "Refused"


@dataclass(frozen=True, slots=True)
class About:
    """What an API says of itself."""

    title: str
    version: str
    invalid: type[Struct]
    """The body of a 422."""
    refusal: type[Struct]
    """The body of every other refusal."""


def describe(about: About, operations: Iterable[Operation]) -> Object:
    shown = sorted((each for each in operations if each.described), key=lambda each: each.path)
    bodies = dict.fromkeys(kind for each in shown for kind in (each.body, each.says) if kind is not None)
    kinds = [*bodies, about.invalid, about.refusal]
    references, schemas = msgspec.json.schema_components(kinds, ref_template=_SCHEMA)
    reference_to = dict(zip(kinds, references, strict=True))
    paths: dict[str, Object] = {}
    for each in shown:
        item = paths.setdefault(_plain_path(each.path), {})
        item[each.method.lower()] = _operation(each, reference_to, schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": about.title, "version": about.version},
        "security": [{"key": []}],
        "paths": paths,
        "components": {
            "schemas": {name: _tidied(schema) for name, schema in sorted(schemas.items())},
            "responses": {
                _INVALID: _answer("The request cannot be meant", _json(reference_to[about.invalid])),
                _REFUSED: _answer("Refused, or not possible", _json(reference_to[about.refusal])),
            },
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def _plain_path(path: str) -> str:
    parts = (f"{{{part.name}}}" if isinstance(part, Parameter) else part for part in parts_of(path))
    return "/".join(parts)


def _operation(each: Operation, reference_to: dict[type[Struct], Object], schemas: Object) -> Object:
    described: Object = {
        "operationId": each.name,
        "summary": each.summary,
        "description": f"{each.description}\n\nNeeds a key with scope {each.scope}.".strip(),
        "tags": [each.tag],
        "security": [{"key": [each.scope]}, *([{}] if each.keyless else ())],
    }
    parameters = [*_parameters(each.parameters, "path", schemas), *_parameters(each.query, "query", schemas)]
    if parameters:
        described["parameters"] = parameters
    if each.body is not None:
        schema = reference_to[each.body]
        if not each.body_required:
            schema = {"anyOf": [schema, {"type": "null"}]}
        described["requestBody"] = {"required": each.body_required, "content": _json(schema)}
    described["responses"] = dict(_answers(each, reference_to))
    return described


def _parameters(kind: type[Struct] | None, place: str, schemas: Object) -> Iterator[Object]:
    if kind is None:
        return
    _, found = msgspec.json.schema_components([kind], ref_template=_SCHEMA)
    own = found.pop(kind.__name__)
    schemas.update(found)
    required = own.get("required", ())
    for name, schema in own["properties"].items():
        schema = _present(schema)
        described = {"description": schema.pop("description")} if "description" in schema else {}
        yield {"name": name, "in": place, "required": name in required, **described, "schema": schema}


def _present(schema: Object) -> Object:
    """A parameter can be left out, but there is no text for null."""
    kept = {key: value for key, value in schema.items() if (key, value) != ("default", None)}
    if "anyOf" in kept:
        (there,) = (each for each in kept.pop("anyOf") if each != {"type": "null"})
        return {**kept, **there}
    return kept


def _answers(each: Operation, reference_to: dict[type[Struct], Object]) -> Iterator[tuple[str, Object]]:
    content = None
    if each.says is not None:
        content = _json(reference_to[each.says])
    elif each.media is not None:
        content = {each.media: {"schema": {"type": "string"}}}
    for status in (each.status, *each.also):
        yield str(status), _answer(HTTPStatus(status).phrase, content)
    if any((each.parameters, each.query, each.body)):
        yield "422", {"$ref": f"#/components/responses/{_INVALID}"}
    yield "default", {"$ref": f"#/components/responses/{_REFUSED}"}


def _answer(description: str, content: Object | None) -> Object:
    return {"description": description, **({"content": content} if content else {})}


def _json(schema: Object) -> Object:
    return {"application/json": {"schema": schema}}


def _tidied(schema: Object) -> Object:
    """A docstring over several lines is indented as its class was."""
    if "description" in schema:
        return {**schema, "description": inspect.cleandoc(schema["description"])}
    return schema
