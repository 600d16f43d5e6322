"""The OpenAPI document: well-formed, in step with the routes, and true of what is answered."""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Annotated, Any

import pytest
from jsonschema import Draft202012Validator
from msgspec import UNSET, Meta, Struct, UnsetType

from tests.front.conftest import Running
from trunkline.front.entrance import HEALTH_PATHS
from trunkline.front.rest.describing import About, describe
from trunkline.front.rest.routes import Operation, Routes
from trunkline.front.rest.shapes import Invalid, Refusal
from trunkline.model import Scope, Transport

DOCUMENT = "/openapi.json"
SERVERS = "/api/v1/aggregator/servers"
ABOUT = About("Tests", "1.0", invalid=Invalid, refusal=Refusal)

KNOWN_FIELDS = {
    "document": {"openapi", "info", "security", "paths", "components"},
    "components": {"schemas", "responses", "securitySchemes"},
    "path": {"get", "put", "post", "patch", "delete", "head", "options", "trace"},
    "operation": {
        *("operationId", "summary", "description", "tags", "security", "parameters", "requestBody"),
        "responses",
    },
    "parameter": {"name", "in", "required", "description", "schema"},
    "requestBody": {"required", "content"},
    "response": {"description", "content"},
}
"""Of those that the OpenAPI Specification 3.1 has: the ones the document uses."""


class Order(Struct, forbid_unknown_fields=True):
    """What is wanted.

    With a
    second paragraph.
    """

    name: Annotated[str, Meta(min_length=1, pattern="^[a-z]+$")]
    scope: Scope | None = None
    patched: str | UnsetType | None = UNSET


class Query(Struct, forbid_unknown_fields=True):
    limit: Annotated[int, Meta(ge=1, le=9, description="At most.")] = 5
    transport: Transport | None = None


class Said(Struct):
    names: list[str]


def described() -> dict[str, Any]:
    routes = Routes("/things", "things")

    @routes("PUT", "", Scope.ADMIN, "Put things", keyless=True)
    async def put(body: Order | None) -> Said:
        return Said([str(body)])

    @routes("POST", "", Scope.ADMIN, "Make a thing", status=201)
    async def make(body: Order) -> Said:
        """It stays."""
        return Said([body.name])

    @routes("GET", "/{thing:path}", Scope.READ, "Show things", also=(503,))
    async def show(thing: Annotated[str, Meta(max_length=9)], query: Query) -> Said:
        return Said([thing, str(query)])

    @routes("DELETE", "/{thing:path}", Scope.ADMIN, "Remove a thing", described=False)
    async def remove(thing: str) -> None: ...

    elsewhere = Operation(
        method="GET", path="/text", scope=Scope.READ, name="text", summary="Text", tag="t", media="text/plain"
    )
    return describe(ABOUT, [elsewhere, *(route.operation for route in routes.routes)])


def test_an_operation_is_described_with_all_that_is_known_of_it() -> None:
    assert described()["paths"]["/things"]["post"] == {
        "operationId": "make",
        "summary": "Make a thing",
        "description": "It stays.\n\nNeeds a key with scope admin.",
        "tags": ["things"],
        "security": [{"key": ["admin"]}],
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Order"}}},
        },
        "responses": {
            "201": {
                "description": "Created",
                "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Said"}}},
            },
            "422": {"$ref": "#/components/responses/Invalid"},
            "default": {"$ref": "#/components/responses/Refused"},
        },
    }


def test_the_parameters_of_path_and_query_are_described() -> None:
    operation = described()["paths"]["/things/{thing}"]["get"]
    assert operation["parameters"] == [
        {"name": "thing", "in": "path", "required": True, "schema": {"type": "string", "maxLength": 9}},
        {
            "name": "limit",
            "in": "query",
            "required": False,
            "description": "At most.",
            "schema": {"type": "integer", "minimum": 1, "maximum": 9, "default": 5},
        },
        {
            "name": "transport",
            "in": "query",
            "required": False,
            "schema": {"$ref": "#/components/schemas/Transport"},
        },
    ]
    assert described()["components"]["schemas"]["Transport"]["enum"] == ["HTTP", "SSE", "STDIO"]
    assert operation["responses"]["422"] == {"$ref": "#/components/responses/Invalid"}
    assert operation["responses"]["503"]["content"] == operation["responses"]["200"]["content"]


def test_what_is_no_json_and_what_is_hidden() -> None:
    paths = described()["paths"]
    assert set(paths) == {"/things", "/things/{thing}", "/text"}
    assert set(paths["/things/{thing}"]) == {"get"}
    assert paths["/text"]["get"]["responses"]["200"] == {
        "description": "OK",
        "content": {"text/plain": {"schema": {"type": "string"}}},
    }
    assert "422" not in paths["/text"]["get"]["responses"]


def test_a_body_and_a_key_that_may_be_left_out_are_said_to_be() -> None:
    operation = described()["paths"]["/things"]["put"]
    assert operation["security"] == [{"key": ["admin"]}, {}]
    schema = {"anyOf": [{"$ref": "#/components/schemas/Order"}, {"type": "null"}]}
    assert operation["requestBody"] == {
        "required": False,
        "content": {"application/json": {"schema": schema}},
    }


def test_a_body_is_described_as_it_is_read() -> None:
    assert described()["components"]["schemas"]["Order"] == {
        "title": "Order",
        "description": "What is wanted.\n\nWith a\nsecond paragraph.",
        "type": "object",
        "properties": {
            "name": {"type": "string", "minLength": 1, "pattern": "^[a-z]+$"},
            "scope": {"anyOf": [{"$ref": "#/components/schemas/Scope"}, {"type": "null"}], "default": None},
            "patched": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        },
        "required": ["name"],
        "additionalProperties": False,
    }


@pytest.fixture
async def document(front: Running) -> dict[str, Any]:
    status, document = await front.ask("GET", DOCUMENT, scope=Scope.READ)
    assert status == 200
    assert isinstance(document, dict)
    return document


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, item in document["paths"].items():
        for method, operation in item.items():
            yield method, path, operation


async def test_the_document_has_the_structure_of_openapi_3_1(document: dict[str, Any]) -> None:
    """Field by field; what is required is there, and nothing that the specification does not know."""
    assert document["openapi"].startswith("3.1.")
    assert {"title", "version"} <= set(document["info"])
    assert set(document) <= KNOWN_FIELDS["document"]
    assert set(document["components"]) <= KNOWN_FIELDS["components"]
    for response in document["components"]["responses"].values():
        assert_response(response)
    for path, item in document["paths"].items():
        assert path.startswith("/")
        assert item
        assert set(item) <= KNOWN_FIELDS["path"]
    for _, path, operation in operations(document):
        assert set(operation) <= KNOWN_FIELDS["operation"]
        assert operation["responses"]
        for response in operation["responses"].values():
            assert_response(response)
        for parameter in operation.get("parameters", ()):
            assert {"name", "in", "schema"} <= set(parameter) <= KNOWN_FIELDS["parameter"]
            assert parameter["in"] in ("path", "query")
        if "requestBody" in operation:
            assert {"content"} <= set(operation["requestBody"]) <= KNOWN_FIELDS["requestBody"]
        of_path = [each for each in operation.get("parameters", ()) if each["in"] == "path"]
        assert all(each["required"] for each in of_path)
        assert sorted(f"{{{each['name']}}}" for each in of_path) == sorted(
            part for part in path.split("/") if part.startswith("{")
        )


def assert_response(response: dict[str, Any]) -> None:
    if "$ref" in response:
        assert set(response) == {"$ref"}
    else:
        assert {"description"} <= set(response) <= KNOWN_FIELDS["response"]


async def test_every_schema_is_one_and_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    for schema in schemas_in(document):
        Draft202012Validator.check_schema(schema)
    for reference in references_in(document):
        found: Any = document
        for step in reference.removeprefix("#/").split("/"):
            found = found[step]


def schemas_in(node: Any) -> Iterator[Any]:
    if isinstance(node, dict):
        if isinstance(node.get("schema"), dict):
            yield node["schema"]
        yield from node["schemas"].values() if isinstance(node.get("schemas"), dict) else ()
        for child in node.values():
            yield from schemas_in(child)
    elif isinstance(node, list):
        for child in node:
            yield from schemas_in(child)


def references_in(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        for child in node.values():
            yield from references_in(child)
    elif isinstance(node, list):
        for child in node:
            yield from references_in(child)


async def test_no_two_operations_share_their_id(document: dict[str, Any]) -> None:
    names = Counter(operation["operationId"] for _, _, operation in operations(document))
    assert [name for name, number in names.items() if number > 1] == []


async def test_every_operation_says_what_key_it_needs(document: dict[str, Any]) -> None:
    """R-47."""
    assert document["components"]["securitySchemes"] == {"key": {"type": "http", "scheme": "bearer"}}
    for method, path, operation in operations(document):
        needed, *otherwise = operation["security"]
        (scope,) = needed["key"]
        assert f"scope {scope}" in operation["description"], (method, path)
        assert otherwise == ([{}] if path in HEALTH_PATHS else []), (method, path)


async def test_the_short_answer_of_health_is_described_too(front: Running) -> None:
    _, document = await front.ask("GET", DOCUMENT)
    for path in HEALTH_PATHS:
        async with front.client.get(front.url + path) as answer:
            responses = document["paths"][path]["get"]["responses"]
            assert_described(document, responses[str(answer.status)], await answer.text())


async def test_calling_a_tool_is_described_too(document: dict[str, Any]) -> None:
    operation = document["paths"]["/api/v1/tools/call"]["post"]
    assert operation["requestBody"]["required"]
    order = document["components"]["schemas"]["ToolCall"]
    assert (order["required"], order["additionalProperties"]) == (["name"], False)
    assert order["properties"]["name"] == {"type": "string", "minLength": 1, "maxLength": 1024}
    assert set(order["properties"]) == {"name", "arguments", "server_id"}


async def test_what_is_answered_is_what_is_described(front: Running, echo: str) -> None:
    """Every operation once, and every field of its answer."""
    _, document = await front.ask("GET", DOCUMENT)
    server = f"{SERVERS}/{echo}"
    body = {
        "name": "idle",
        "transport_type": "HTTP",
        "connection_config": {"base_url": "http://127.0.0.1:9/"},
        "auto_connect": False,
    }
    _, key = await front.ask("POST", "/api/v1/aggregator/keys", json={"name": "x", "scope": "read"})
    asked: list[tuple[str, str, str, Any]] = [
        ("GET", "/api/v1/aggregator/servers?include_tools=true", "", None),
        ("POST", "/api/v1/aggregator/servers", "", body),
        ("GET", server, "/{server}", None),
        ("PATCH", server, "/{server}", {"description": "changed"}),
        ("POST", f"{server}/connect", "/{server}/connect", None),
        ("GET", f"{server}/tools", "/{server}/tools", None),
        ("POST", f"{server}/tools/refresh", "/{server}/tools/refresh", None),
        ("GET", f"{server}/health", "/{server}/health", None),
        ("GET", f"{server}/history", "/{server}/history", None),
        ("GET", "/api/v1/tools", "", None),
        ("GET", "/api/v1/tools/echo.odd", "/{name}", None),
        ("POST", "/api/v1/tools/call", "/call", {"name": "echo.odd"}),
        ("POST", f"{server}/disconnect", "/{server}/disconnect", {}),
        ("DELETE", f"{SERVERS}/idle", "/{server}", None),
        ("POST", "/api/v1/aggregator/keys", "", {"name": "ci", "scope": "read"}),
        ("GET", "/api/v1/aggregator/keys", "", None),
        ("DELETE", f"/api/v1/aggregator/keys/{key['id']}", "/{key_id}", None),
        ("GET", "/api/v1/aggregator/audit", "", None),
        ("GET", "/api/v1/aggregator/state", "", None),
        ("GET", "/api/v1/aggregator/health", "", None),
        ("GET", "/health", "", None),
        ("GET", "/metrics", "", None),
    ]
    seen = set()
    for method, path, rest, sent in asked:
        root = path.partition("?")[0]
        for prefix in (SERVERS, "/api/v1/tools", "/api/v1/aggregator/keys"):
            if root.startswith(prefix):
                root = prefix + rest
        seen.add((method.lower(), root))
        responses = document["paths"][root][method.lower()]["responses"]
        async with front.client.request(
            method, front.url + path, json=sent, headers=front.bearer()
        ) as answer:
            text = await answer.text()
            assert str(answer.status) in responses, (method, path, text)
            assert answer.status < 300
            assert_described(document, responses[str(answer.status)], text)
    assert seen == {(method, path) for method, path, _ in operations(document)}


async def test_what_is_refused_is_what_is_described(front: Running) -> None:
    _, document = await front.ask("GET", DOCUMENT)
    responses = document["paths"][SERVERS]["post"]["responses"]
    for method, path, sent in (
        ("POST", SERVERS, {"x": 1}),
        ("GET", f"{SERVERS}/nobody", None),
        ("PUT", SERVERS, None),
        ("GET", "/nothing", None),
        ("POST", "/api/v1/tools/call", {"name": "none"}),
    ):
        async with front.client.request(
            method, front.url + path, json=sent, headers=front.bearer()
        ) as answer:
            reference = responses.get(str(answer.status), responses["default"])["$ref"]
            described_so = document["components"]["responses"][reference.rpartition("/")[2]]
            assert_described(document, described_so, await answer.text())


def assert_described(document: dict[str, Any], response: dict[str, Any], text: str) -> None:
    if "content" not in response:
        assert text == ""
        return
    if "text/plain" in response["content"]:
        return
    schema = response["content"]["application/json"]["schema"]
    answer = json.loads(text)
    Draft202012Validator({**schema, "components": document["components"]}).validate(answer)
    known = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    if known["title"] not in ("ToolResult", "Refusal"):  # which have further fields, and say so
        assert set(answer) <= set(known["properties"])
