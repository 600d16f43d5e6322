"""One definition at a time: what is read out of it, and which are kept out with what reason."""

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.shared.inbound import find_invalid_x_mcp_header, x_mcp_header_map

from trunkline.model import ItemKind
from trunkline.wire.definitions import (
    DEEPEST_SCHEMA,
    LARGEST_DEFINITION,
    Unusable,
    fingerprint,
    read_item,
    read_tool,
)


def tool(schema: object = None, **fields: object) -> bytes:
    return json.dumps({"name": "t", "inputSchema": schema or {"type": "object"}, **fields}).encode()


def reason(definition: bytes) -> str:
    with pytest.raises(Unusable) as caught:
        read_tool(definition)
    return f"{caught.value.name}: {caught.value.reason}"


def test_the_facts_of_a_tool_are_read() -> None:
    """R-17"""
    facts = read_tool(
        tool(
            {"type": "object", "properties": {"q": {"type": "string"}}},
            description="Finds.",
            annotations={"readOnlyHint": True, "idempotentHint": False},
            execution={"taskSupport": "forbidden"},
        )
    )
    assert (facts.name, facts.description) == ("t", "Finds.")
    assert facts.input_schema == {"type": "object", "properties": {"q": {"type": "string"}}}
    assert (facts.read_only, facts.idempotent, facts.mirrored) == (True, False, ())


@pytest.mark.parametrize("hints", [None, [], "yes", {"readOnlyHint": "true", "idempotentHint": 1}])
def test_only_a_plain_true_makes_a_tool_safe_to_repeat(hints: object) -> None:
    facts = read_tool(tool(annotations=hints, description=5))
    assert (facts.read_only, facts.idempotent, facts.description) == (False, False, "")


@pytest.mark.parametrize(
    ("definition", "expected"),
    [
        (b'{"inputSchema":{}}', "(unnamed): it has no name"),
        (b'{"name":"","inputSchema":{}}', "(unnamed): it has no name"),
        (b'{"name":7,"inputSchema":{}}', "(unnamed): its name is not a string"),
        (tool(name="x" * 300), "x" * 60 + "…: its name has 300 characters; at most 255 are taken"),
        (tool(name="a\x1b[31mb"), "a�[31mb: its name has control or invisible characters"),
        (tool(name="a\u202eb"), "a�b: its name has control or invisible characters"),
        (b'{"name":"t"}', "t: its inputSchema is not a JSON object"),
        (tool([1]), "t: its inputSchema is not a JSON object"),
        (tool({"type": "array"}), "t: its inputSchema does not describe an object"),
        (b"[]", "(unnamed): its definition is not a JSON object"),
        (b"nothing", "(unnamed): its definition is not JSON that can be read"),
        (b'{"name":"t","inputSchema":{"minimum":1e999}}', "t: its definition is not JSON that can be read"),
        (
            rb'{"name":"t","inputSchema":{},"description":"\ud83d"}',
            "t: its definition has text that is no valid Unicode (half a surrogate pair)",
        ),
        (
            tool(description="x" * LARGEST_DEFINITION),
            f"(unnamed): its definition is larger than 1024 KiB ({len(tool(description='')) + 2**20} bytes)",
        ),
        (
            b'{"name":"t","inputSchema":' + b'{"a":' * 10_000 + b"1" + b"}" * 10_001,
            "t: its definition is nested too deeply to be read",
        ),
    ],
)
def test_an_odd_tool_is_kept_out_with_the_reason(definition: bytes, expected: str) -> None:
    """R-20"""
    assert reason(definition) == expected


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(levels - 1):
        schema = {"x": schema}
    return schema


def test_a_schema_may_be_as_deep_as_the_limit_and_no_deeper() -> None:
    """R-20"""
    assert read_tool(tool(nested(DEEPEST_SCHEMA))).name == "t"
    assert reason(tool(nested(DEEPEST_SCHEMA + 1))) == "t: its inputSchema is nested deeper than 100 levels"


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"$defs": {"a": {"$ref": "#/$defs/a"}}},
        {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
        {"properties": {"x": {"$ref": "#/$defs/a~1b"}}, "$defs": {"a/b": {"$ref": "#/$defs/a~1b"}}},
        {"properties": {"x": {"$ref": "#/$defs/a%20b"}}, "$defs": {"a b": {"$ref": "#/$defs/a%20b"}}},
        {"allOf": [{"$ref": "#/allOf/0"}]},
    ],
)
def test_references_that_only_lead_to_themselves_are_kept_out(schema: dict[str, Any]) -> None:
    """R-20"""
    assert "its inputSchema has a $ref cycle that never ends: #" in reason(tool(schema))


@pytest.mark.parametrize(
    "schema",
    [
        {"$defs": {"node": {"properties": {"next": {"$ref": "#/$defs/node"}}}}, "$ref": "#/$defs/node"},
        {"properties": {"child": {"$ref": "#"}}},
        {"$ref": "#anchor", "$defs": {"a": {"$anchor": "anchor"}}},
        {"$ref": "https://example.com/schema.json"},
        {"$ref": "#/nowhere/99999999999999999999"},
        {"allOf": [{"$ref": "#/allOf/1"}, {}], "oneOf": [{"$ref": "#/allOf/7"}]},
        {"properties": {"$ref": {"type": "string"}}},
        {"$ref": 7},
    ],
)
def test_ordinary_recursion_and_foreign_references_stay(schema: dict[str, Any]) -> None:
    """R-30: what is not certainly broken passes, and nothing is fetched."""
    assert read_tool(tool(schema)).input_schema == schema


def wide(count: int) -> dict[str, Any]:
    return {"properties": {f"p{number}": {} for number in range(count)}}


def long_chain(count: int) -> dict[str, Any]:
    names = {f"d{n}": {"$ref": f"#/$defs/d{n + 1}"} for n in range(count)}
    return {"$defs": {**names, f"d{count}": {}}}


@pytest.mark.parametrize("schema", [wide(60_000), long_chain(20_000)], ids=["wide", "chain"])
def test_a_schema_built_to_be_slow_is_read_soon(schema: dict[str, Any]) -> None:
    """R-20: quadratic work here took minutes; two seconds leave room for a busy machine."""
    definition = tool(schema)
    before = time.process_time()
    read_tool(definition)
    assert time.process_time() - before < 2


def marked(suffix: object, kind: object = "string") -> dict[str, Any]:
    return {"type": kind, "x-mcp-header": suffix}


def test_marked_arguments_are_found_along_properties() -> None:
    schema = {
        "properties": {
            "region": marked("Region"),
            "inner": {"type": "object", "properties": {"deep": marked("Deep", "integer")}},
            "x-mcp-header": {"type": "string"},
        },
        "default": {"x-mcp-header": "Data"},
        "x-vendor": {"x-mcp-header": "Unknown"},
    }
    assert read_tool(tool(schema)).mirrored == (("Region", ("region",)), ("Deep", ("inner", "deep")))


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"properties": {"a": marked("no spaces")}}, "the x-mcp-header of a is not a header name"),
        ({"properties": {"a": marked("")}}, "the x-mcp-header of a is not a header name"),
        ({"properties": {"a": marked(5)}}, "the x-mcp-header of a is not a header name"),
        ({"properties": {"a": marked("A", "number")}}, "x-mcp-header stands on a, which is no plain value"),
        ({"properties": {"a": marked("A", ["string"])}}, "x-mcp-header stands on a, which is no plain value"),
        ({"properties": {"a": marked("A"), "b": marked("a")}}, "the x-mcp-header a is used twice"),
        (marked("Root", "object"), "x-mcp-header stands where no chain of properties leads"),
        (
            {"properties": {"a": {"items": marked("A")}}},
            "x-mcp-header stands where no chain of properties leads",
        ),
        (
            {"$defs": {"a": {"properties": {"b": marked("A")}}}},
            "x-mcp-header stands where no chain of properties leads",
        ),
    ],
)
def test_an_invalid_mark_drops_the_tool(schema: dict[str, Any], expected: str) -> None:
    """R-20: the specification asks for it."""
    assert reason(tool(schema)) == f"t: {expected}"


schemas = st.recursive(
    st.fixed_dictionaries(
        {"type": st.sampled_from(["string", "integer", "boolean", "number", "object", ["string"]])},
        optional={"x-mcp-header": st.sampled_from(["A", "B", "a", "C", "", "not a token", 7])},
    ),
    lambda inner: (
        st.dictionaries(
            st.sampled_from(["properties", "$defs", "patternProperties", "x-vendor"]),
            st.dictionaries(st.sampled_from(["a", "b", "x-mcp-header"]), inner, min_size=1),
            min_size=1,
        )
        | st.dictionaries(st.sampled_from(["items", "not", "const", "default"]), inner, min_size=1)
        | st.dictionaries(st.sampled_from(["allOf", "enum"]), st.lists(inner), min_size=1)
    ),
    max_leaves=8,
)


@given(st.fixed_dictionaries({"properties": st.dictionaries(st.sampled_from(["p", "q"]), schemas)}))
def test_marks_are_judged_as_the_reference_implementation_judges_them(schema: dict[str, Any]) -> None:
    if find_invalid_x_mcp_header(schema):
        reason(tool(schema))
    else:
        mirrored = read_tool(tool(schema)).mirrored
        assert {path: suffix for suffix, path in mirrored} == x_mcp_header_map(schema)


@pytest.mark.parametrize(
    ("kind", "key"),
    [(ItemKind.PROMPT, "name"), (ItemKind.RESOURCE, "uri"), (ItemKind.TEMPLATE, "uriTemplate")],
)
def test_other_items_are_known_by_their_key(kind: ItemKind, key: str) -> None:
    """R-17"""
    assert read_item(kind, json.dumps({key: "k://1", "title": "T"}).encode()) == "k://1"
    with pytest.raises(Unusable, match=f"it has no {key}"):
        read_item(kind, b'{"title":"T"}')


def test_an_address_may_be_longer_than_a_name() -> None:
    long = json.dumps({"uri": "k://" + "x" * 300, "name": "n" * 300}).encode()
    assert read_item(ItemKind.RESOURCE, long) == "k://" + "x" * 300
    with pytest.raises(Unusable, match="at most 255"):
        read_item(ItemKind.PROMPT, long)


def test_a_fingerprint_changes_with_any_byte() -> None:
    assert fingerprint(tool()) == fingerprint(tool())
    assert fingerprint(b'{"name":"t"}') != fingerprint(b'{"name": "t"}')


@given(
    st.binary(max_size=200) | st.text(max_size=200).map(lambda text: text.encode("utf-8", "surrogatepass"))
)
def test_any_bytes_are_a_tool_or_unusable(definition: bytes) -> None:
    """R-20"""
    reason(definition)
