"""Reads what was sent into Structs, and names every fault at once, each with the place it is in.

A `Reader` is made from its Struct when the routes are: a type or a rule it does not know stops the start, not
a request. `scalars.py` judges single values, `bodies.py` has judged already whether a body is JSON; what a
value means is for the core.
"""

from collections.abc import Callable, Iterable

from msgspec import UNSET, Struct, inspect

from trunkline.errors import FieldError, ValidationError
from trunkline.front.rest.scalars import Parse, Unfit, from_text, parser_of, size_judge

Place = tuple[str | int, ...]
MOST_FAULTS = 100
"""Named one by one; of what is beyond them only the number is told."""


def given_in(order: Struct) -> dict[str, object]:
    """The fields that were sent, of a Struct whose fields may be left out (`UNSET`)."""
    fields = ((name, getattr(order, name)) for name in order.__struct_fields__)
    return {name: value for name, value in fields if value is not UNSET}


class Faults:
    """What is wrong with one request, gathered while it is read."""

    def __init__(self) -> None:
        self._found: list[FieldError] = []
        self.number = 0

    def add(self, place: Place, msg: str, type: str) -> None:
        self.number += 1
        if self.number <= MOST_FAULTS:
            self._found.append(FieldError(place, msg, type))

    def refuse(self) -> None:
        """Raises `ValidationError` if there are any."""
        if more := self.number - len(self._found):
            where = self._found[-1].loc[:1]
            self._found.append(FieldError(where, f"There are {more} more faults", "too_many_faults"))
        if self._found:
            raise ValidationError(self._found)


class Reader:
    """Of one Struct. What it gives back is of that type if it added no fault, and else of no use."""

    def __init__(self, kind: type[Struct]) -> None:
        found = inspect.type_info(kind)
        if not isinstance(found, inspect.StructType):
            raise TypeError(f"{kind} is not a Struct")
        self._read = _object(found)
        self._from_texts = {field.encode_name: _from_texts(field.type) for field in found.fields}

    def read(self, given: object, place: str, faults: Faults) -> object:
        """Of what JSON was decoded to."""
        return self._read(given, (place,), faults)

    def read_texts(self, given: Iterable[tuple[str, str]], place: str, faults: Faults) -> object:
        """Of names and texts, as in a query string. Where one value is wanted, the last one counts."""
        texts: dict[str, list[str]] = {}
        for name, text in given:
            texts.setdefault(name, []).append(text)
        values = {name: self._from_texts.get(name, _last)(found) for name, found in texts.items()}
        return self._read(values, (place,), faults)


_Read = Callable[[object, Place, Faults], object]


def _reader(kind: inspect.Type) -> _Read:
    match kind:
        case inspect.Metadata():
            return _reader(kind.type)
        case inspect.UnionType():
            return _optional(kind)
        case inspect.StructType():
            return _object(kind)
        case inspect.DictType():
            return _dictionary(kind)
        case inspect.ListType():
            return _list(kind)
        case inspect.AnyType():
            return lambda given, place, faults: given
        case _:
            parse = parser_of(kind)
            return lambda given, place, faults: _judged(parse, given, place, faults)


def _judged(parse: Parse, given: object, place: Place, faults: Faults) -> object:
    try:
        return parse(given)
    except Unfit as unfit:
        faults.add(place, unfit.msg, unfit.type)
        return None


def _optional(kind: inspect.UnionType) -> _Read:
    read_present = _reader(_present(kind))
    return lambda given, place, faults: None if given is None else read_present(given, place, faults)


def _present(kind: inspect.UnionType) -> inspect.Type:
    others = [each for each in kind.types if not isinstance(each, inspect.NoneType)]
    if len(others) != 1:
        raise TypeError(f"A field is of one type, or of one type and None, not {kind}")
    return others[0]


def _object(kind: inspect.StructType) -> _Read:
    if not kind.forbid_unknown_fields or kind.tag_field is not None or kind.array_like:
        raise TypeError(f"{kind.cls} must be a plain Struct with forbid_unknown_fields")
    fields = [(field.encode_name, field.name, field.required, _reader(field.type)) for field in kind.fields]
    known = {field.encode_name for field in kind.fields}

    def read(given: object, place: Place, faults: Faults) -> object:
        if not isinstance(given, dict):
            faults.add(place, "Input should be a valid dictionary", "model_attributes_type")
            return None
        before, values = faults.number, {}
        for key, name, required, read_field in fields:
            if key in given:
                values[name] = read_field(given[key], (*place, key), faults)
            elif required:
                faults.add((*place, key), "Field required", "missing")
        for key in given:
            if key not in known:
                faults.add((*place, key), "Extra inputs are not permitted", "extra_forbidden")
        return kind.cls(**values) if faults.number == before else None

    return read


def _dictionary(kind: inspect.DictType) -> _Read:
    if kind.key_type != inspect.StrType():
        raise TypeError("The keys of an object are texts, of which nothing more is asked")
    read_value = _reader(kind.value_type)
    judge_size = size_judge(kind, "Dictionary", "item")

    def read(given: object, place: Place, faults: Faults) -> object:
        if not isinstance(given, dict):
            faults.add(place, "Input should be a valid dictionary", "dict_type")
            return None
        _judged(judge_size, given, place, faults)
        return {key: read_value(value, (*place, key), faults) for key, value in given.items()}

    return read


def _list(kind: inspect.ListType) -> _Read:
    read_item = _reader(kind.item_type)
    judge_size = size_judge(kind, "List", "item")

    def read(given: object, place: Place, faults: Faults) -> object:
        if not isinstance(given, list):
            faults.add(place, "Input should be a valid list", "list_type")
            return None
        _judged(judge_size, given, place, faults)
        return [read_item(item, (*place, at), faults) for at, item in enumerate(given)]

    return read


# Texts


def _last(texts: list[str]) -> object:
    return texts[-1]


def _from_texts(kind: inspect.Type) -> Callable[[list[str]], object]:
    match kind:
        case inspect.Metadata():
            return _from_texts(kind.type)
        case inspect.UnionType():
            return _from_texts(_present(kind))
        case inspect.ListType():
            from_one = _from_texts(kind.item_type)
            return lambda texts: [from_one([text]) for text in texts]
        case _:
            return lambda texts: from_text(kind, texts[-1])
