"""Requests read into Structs: every fault at once, each at its place, and nothing let through."""

import json
from datetime import datetime
from typing import Annotated, Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET, Meta, Struct, UnsetType

from tests.front.test_fuzz import anything, some_of
from trunkline.errors import ValidationError
from trunkline.front.rest.reading import MOST_FAULTS, Faults, Reader, given_in
from trunkline.model import Scope


class Inner(Struct, forbid_unknown_fields=True):
    count: Annotated[int, Meta(ge=1, le=9)]
    note: str | None = None


class Order(Struct, forbid_unknown_fields=True, kw_only=True):
    name: Annotated[str, Meta(min_length=1, description="What it is called.")]
    scope: Scope = Scope.READ
    share: float = 0.5
    on: bool = True
    since: datetime | None = None
    inner: Inner | None = None
    more: Annotated[list[Inner], Meta(max_length=2)] = []
    labels: Annotated[dict[str, str], Meta(max_length=1)] = {}
    free: dict[str, Any] = {}
    patched: str | UnsetType | None = UNSET


class Tagged(Struct, tag="a", forbid_unknown_fields=True):
    name: str


class Lax(Struct):
    name: str


class Query(Struct, forbid_unknown_fields=True):
    limit: Annotated[int, Meta(ge=1, le=9)] = 5
    scope: Scope | None = None
    on: bool = False
    tags: list[str] = []
    counts: Annotated[list[int], Meta(min_length=1)] | None = None


def read(kind: type[Struct], sent: object) -> object:
    faults = Faults()
    found = Reader(kind).read(sent, "body", faults)
    faults.refuse()
    return found


def read_query(*sent: tuple[str, str]) -> object:
    faults = Faults()
    found = Reader(Query).read_texts(sent, "query", faults)
    faults.refuse()
    return found


def refusal(kind: type[Struct], sent: object) -> list[tuple[tuple[str | int, ...], str]]:
    with pytest.raises(ValidationError) as refused:
        read(kind, sent)
    return [(fault.loc, fault.type) for fault in refused.value.faults]


def test_what_is_left_out_has_its_default_and_what_is_there_its_type() -> None:
    assert read(Order, {"name": "a"}) == Order(name="a")
    sent = {
        "name": "a",
        "scope": "ADMIN",
        "share": 1,
        "on": False,
        "inner": {"count": 3},
        "more": [{"count": 1, "note": None}],
        "labels": {"k": "v"},
        "free": {"k": [1, {"x": None}]},
        "patched": None,
    }
    assert read(Order, sent) == Order(
        name="a",
        scope=Scope.ADMIN,
        share=1.0,
        on=False,
        inner=Inner(3),
        more=[Inner(1)],
        labels={"k": "v"},
        free={"k": [1, {"x": None}]},
        patched=None,
    )


def test_what_was_sent_is_told_from_what_was_left_out() -> None:
    found = read(Order, {"name": "a"})
    assert isinstance(found, Order)
    assert "patched" not in given_in(found)
    found = read(Order, {"name": "a", "patched": None})
    assert isinstance(found, Order)
    assert given_in(found)["patched"] is None


def test_every_fault_is_named_at_once_with_its_place() -> None:
    """R-02."""
    sent = {
        "scope": "root",
        "share": "x",
        "on": 1,
        "since": "yesterday",
        "inner": {"count": 10, "note": "\x00", "odd": 1},
        "more": [{"count": 1}, {}, {"count": 1}],
        "labels": {"k": 7, "l": "l"},
        "free": [],
        "patched": 7,
        "odd": 1,
    }
    assert refusal(Order, sent) == [
        (("body", "name"), "missing"),
        (("body", "scope"), "enum"),
        (("body", "share"), "float_type"),
        (("body", "on"), "bool_type"),
        (("body", "since"), "datetime_parsing"),
        (("body", "inner", "count"), "less_than_equal"),
        (("body", "inner", "note"), "value_error"),
        (("body", "inner", "odd"), "extra_forbidden"),
        (("body", "more"), "list_too_long"),
        (("body", "more", 1, "count"), "missing"),
        (("body", "labels"), "dictionary_too_long"),
        (("body", "labels", "k"), "string_type"),
        (("body", "free"), "dict_type"),
        (("body", "patched"), "string_type"),
        (("body", "odd"), "extra_forbidden"),
    ]


def test_the_words_for_what_is_missing_and_what_is_too_much() -> None:
    with pytest.raises(ValidationError) as refused:
        read(Order, {"odd": 1})
    assert [fault.msg for fault in refused.value.faults] == [
        "Field required",
        "Extra inputs are not permitted",
    ]


@pytest.mark.parametrize("sent", [None, [], "x", 7, True])
def test_what_is_no_object_is_refused_as_a_whole(sent: object) -> None:
    assert refusal(Order, sent) == [(("body",), "model_attributes_type")]
    assert refusal(Order, {"name": "a", "inner": sent or 0}) == [(("body", "inner"), "model_attributes_type")]


def test_a_thousand_faults_are_not_all_named() -> None:
    """A small request must not make a large answer; that it is cut off is said."""
    with pytest.raises(ValidationError) as refused:
        read(Order, {"name": "a", **{str(number): 1 for number in range(1000)}})
    *named, last = refused.value.faults
    assert len(named) == MOST_FAULTS
    assert (last.loc, last.msg) == (("body",), f"There are {1000 - MOST_FAULTS} more faults")


def test_a_query_is_read_from_texts_and_the_last_of_a_name_counts() -> None:
    assert read_query() == Query()
    sent = [("limit", "x"), ("limit", "3"), ("on", "yes"), ("scope", "Call"), ("tags", "a"), ("tags", "b")]
    assert read_query(*sent, ("counts", "1")) == Query(3, Scope.CALL, True, ["a", "b"], [1])


def test_the_faults_of_a_query_have_its_place() -> None:
    with pytest.raises(ValidationError) as refused:
        read_query(("limit", ""), ("on", "maybe"), ("counts", "1"), ("counts", "x"), ("lmit", "1"))
    assert [(fault.loc, fault.type) for fault in refused.value.faults] == [
        (("query", "limit"), "int_type"),
        (("query", "on"), "bool_type"),
        (("query", "counts", 1), "int_type"),
        (("query", "lmit"), "extra_forbidden"),
    ]


def with_a_field_of(kind: Any) -> type[Struct]:
    return msgspec.defstruct("Made", [("field", kind)], forbid_unknown_fields=True)


@pytest.mark.parametrize("kind", [int | str, int | str | None, dict[int, str], set[str], bytes, Lax, Tagged])
def test_a_field_that_cannot_be_read_is_refused_before_any_request(kind: Any) -> None:
    assert Reader(with_a_field_of(Inner))
    with pytest.raises(TypeError):
        Reader(with_a_field_of(kind))


orders = some_of(
    name=st.text(max_size=3),
    scope=st.sampled_from(["read", "CALL"]),
    share=st.floats(0, 1),
    on=st.booleans(),
    since=st.datetimes().map(datetime.isoformat),
    inner=some_of(count=st.integers(0, 10), note=st.none() | st.text(max_size=2)),
    more=st.lists(some_of(count=st.integers(0, 10)), max_size=3),
    labels=st.dictionaries(st.text(max_size=2), st.text(max_size=2), max_size=2),
    free=st.dictionaries(st.text(max_size=2), st.integers(), max_size=2),
    patched=st.none() | st.text(max_size=2),
)


@settings(max_examples=500, deadline=None, derandomize=True)
@given(orders | anything)
def test_what_is_read_is_what_the_types_say(sent: object) -> None:
    """Whatever is sent is refused with a place for each fault, or is a Struct as msgspec itself makes one."""
    faults = Faults()
    found = Reader(Order).read(sent, "body", faults)
    if faults.number:
        with pytest.raises(ValidationError) as refused:
            faults.refuse()
        assert all(fault.loc[0] == "body" and fault.msg and fault.type for fault in refused.value.faults)
        return
    assert isinstance(found, Order)
    assert msgspec.convert(msgspec.to_builtins(found), Order) == found


@settings(max_examples=300, deadline=None, derandomize=True)
@given(orders | anything)
def test_what_the_types_allow_is_read(sent: object) -> None:
    """The other way round, but for what the house refuses everywhere."""
    try:
        wanted = msgspec.convert(sent, Order)
    except (msgspec.ValidationError, UnicodeEncodeError):  # the second cannot be sent as JSON
        return
    if "\\u0000" in json.dumps(sent):
        return
    faults = Faults()
    found = Reader(Order).read(sent, "body", faults)
    faults.refuse()
    assert isinstance(found, Order)
    assert msgspec.structs.replace(found, since=None) == msgspec.structs.replace(wanted, since=None)
