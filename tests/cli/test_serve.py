"""What `trunkline serve` says when it starts, by a real process."""

from pathlib import Path

import pytest

from tests.cli.terminal import Serving, serve


def said(serving: Serving) -> str:
    """What it wrote to its log until it was stopped."""
    assert serving.stop() == 0
    assert serving.process.stderr is not None
    return serving.process.stderr.read()


def test_a_variable_that_nobody_reads_is_named_in_the_log(tmp_path: Path) -> None:
    """R-53: with the name that was probably meant, and without its value."""
    misspelt = {"MCP_AGGREGATOR_MAX_SERVER": "7", "MCP_AGGREGATOR_QQQ": "s3cret"}
    log = said(serve(tmp_path / "data", **misspelt))
    assert "WARNING" in log
    assert "variable MCP_AGGREGATOR_MAX_SERVER; did you mean MCP_AGGREGATOR_MAX_SERVERS?" in log
    assert "MCP_AGGREGATOR_QQQ" in log
    assert "s3cret" not in log


def test_the_first_key_is_shown_by_the_first_start_that_succeeds(tmp_path: Path) -> None:
    """R-47: a start that failed before it has not used that up; no later one shows it again."""
    folder = tmp_path / "data"
    with pytest.raises(AssertionError, match=r"did not start: .*32 bytes"):
        serve(folder, MCP_CREDENTIAL_KEY="short")
    for is_first in (True, False):
        serving = serve(folder)
        assert serving.stop() == 0
        key = (folder / "admin.key").read_text().strip()
        assert (f"Admin key: {key}" in serving.welcome) is is_first
