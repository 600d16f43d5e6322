"""What a start says when the key that sealed the servers is gone."""

import logging
from pathlib import Path

import pytest

from trunkline.app import open_gateway
from trunkline.model import Principal, Scope, ServerDraft
from trunkline.security.cipher import KEY_FILE
from trunkline.settings import Settings

TESTER = Principal("test", "tester", Scope.ADMIN)


async def test_a_start_says_how_many_servers_a_new_key_does_not_open(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """R-48."""
    settings = Settings(data_dir=tmp_path)
    config = {"base_url": "https://mcp.example.com/mcp"}

    async def opened(*names: str) -> str:
        caplog.clear()
        with caplog.at_level(logging.WARNING, "trunkline"):
            async with open_gateway(settings) as gateway:
                for name in names:
                    await gateway.register(ServerDraft(name, "HTTP", config, auto_connect=False), TESTER)
        return caplog.text

    assert await opened("alpha", "beta") == ""
    assert await opened() == ""
    key = (tmp_path / KEY_FILE).read_bytes()
    (tmp_path / KEY_FILE).unlink()
    said = await opened("gamma")
    assert "2 of 2 servers cannot be opened" in said
    assert "alpha, beta" in said
    assert "MCP_CREDENTIAL_KEY" in said
    assert KEY_FILE in said
    (tmp_path / KEY_FILE).write_bytes(key)
    assert "1 of 3 servers" in await opened()
