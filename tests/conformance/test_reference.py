"""The everything-server conforms by itself, so that what fails behind a gateway is the gateway's doing.

It is judged by the official suite in each era. What it asks its client, the suite asks for in one era only;
here the official SDK's client answers it in both, because a gateway may stand between the two.
"""

import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp import Client, StdioServerParameters
from pydantic import FileUrl

from tests.conformance import suite
from tests.conformance.everything_server import TOOLS, Everything
from tests.servers.running import Upstreams

SERVER = Path(__file__).with_name("everything_server.py")

BESIDES = {
    suite.LEGACY: {"server-session-lifecycle": 3, "json-schema-2020-12": 8, "server-sse-polling": 3},
    suite.MODERN: {
        "tasks-lifecycle": 9,
        "tasks-capability-negotiation": 5,
        "tasks-wire-fields": 4,
        "tasks-request-state-removal": 3,
        "tasks-mrtr-input": 4,
        "tasks-request-headers": 5,
        "tasks-dispatch-and-envelope": 9,
        "tasks-status-notifications": 0,  # the suite skips it, since it does not listen to subscriptions yet
        "tasks-required-task-error": 3,
        "tasks-mrtr-composition": 2,
        "json-schema-2020-12": 8,
        "http-header-validation": 14,
        "http-custom-header-server-validation": 10,
    },
}
"""Scenarios that are run and not scored → how many of their checks succeed."""

Start = Callable[[str], Awaitable[str]]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    upstreams = Upstreams()

    async def start(era: str) -> str:
        port = await upstreams.start(str(SERVER), "--era", era, "http")
        return f"http://127.0.0.1:{port}/mcp"

    yield start
    await upstreams.close()


def flaws(outcomes: dict[str, suite.Outcome]) -> dict[str, tuple[str, ...]]:
    return {name: outcome.failures for name, outcome in outcomes.items() if outcome.failures}


@pytest.mark.parametrize(("revision", "scored"), [(suite.LEGACY, 30), (suite.MODERN, 37)])
async def test_passes_every_scenario_of_a_revision(start: Start, revision: str, scored: int) -> None:
    outcomes = await suite.judge(await start("both"), revision)
    assert flaws(outcomes) == {}
    assert sum(outcome.scored for outcome in outcomes.values()) == scored
    assert suite.besides(outcomes) == BESIDES[revision]


@pytest.mark.parametrize(
    ("era", "spoken", "foreign", "scenario", "check"),
    [
        ("legacy", suite.LEGACY, suite.MODERN, "server-stateless", "sep-2575-server-implements-discover"),
        ("modern", suite.MODERN, suite.LEGACY, "server-initialize", "server-initialize"),
    ],
)
async def test_speaks_one_era_alone(
    start: Start, era: str, spoken: str, foreign: str, scenario: str, check: str
) -> None:
    url = await start(era)
    assert flaws(await suite.judge(url, spoken)) == {}
    refused = (await suite.judge(url, foreign, scenario))[scenario]
    assert [failure for failure in refused.failures if failure.startswith(f"{check}: ")]


async def answer_form(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
    assert isinstance(params, types.ElicitRequestFormParams)
    content: dict[str, Any] = dict.fromkeys(params.requested_schema["properties"], "told")
    return types.ElicitResult(action="accept", content=content)


async def answer_prompt(context: Any, params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
    return types.CreateMessageResult(role="assistant", content=types.TextContent(text="told"), model="none")


async def answer_roots(context: Any) -> types.ListRootsResult:
    return types.ListRootsResult(roots=[types.Root(uri=FileUrl("file:///told"))])


ASKING = [name for name in TOOLS if "input_required" in name or "elicitation" in name or "sampling" in name]


@pytest.mark.filterwarnings("default::mcp.shared.exceptions.MCPDeprecationWarning")
@pytest.mark.parametrize("mode", ["legacy", suite.MODERN])
async def test_asks_its_client_in_either_era(mode: str) -> None:
    callbacks: dict[str, Any] = {
        "elicitation_callback": answer_form,
        "sampling_callback": answer_prompt,
        "list_roots_callback": answer_roots,
    }
    async with Client(Everything(), mode=mode, **callbacks) as client:
        for name in ASKING:
            result = await client.call_tool(name, {"message": "Who?", "prompt": "What?"})
            [said] = result.content
            assert isinstance(said, types.TextContent)
            assert "told" in said.text, name
        prompt = await client.get_prompt("test_input_required_result_prompt")
        assert "told" in str(prompt.messages[0].content)


@pytest.mark.parametrize(
    ("era", "revision"), [("legacy", suite.LEGACY), ("modern", suite.MODERN), ("both", suite.MODERN)]
)
async def test_speaks_over_stdio(era: str, revision: str) -> None:
    command = StdioServerParameters(command=sys.executable, args=[str(SERVER), "stdio", "--era", era])
    async with Client(command) as client:
        assert client.protocol_version == revision
        result = await client.call_tool("test_simple_text")
        assert not result.is_error
