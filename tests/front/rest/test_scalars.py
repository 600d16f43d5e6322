"""Single values: what each kind takes, what its refusal says, and what a text becomes."""

import contextlib
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Annotated, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Meta, inspect

from trunkline.front.rest.scalars import Unfit, from_text, parser_of
from trunkline.model import Scope

Short = Annotated[str, Meta(min_length=2, max_length=3, pattern="^[a-z]+$")]
Few = Annotated[int, Meta(ge=1, le=9)]
Share = Annotated[float, Meta(ge=0, le=1)]


class Colour(Enum):
    RED = "Red"


def parsed(kind: Any, value: object) -> object:
    return parser_of(inspect.type_info(kind))(value)


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (str, "", ""),
        (str, "é\n", "é\n"),
        (Short, "ab", "ab"),
        (int, 7, 7),
        (int, 7.0, 7),
        (int, -(2**63), -(2**63)),
        (Few, 9, 9),
        (float, 1, 1.0),
        (float, 1e300, 1e300),
        (Share, 0.5, 0.5),
        (bool, False, False),
        (Scope, "READ", Scope.READ),
        (Scope, "Admin", Scope.ADMIN),
        (Colour, "RED", Colour.RED),
    ],
)
def test_a_value_is_taken_as_its_field_wants_it(kind: Any, value: object, expected: object) -> None:
    found = parsed(kind, value)
    assert (found, type(found)) == (expected, type(expected))


@pytest.mark.parametrize(
    ("kind", "values", "type_", "msg"),
    [
        (str, [None, 7, True, [], {}], "string_type", "Input should be a valid string"),
        (str, ["\x00", "a\x00b"], "value_error", "Input must not have null characters"),
        (Short, ["", "a"], "string_too_short", "String should have at least 2 characters"),
        (Short, ["abcd"], "string_too_long", "String should have at most 3 characters"),
        (
            *(Short, ["AB", "a b", "ab\n"]),
            *("string_pattern_mismatch", "String should match pattern '^[a-z]+$'"),
        ),
        (int, [None, True, False, "7", 1.5, [], {}], "int_type", "Input should be a valid integer"),
        (Few, [0, -1, -(10**30), -1e300], "greater_than_equal", "Input should be greater than or equal to 1"),
        (Few, [10, 10**30, 1e300], "less_than_equal", "Input should be less than or equal to 9"),
        (
            *(int, [2**63, 10**4000]),
            *("less_than_equal", "Input should be less than or equal to 9223372036854775807"),
        ),
        (float, [None, True, "0.5", []], "float_type", "Input should be a valid number"),
        (float, [10**4000], "value_error", "The number is out of range"),
        (Share, [1.5, 2], "less_than_equal", "Input should be less than or equal to 1"),
        (bool, [None, 0, 1, "true"], "bool_type", "Input should be a valid boolean"),
        (
            *(Scope, [None, 0, "", "root", "read ", ["read"]]),
            *("enum", "Input should be 'read', 'call' or 'admin'"),
        ),
        (Colour, ["blue"], "enum", "Input should be 'Red'"),
        (
            datetime,
            [None, 1700000000, "", "yesterday", "2020-13-01", "2020-01-01T00:00:00\x00", "1700000000"],
            "datetime_parsing",
            "Input should be a time like 2026-11-19T09:30:00Z",
        ),
        (
            *(datetime, ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"]),
            *("value_error", "The time is out of range"),
        ),
    ],
)
def test_a_value_that_does_not_fit_is_refused_in_words(
    kind: Any, values: list[object], type_: str, msg: str
) -> None:
    for value in values:
        with pytest.raises(Unfit) as refused:
            parsed(kind, value)
        assert (refused.value.type, refused.value.msg) == (type_, msg), value


@pytest.mark.parametrize(
    ("text", "hours"),
    [
        ("2026-11-19T09:30:00Z", 0),
        ("2026-11-19t09:30:00z", 0),
        ("2026-11-19T09:30:00", 0),
        ("2026-11-19 09:30", 0),
        ("2026-11-19T09:30:00+02:00", 2),
        ("2026-11-19T09:30:00-0530", -5.5),
    ],
)
def test_a_time_without_a_zone_is_in_utc(text: str, hours: float) -> None:
    found = parsed(datetime, text)
    assert found == datetime(2026, 11, 19, 9, 30, tzinfo=UTC) - timedelta(hours=hours)
    assert isinstance(found, datetime)
    assert found.tzinfo is UTC


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        (int, "7", 7),
        (int, "-7", -7),
        (int, "007", 7),
        (int, "9" * 40, int("9" * 40)),
        (int, "9" * 41, "9" * 41),
        (int, "", ""),
        (int, "7.0", "7.0"),
        (int, "1_0", "1_0"),
        (int, " 7", " 7"),
        (int, "٣", "٣"),
        (float, "0.5", 0.5),
        (float, "1e3", 1000.0),
        (float, "nan", "nan"),
        (float, "inf", "inf"),
        (bool, "TRUE", True),
        (bool, "off", False),
        (bool, "maybe", "maybe"),
        (str, "7", "7"),
    ],
)
def test_a_text_becomes_what_it_can_be_and_else_stays(kind: Any, text: str, expected: object) -> None:
    found = from_text(inspect.type_info(kind), text)
    assert (found, type(found)) == (expected, type(expected))


@settings(derandomize=True)
@given(st.sampled_from([str, int, float, bool, Scope, datetime, Short, Few, Share]), st.text())
def test_no_text_is_too_strange(kind: Any, text: str) -> None:
    """It is a value of its kind, or refused."""
    found = inspect.type_info(kind)
    with contextlib.suppress(Unfit):
        parser_of(found)(from_text(found, text))


@pytest.mark.parametrize(
    "kind",
    [
        bytes,
        object,
        Annotated[int, Meta(multiple_of=2)],
        Annotated[float, Meta(gt=0)],
        Annotated[str, Meta(pattern="[a-z]")],
    ],
)
def test_a_kind_or_a_rule_that_is_not_known_is_refused_before_any_request(kind: Any) -> None:
    """A rule that stood in the document and was not judged would be a lie."""
    with pytest.raises(TypeError):
        parser_of(inspect.type_info(kind))
