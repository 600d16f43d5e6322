"""`${NAME}` in a configuration: which variables may be named, and what they stand for when connecting.

`${NAME}` is a reference, `$${` is a literal `${`, a `$` elsewhere is itself. Only names that the operator
allows are ever read; the gateway's own variables never are, whatever is allowed, so that no registration
can carry them to an upstream. Which field may hold a reference is decided in `admission.py`.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from trunkline.settings import CREDENTIAL_KEY, PREFIX

_MARK = re.compile(r"\$\$\{|\$\{([A-Za-z_][A-Za-z0-9_]*)\}|\$\{")


class VariableFault(ValueError):
    """What is wrong, in words for a person; it may name a variable and never shows a value."""


@dataclass(frozen=True, slots=True)
class Reference:
    name: str

    def __str__(self) -> str:
        return f"${{{self.name}}}"


@dataclass(frozen=True, slots=True)
class Filled:
    text: str
    values: frozenset[str]


def parse(text: str) -> tuple[str | Reference, ...]:
    """Literal texts and references, in order. Raises `VariableFault` for a `${` that is neither."""
    pieces: list[str | Reference] = []
    end = 0
    for mark in _MARK.finditer(text):
        pieces.append(text[end : mark.start()])
        end = mark.end()
        if mark[0] == "$${":
            pieces.append("${")
        elif mark[1] is not None:
            pieces.append(Reference(mark[1]))
        else:
            raise VariableFault("A ${ must begin a ${NAME}, or be written $${ to stand for itself")
    pieces.append(text[end:])
    return tuple(piece for piece in pieces if piece)


def _unchanged(value: str) -> str:
    return value


class Variables:
    def __init__(self, allowed: Iterable[str], environ: Mapping[str, str]) -> None:
        """`allowed` are names, or prefixes ending in `*`."""
        rules = tuple(allowed)
        self._names = frozenset(rule for rule in rules if not rule.endswith("*"))
        self._prefixes = tuple(rule[:-1] for rule in rules if rule.endswith("*"))
        self._environ = environ

    def check(self, text: str) -> None:
        """Whether its references are allowed; their values are not looked at. Raises `VariableFault`."""
        for piece in parse(text):
            if isinstance(piece, Reference):
                self._check_name(piece)

    def fill(self, text: str, encode: Callable[[str], str] = _unchanged) -> Filled:
        """References replaced, each value by way of `encode`. Raises `VariableFault`."""
        filled: list[str] = []
        values: set[str] = set()
        for piece in parse(text):
            if isinstance(piece, str):
                filled.append(piece)
                continue
            value = self._value(piece)
            values.add(value)
            filled.append(encode(value))
        return Filled("".join(filled), frozenset(values))

    def _check_name(self, reference: Reference) -> None:
        name = reference.name
        if name.upper() == CREDENTIAL_KEY or name.upper().startswith(PREFIX):
            raise VariableFault(f"{reference} is one of the gateway's own variables and can never be used")
        if name not in self._names and not name.startswith(self._prefixes):
            raise VariableFault(
                f"{reference} may not be used: add {name} to MCP_AGGREGATOR_ALLOWED_VARIABLES to allow it"
            )

    def _value(self, reference: Reference) -> str:
        self._check_name(reference)
        value = self._environ.get(reference.name)
        if not value:
            raise VariableFault(f"{reference} is not set in the gateway's environment")
        return value
