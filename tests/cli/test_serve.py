"""What `trunkline serve` says when it starts, by a real process."""

from pathlib import Path

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
