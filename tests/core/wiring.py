"""A live connection to a peer, over real pipes, without a gateway around it."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.core.peer import SCRIPT, Peer
from trunkline.model import Era, StdioSpec
from trunkline.security.outbound import Outbound
from trunkline.upstream.connection import Connection, Patience
from trunkline.upstream.transports import Transports


@asynccontextmanager
async def connection_to(peer: Peer, server_id: str = "s") -> AsyncIterator[Connection]:
    policy = Outbound(allowed_networks=(), on_loopback=True, allow_insecure_http=False)
    transports = Transports(policy=policy, redact=str, message_limit=1024 * 1024)
    connection = Connection(
        server_id=server_id,
        name="peer",
        wire=transports.wire("peer", StdioSpec(sys.executable, (SCRIPT, str(peer.file)))),
        patience=Patience(20, 20, 20),
        on_lists_changed=lambda: None,
        on_noise=lambda: None,
        on_told=lambda method, params: None,
    )
    try:
        await connection.open(Era.LEGACY)
        yield connection
    finally:
        await connection.close()
        await transports.close()
