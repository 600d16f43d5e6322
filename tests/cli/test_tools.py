"""What the command line says of a tool, and makes of the answer to a call."""

import json
import shlex
from typing import Any

import pytest

from trunkline.cli.tools import example, shown_result

OBJECT = {"city": "Bern", "degrees": 7}


def text(value: str) -> dict[str, str]:
    return {"type": "text", "text": value}


@pytest.mark.parametrize(
    ("content", "structured", "shown"),
    [
        ([text("Bern:\n7 degrees")], {"result": "Bern:\n7 degrees"}, ["Bern:\n7 degrees"]),
        ([text("7")], {"result": 7}, ["7"]),
        ([text("[1, 2]")], {"result": [1, 2]}, ["[1, 2]"]),
        ([text(json.dumps(OBJECT))], OBJECT, [json.dumps(OBJECT, indent=2)]),
        ([text("It is cold")], OBJECT, ["It is cold", json.dumps(OBJECT, indent=2)]),
        ([text("It is cold")], {"result": "7"}, ["It is cold", '{\n  "result": "7"\n}']),
        ([text("null")], {"result": None}, ["null", '{\n  "result": null\n}']),
        ([text("7")], None, ["7"]),
        ([], {"result": "7"}, ['{\n  "result": "7"\n}']),
    ],
    ids=["a text", "a number", "a list", "an object", "both", "another text", "nothing", "text", "no text"],
)
def test_what_is_sent_twice_is_shown_once(content: list[Any], structured: Any, shown: list[str]) -> None:
    """R-26"""
    assert list(shown_result({"content": content, "structuredContent": structured})) == shown


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("files.read", "path"),
        ("files.$(reboot)", "my key"),
        ("a.b'c", "x;y"),
        ("a.`id`", "$HOME"),
        ("a.b c", "*"),
    ],
)
def test_an_example_can_be_pasted_into_a_shell_whatever_a_tool_is_called(name: str, key: str) -> None:
    """A server chooses its tools' names; the shell must not run them."""
    shown = example(name, {"required": [key]})
    assert shlex.split(shown) == ["trunkline", "call", name, f"{key}=…"]
    assert shlex.quote(name) in shown


def test_an_ordinary_example_has_no_quotes() -> None:
    assert example("files.read", {"required": ["path"]}) == "trunkline call files.read path=…"
