"""The gateway conforms as a client too: what it sends to servers, judged by the official suite.

All scenarios but those of OAuth, which the gateway does not do towards servers.
"""

import pytest

from tests.conformance import suite

SCENARIOS = [
    *((suite.LEGACY, name) for name in ("initialize", "tools_call", "sse-retry")),
    (suite.LEGACY, "elicitation-sep1034-client-defaults"),
    *((suite.MODERN, f"http-{name}-headers") for name in ("standard", "custom", "invalid-tool")),
    *((suite.MODERN, name) for name in ("tools_call", "request-metadata", "sep-2322-client-request-state")),
    *((suite.MODERN, f"json-schema-{name}") for name in ("ref-no-deref", "2020-12-preservation")),
]


@pytest.mark.parametrize(("revision", "scenario"), SCENARIOS)
async def test_what_reaches_a_server_is_as_it_should_be(revision: str, scenario: str) -> None:
    found = await suite.judge_client("tests.conformance.as_client", revision, scenario)
    assert found.passed, found.failures
    assert found.succeeded > 0
