"""The gateway conforms, in both eras, in front of a server of either: judged by the official suite.

Behind it stands the everything-server, which passes by itself. Where client and server are of one era,
everything passes. Where they are not, only what no gateway can know may fail, and it is named here.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.conformance import suite
from tests.conformance.test_reference import BESIDES, SERVER
from tests.journeys.conftest import Door, running
from tests.servers.running import Upstreams
from trunkline.settings import load_settings

CANNOT_BE_BRIDGED = {
    "input-required-result-basic-elicitation": "expects a key for its question; the older era has none",
    "input-required-result-capability-check": "a session has the capabilities it was opened with",
}
"""Client of the newer era, server of the older one."""
TASKS = "tasks-"
"""Scenarios of an extension of the newer era, which a server of the older one does not have."""

CLOSES_NO_STREAM = {"server-sse-polling": 2}
"""The third check is of a server that closes its stream in the middle of a call. The gateway does not: where
its server does, it goes on with that call itself, and its own client notices nothing."""


@pytest.fixture
async def open_door(tmp_path: Path) -> AsyncIterator[Door]:
    """The suite has no key to show, so keys are off; that works on loopback alone."""
    flags = {"data_dir": tmp_path / "data", "port": 0, "auth": "off"}
    async with running(load_settings(flags=flags, environ={})) as door:
        yield door


@pytest.mark.parametrize(
    ("revision", "era", "scored"),
    [
        (suite.LEGACY, "legacy", 30),
        (suite.MODERN, "modern", 37),
        (suite.LEGACY, "modern", 30),
        (suite.MODERN, "legacy", 37),
    ],
)
async def test_every_scenario_passes_that_can(open_door: Door, revision: str, era: str, scored: int) -> None:
    """R-30, and the whole protocol in all four cells."""
    upstreams = Upstreams()
    try:
        port = await upstreams.start(str(SERVER), "--era", era, "http")
        await open_door.connected("everything", "HTTP", {"base_url": f"http://127.0.0.1:{port}/mcp"})
        outcomes = await suite.judge(f"{open_door.url}/mcp/servers/everything", revision)
    finally:
        await upstreams.close()
    assert sum(found.scored for found in outcomes.values()) == scored
    crossed = (revision, era) == (suite.MODERN, "legacy")
    judged = {name: found for name, found in outcomes.items() if not (crossed and name.startswith(TASKS))}
    failed = {name: found.failures for name, found in judged.items() if not found.passed}
    assert failed.keys() == (CANNOT_BE_BRIDGED.keys() if crossed else set()), failed
    checked = suite.besides(judged)
    whole = {**BESIDES[revision], **CLOSES_NO_STREAM}
    assert checked == {name: whole[name] for name in checked}
    assert checked.keys() == {name for name in BESIDES[revision] if name in judged}
