"""The table of transports: which wire carries which spec, and what they share while the gateway lives.

To add a transport is to add a spec, a wire and a row here.
"""

from trunkline.model import HttpSpec, ReachableSpec, SseSpec, StdioSpec
from trunkline.ports import OutboundPolicy, Redact
from trunkline.upstream.http import HttpWire
from trunkline.upstream.outbound_client import OutboundClient
from trunkline.upstream.spawner import Spawner
from trunkline.upstream.sse import SseWire
from trunkline.upstream.stdio import StdioWire
from trunkline.upstream.wires import Wire


class Transports:
    def __init__(self, *, policy: OutboundPolicy, redact: Redact, message_limit: int) -> None:
        self._client = OutboundClient(policy)
        self._spawner = Spawner()
        self._redact = redact
        self._limit = message_limit

    def wire(self, name: str, spec: ReachableSpec) -> Wire:
        match spec:
            case StdioSpec():
                return StdioWire(
                    spec,
                    name=name,
                    message_limit=self._limit,
                    redact=self._redact,
                    spawner=self._spawner,
                )
            case SseSpec():
                return SseWire(
                    spec, name=name, client=self._client, message_limit=self._limit, redact=self._redact
                )
            case HttpSpec():
                return HttpWire(
                    spec, name=name, client=self._client, message_limit=self._limit, redact=self._redact
                )

    async def get_status(self, url: str, seconds: float) -> int:
        """Of a health check address. Raises `UpstreamError`."""
        return await self._client.get_status(url, seconds)

    def end_children(self) -> None:
        """At once, and for good: whoever waits for one of them is told."""
        self._spawner.end_children()

    async def close(self) -> None:
        await self._spawner.close()
