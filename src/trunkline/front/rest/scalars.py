"""What one value of a request may be: texts, numbers, booleans, enums and times, by the type of its field.

Pure. A parser takes what JSON was decoded to and gives the value or raises `Unfit`; what came as text, in a
query string or a path, is made to what JSON would have been first. The rules that no field has to ask for are
here: enums in any case, no null characters in texts, a time without a zone is in UTC, integers of 64 bits.
"""

import re
from collections.abc import Callable
from datetime import UTC, datetime
from enum import Enum
from typing import Any

from msgspec import inspect

Parse = Callable[[object], object]

_INT64 = 2**63
_WHOLE = re.compile(r"[+-]?[0-9]{1,40}")
_NUMBER = re.compile(r"[+-]?[0-9]{1,40}(\.[0-9]{1,40})?([eE][+-]?[0-9]{1,3})?")
_WORDS = {
    **dict.fromkeys(("true", "1", "yes", "on", "t", "y"), True),
    **dict.fromkeys(("false", "0", "no", "off", "f", "n"), False),
}


class Unfit(Exception):
    """`type` is for programs, `msg` for people."""

    def __init__(self, msg: str, type: str) -> None:
        super().__init__(msg)
        self.msg = msg
        self.type = type


def parser_of(kind: inspect.Type) -> Parse:
    """Raises `TypeError` for a type that is not read here."""
    match kind:
        case inspect.StrType():
            return _text(kind)
        case inspect.IntType():
            return _integer(kind)
        case inspect.FloatType():
            return _number(kind)
        case inspect.BoolType():
            return _truth
        case inspect.EnumType():
            return _member(kind.cls)
        case inspect.DateTimeType():
            return _time
        case _:
            raise TypeError(f"There is no reader for {kind}")


def from_text(kind: inspect.Type, text: str) -> object:
    """What JSON would have been, where the text can be that; else the text, for the parser to refuse."""
    match kind:
        case inspect.IntType() if _WHOLE.fullmatch(text):
            return int(text)
        case inspect.FloatType() if _NUMBER.fullmatch(text):
            return float(text)
        case inspect.BoolType():
            return _WORDS.get(text.lower(), text)
        case _:
            return text


def _text(kind: inspect.StrType) -> Parse:
    judge_size = size_judge(kind, "String", "character")
    if kind.pattern is not None and not (kind.pattern.startswith("^") and kind.pattern.endswith("$")):
        raise TypeError(f"A pattern says the whole text, from ^ to $: {kind.pattern}")
    pattern = re.compile(kind.pattern) if kind.pattern is not None else None

    def parse(given: object) -> str:
        if not isinstance(given, str):
            raise Unfit("Input should be a valid string", "string_type")
        if "\x00" in given:
            raise Unfit("Input must not have null characters", "value_error")
        judge_size(given)
        if pattern is not None and not pattern.fullmatch(given):
            raise Unfit(f"String should match pattern '{kind.pattern}'", "string_pattern_mismatch")
        return given

    return parse


def size_judge(
    kind: inspect.StrType | inspect.ListType | inspect.DictType, what: str, part: str
) -> Callable[[Any], None]:
    """Raises `Unfit` for what has too few or too many parts."""
    least, most = kind.min_length or 0, kind.max_length

    def judge(given: Any) -> None:
        if len(given) < least:
            raise Unfit(f"{what} should have at least {_counted(least, part)}", f"{what.lower()}_too_short")
        if most is not None and len(given) > most:
            raise Unfit(f"{what} should have at most {_counted(most, part)}", f"{what.lower()}_too_long")

    return judge


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _integer(kind: inspect.IntType) -> Parse:
    judge_range = _range_judge(kind, -_INT64, _INT64 - 1)

    def parse(given: object) -> int:
        if isinstance(given, float) and given.is_integer():  # 7.0 is an integer, says JSON Schema
            given = int(given)
        if isinstance(given, bool) or not isinstance(given, int):
            raise Unfit("Input should be a valid integer", "int_type")
        judge_range(given)
        return given

    return parse


def _number(kind: inspect.FloatType) -> Parse:
    judge_range = _range_judge(kind)

    def parse(given: object) -> float:
        if isinstance(given, bool) or not isinstance(given, int | float):
            raise Unfit("Input should be a valid number", "float_type")
        judge_range(given)
        try:
            return float(given)
        except OverflowError:
            raise Unfit("The number is out of range", "value_error") from None

    return parse


def _range_judge(
    kind: inspect.IntType | inspect.FloatType, least: int | None = None, most: int | None = None
) -> Callable[[float], None]:
    """`least` and `most` hold where the type says neither."""
    if kind.multiple_of is not None or kind.gt is not None or kind.lt is not None:
        raise TypeError("Of the rules for numbers only ge and le are known")
    lowest = least if kind.ge is None else kind.ge
    highest = most if kind.le is None else kind.le

    def judge(given: float) -> None:
        if lowest is not None and given < lowest:
            raise Unfit(f"Input should be greater than or equal to {lowest}", "greater_than_equal")
        if highest is not None and given > highest:
            raise Unfit(f"Input should be less than or equal to {highest}", "less_than_equal")

    return judge


def _truth(given: object) -> bool:
    if not isinstance(given, bool):
        raise Unfit("Input should be a valid boolean", "bool_type")
    return given


def _member(kind: type[Enum]) -> Parse:
    members = {str(member.value).lower(): member for member in kind}
    *others, last = (f"'{member.value}'" for member in kind)
    wanted = f"{', '.join(others)} or {last}" if others else last

    def parse(given: object) -> Enum:
        member = members.get(given.lower()) if isinstance(given, str) else None
        if member is None:
            raise Unfit(f"Input should be {wanted}", "enum")
        return member

    return parse


def _time(given: object) -> datetime:
    try:
        if not isinstance(given, str) or "\x00" in given:  # behind which nothing would be read
            raise ValueError
        at = datetime.fromisoformat(given.upper())
        return at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC)
    except ValueError:
        raise Unfit("Input should be a time like 2026-11-19T09:30:00Z", "datetime_parsing") from None
    except OverflowError:
        raise Unfit("The time is out of range", "value_error") from None
