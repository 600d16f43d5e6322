"""How `key=value` becomes the arguments a schema asks for."""

from typing import Any

import pytest

from trunkline.cli.arguments import read_arguments, usage_lines
from trunkline.cli.failures import UsageFailure

SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["text"],
    "$defs": {"Colour": {"enum": ["red", "green"]}, "Loop": {"$ref": "#/$defs/Loop"}},
    "properties": {
        "text": {"type": "string", "description": "What to say"},
        "count": {"type": "integer"},
        "ratio": {"type": "number"},
        "loud": {"type": "boolean"},
        "nothing": {"type": "null"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "sizes": {"type": "array", "items": {"type": "integer"}},
        "where": {"type": "object"},
        "colour": {"$ref": "#/$defs/Colour"},
        "level": {"enum": [1, 2, "high", None, True]},
        "limit": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "note": {"type": ["string", "null"]},
        "either": {"oneOf": [{"type": "integer"}, {"type": "string"}]},
        "steps": {"anyOf": [{"type": "array", "items": {"type": "integer"}}, {"type": "null"}]},
        "maybe": {"anyOf": [{"$ref": "#/$defs/Colour"}, {"type": "null"}]},
        "fixed": {"const": 7},
        "anything": {},
        "endless": {"$ref": "#/$defs/Loop"},
        "odd": True,
    },
}


@pytest.mark.parametrize(
    ("pair", "value"),
    [
        ("text=007", "007"),
        ("text=true", "true"),
        ('text={"a": 1}', '{"a": 1}'),
        ("text=a=b=c", "a=b=c"),
        ("text=", ""),
        ("count=-3", -3),
        ("count=123456789012345678901234567890", 123456789012345678901234567890),
        ("ratio=1e3", 1000.0),
        ("ratio=2", 2),
        ("ratio=-.5", -0.5),
        ("loud=Yes", True),
        ("loud=off", False),
        ("nothing=null", None),
        ("tags=one", ["one"]),
        ('tags=["one", "two"]', ["one", "two"]),
        ("tags=a,b", ["a,b"]),
        ("sizes=3", [3]),
        ('where={"x": 1}', {"x": 1}),
        ("colour=red", "red"),
        ("level=1", 1),
        ("level=high", "high"),
        ("level=null", None),
        ("level=true", True),
        ("limit=5", 5),
        ("limit=null", None),
        ("note=null", "null"),
        ("either=5", "5"),
        ("steps=4", [4]),
        ("maybe=green", "green"),
        ("maybe=null", None),
        ("fixed=7", 7),
        ("anything=12", "12"),
        ("endless=12", "12"),
        ("odd=12", "12"),
        ("note:=null", None),
        ("either:=5", 5),
        ('anything:=[1, {"a": null}]', [1, {"a": None}]),
        ("unknown:=1", 1),
    ],
)
def test_a_value_is_read_as_what_the_schema_says(pair: str, value: object) -> None:
    key = pair.partition("=")[0].removesuffix(":")
    arguments = read_arguments([pair, *(["text=x"] if key != "text" else [])], SCHEMA)
    assert arguments[key] == value
    assert type(arguments[key]) is type(value)


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        (["count=seven"], "count: must be a whole number, not 'seven'"),
        (["count=1_000"], "count: must be a whole number"),
        (["count=1.5"], "count: must be a whole number"),
        (["ratio=nan"], "ratio: must be a number"),
        (["ratio=1e999"], "ratio: must be a number"),
        (["loud=2"], "loud: must be true or false"),
        (["colour=blue"], 'colour: must be one of "red", "green", not \'blue\''),
        (["level=3"], 'level: must be one of 1, 2, "high", null, true'),
        (["where=[1]"], "where: must be a JSON object"),
        (["where={"], "where: must be JSON"),
        (["sizes=[1"], "sizes: must be JSON"),
        (["sizes=x"], "sizes: must be a whole number"),
        (["limit=x"], "limit: must be integer or null, not 'x'"),
        (["text:=NaN"], "text: must be JSON"),
        (["count=1", "count=2"], "count: is given more than once, and is not a list"),
        (["colour=red", "colour=green"], "colour: is given more than once"),
        (["cuont=1"], "The tool has no argument 'cuont'"),
        (["just-a-word"], "'just-a-word' is not key=value"),
        (["=1"], "'=1' is not key=value"),
        ([":=1"], "':=1' is not key=value"),
        (["count=1"], "Missing: text"),
        (["count=" + "9" * 5000], "count: must be a whole number"),
        (["where=" + "[" * 100_000], "where: must be JSON"),
    ],
)
def test_what_does_not_fit_is_refused_with_what_the_tool_wants(pairs: list[str], message: str) -> None:
    with pytest.raises(UsageFailure) as refused:
        read_arguments(pairs, SCHEMA)
    assert refused.value.message.startswith(message)
    if "key=value" not in message:
        assert "text      string, required: What to say" in refused.value.hints
    assert len(refused.value.message) < 200


def test_a_list_takes_its_key_several_times() -> None:
    given = read_arguments(["text=x", "sizes=1", "sizes=[2, 3]", "sizes=4"], SCHEMA)
    assert given["sizes"] == [1, 2, 3, 4]


def test_whole_arguments_are_taken_as_they_are_and_pairs_go_over_them() -> None:
    given = read_arguments(["count=2"], SCHEMA, {"count": 1, "stranger": [None]})
    assert given == {"count": 2, "stranger": [None]}


def test_an_open_schema_takes_further_keys() -> None:
    ways: list[dict[str, Any]] = [
        {"additionalProperties": True},
        {"additionalProperties": {}},
        {"patternProperties": {}},
    ]
    for extra in ways:
        assert read_arguments(["a=1"], {"type": "object", **extra}) == {"a": "1"}


def test_a_schema_put_together_from_parts_is_read_whole() -> None:
    schema = {
        "allOf": [{"properties": {"a": {"type": "integer"}}, "required": ["a"]}, {"$ref": "#/$defs/B"}],
        "$defs": {"B": {"properties": {"b": {"type": "boolean"}}}},
        "anyOf": [{"properties": {"c": {"type": "number"}}, "required": ["c"]}],
    }
    assert read_arguments(["a=1", "b=true", "c=2"], schema) == {"a": 1, "b": True, "c": 2}
    with pytest.raises(UsageFailure, match="Missing: a"):
        read_arguments([], schema)


def test_what_a_tool_wants_is_listed_required_first() -> None:
    schema = {
        "properties": {
            "b": {"type": "array", "items": {"type": "integer"}},
            "a": {"enum": ["x", "y"], "description": "One\n of two"},
        },
        "required": ["a"],
    }
    assert usage_lines(schema) == [
        "It takes:", 'a  one of "x", "y", required: One of two', "b  list of integer",
    ]  # fmt: skip
    assert usage_lines({"type": "object"}) == ["It takes no arguments."]
    assert usage_lines({"type": "object", "additionalProperties": True}) == ["It takes any arguments."]


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": 5, "required": "a", "anyOf": 7, "allOf": [3], "oneOf": {}},
        {"properties": {"a": None}, "required": [1, None]},
        {"$ref": "https://elsewhere.example/schema"},
        {"$ref": "#/nowhere"},
        {"anyOf": [{"$ref": "#"}]},
    ],
)
def test_an_odd_schema_costs_no_more_than_its_help(schema: dict[str, Any]) -> None:
    usage_lines(schema)
    assert read_arguments(["a:=1"], schema) == {"a": 1}
