"""The three sample servers and their tools: a clock, a desk for words and notes, a measure with dice.

Their tools do something small that can be checked by eye. What carries them is in `stdio.py` and `web.py`.
"""

import random
import re
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Any
from zoneinfo import ZoneInfo

from trunkline.cli.samples.sample_server import Mistaken, SampleServer, SampleTool

_LONGEST_TEXT = 100_000
_MOST_NOTES = 100
_TEXT = {"type": "string"}


def clock() -> SampleServer:
    """Time: which it is, which it is elsewhere, how long it is between two days."""
    zone = {"type": "string", "description": "A zone like Europe/Vienna"}
    tools = [
        SampleTool("now", "The time in a zone (UTC by itself).", {"timezone": zone}, (), _now),
        SampleTool(
            "convert_time",
            "What a time in one zone is in another.",
            {
                "time": {"type": "string", "description": "Like 2026-11-19T09:30"},
                "from_timezone": zone,
                "to_timezone": zone,
            },
            ("time", "from_timezone", "to_timezone"),
            _convert_time,
        ),
        SampleTool(
            "days_between",
            "The days from one date to another, and what weekday each is.",
            {
                "start": {"type": "string", "description": "Like 2026-01-31"},
                "end": {"type": "string", "description": "Like 2026-12-24"},
            },
            ("start", "end"),
            _days_between,
        ),
    ]
    return SampleServer("clock", "Clock", tools)


def desk() -> SampleServer:
    """Words and notes; the notes live as long as the server does."""
    notes: list[str] = []

    def add_note(arguments: Mapping[str, Any]) -> dict[str, Any]:
        if len(notes) >= _MOST_NOTES:
            raise Mistaken(f"the pad is full: it takes {_MOST_NOTES} notes")
        notes.append(arguments["text"][:_LONGEST_TEXT])
        return {"number": len(notes), "text": notes[-1]}

    def list_notes(_: Mapping[str, Any]) -> dict[str, Any]:
        return {"notes": list(notes), "count": len(notes)}

    tools = [
        SampleTool(
            "text_statistics",
            "Characters, words, sentences and the most used words of a text.",
            {"text": _TEXT},
            ("text",),
            _text_statistics,
        ),
        SampleTool(
            "add_note", "Writes a note.", {"text": _TEXT}, ("text",), add_note, changes_something=True
        ),
        SampleTool("list_notes", "All notes written so far.", {}, (), list_notes),
    ]
    return SampleServer("desk", "Desk", tools)


def measure() -> SampleServer:
    """Units and dice; the same seed throws the same dice."""
    unit = {"type": "string", "enum": sorted(_UNITS)}
    tools = [
        SampleTool(
            "convert_units",
            "Converts a value between units of the same kind.",
            {"value": {"type": "number"}, "from_unit": unit, "to_unit": unit},
            ("value", "from_unit", "to_unit"),
            _convert_units,
        ),
        SampleTool(
            "roll_dice",
            "Throws dice; with a seed, the same ones again.",
            {
                "count": {"type": "integer", "minimum": 1, "maximum": 100},
                "sides": {"type": "integer", "minimum": 2, "maximum": 1000},
                "seed": {"type": "integer"},
            },
            (),
            _roll_dice,
        ),
    ]
    return SampleServer("measure", "Measure", tools, modern=True)


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (LookupError, ValueError, OSError):
        raise Mistaken(
            f"there is no time zone {name!r} on this machine; zones are like Europe/Vienna"
        ) from None


def _now(arguments: Mapping[str, Any]) -> dict[str, Any]:
    name = arguments.get("timezone", "UTC")
    now = datetime.now(UTC) if name == "UTC" else datetime.now(_zone(name))
    return {"time": now.isoformat(timespec="seconds"), "timezone": name}


def _convert_time(arguments: Mapping[str, Any]) -> dict[str, Any]:
    try:
        moment = datetime.fromisoformat(arguments["time"])
    except ValueError:
        raise Mistaken(f"{arguments['time']!r} is no time like 2026-11-19T09:30") from None
    start = moment.replace(tzinfo=_zone(arguments["from_timezone"]))
    return {
        "from": start.isoformat(timespec="minutes"),
        "to": start.astimezone(_zone(arguments["to_timezone"])).isoformat(timespec="minutes"),
    }


def _days_between(arguments: Mapping[str, Any]) -> dict[str, Any]:
    days = []
    for name in ("start", "end"):
        try:
            days.append(date.fromisoformat(arguments[name]))
        except ValueError:
            raise Mistaken(f"{name} is no date like 2026-01-31: {arguments[name]!r}") from None
    start, end = days
    return {"days": (end - start).days, "start": f"{start:%A}", "end": f"{end:%A}"}


def _text_statistics(arguments: Mapping[str, Any]) -> dict[str, Any]:
    text = arguments["text"][:_LONGEST_TEXT]
    words = re.findall(r"\w+(?:'\w+)?", text)
    common = Counter(word.lower() for word in words).most_common(3)
    return {
        "characters": len(text),
        "words": len(words),
        "sentences": len(re.findall(r"[^.!?]*\w[^.!?]*(?:[.!?]+|$)", text)),
        "most_used": [word for word, _ in common],
    }


_UNITS: dict[str, tuple[str, float, float]] = {
    "m": ("length", 1.0, 0.0),
    "km": ("length", 1000.0, 0.0),
    "mi": ("length", 1609.344, 0.0),
    "ft": ("length", 0.3048, 0.0),
    "in": ("length", 0.0254, 0.0),
    "kg": ("mass", 1.0, 0.0),
    "g": ("mass", 0.001, 0.0),
    "lb": ("mass", 0.45359237, 0.0),
    "oz": ("mass", 0.028349523125, 0.0),
    "K": ("temperature", 1.0, 0.0),
    "C": ("temperature", 1.0, 273.15),
    "F": ("temperature", 5 / 9, 459.67 * 5 / 9),
    "l": ("volume", 1.0, 0.0),
    "gal": ("volume", 3.785411784, 0.0),
}
"""Unit -> kind, and factor and offset to the kind's first unit."""


def _convert_units(arguments: Mapping[str, Any]) -> dict[str, Any]:
    for name in ("from_unit", "to_unit"):
        if arguments[name] not in _UNITS:
            raise Mistaken(f"{name} is none of {', '.join(sorted(_UNITS))}")
    kind, factor, offset = _UNITS[arguments["from_unit"]]
    other_kind, other_factor, other_offset = _UNITS[arguments["to_unit"]]
    if kind != other_kind:
        raise Mistaken(f"{arguments['from_unit']} measures {kind}, {arguments['to_unit']} {other_kind}")
    value = (arguments["value"] * factor + offset - other_offset) / other_factor
    return {"value": round(value, 6), "unit": arguments["to_unit"]}


def _roll_dice(arguments: Mapping[str, Any]) -> dict[str, Any]:
    count, sides = arguments.get("count", 2), arguments.get("sides", 6)
    if not 1 <= count <= 100 or not 2 <= sides <= 1000:
        raise Mistaken("count must be 1 to 100, and sides 2 to 1000")
    dice = random.Random(arguments.get("seed"))  # noqa: S311
    rolls = [dice.randint(1, sides) for _ in range(count)]
    return {"rolls": rolls, "total": sum(rolls)}
