"""A gateway under measurement, started as a user starts it, and its REST door for the benchmarks."""

import os
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec

from bench.processes import BenchError, Running, running

START_SECONDS = 60.0
SERVERS = "/api/v1/aggregator/servers"


class Gateway:
    def __init__(
        self, stack: ExitStack, folder: Path, *, core: int | None, settings: Mapping[str, str] | None = None
    ) -> None:
        data = folder / "data"
        arguments = ("trunkline", "serve", "--host", "127.0.0.1", "--port", "0", "--data-dir", str(data))
        environment = {key: value for key, value in os.environ.items() if not key.startswith("MCP_")}
        environment |= settings or {}
        self.process: Running = stack.enter_context(
            running("gateway", arguments, folder=folder, core=core, environment=environment)
        )
        self.url = self.process.wait_for(lambda: _left_behind(data), "where it listens", START_SECONDS)
        self.key_file = data / "admin.key"

    def ask(self, verb: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        request = urllib.request.Request(
            self.url + path,
            method=verb,
            data=msgspec.json.encode(body) if body is not None else None,
            headers={
                "Authorization": f"Bearer {self.key_file.read_text().strip()}",
                "Content-Type": "application/json",
            },
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return msgspec.json.decode(answer.read(), type=dict[str, Any])
        except urllib.error.HTTPError as error:
            raise BenchError(f"{verb} {path} was answered {error.code}: {error.read()[:500]!r}") from None

    def register(self, name: str, transport: str, config: Mapping[str, object]) -> None:
        draft = {"name": name, "transport_type": transport, "connection_config": config}
        self.ask("POST", SERVERS, draft)


def _left_behind(data: Path) -> str | None:
    """The address `serve` leaves in its data folder, once it answers there."""
    try:
        url = str(msgspec.json.decode((data / "gateway.json").read_bytes())["url"]).rstrip("/")
        with urllib.request.urlopen(url + "/health", timeout=5):
            return url
    except (OSError, msgspec.DecodeError):
        return None
