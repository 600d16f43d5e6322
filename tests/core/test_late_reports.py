"""A report that comes when its server is gone changes nothing and leaves nothing behind."""

import time
from asyncio import sleep
from pathlib import Path

from tests.servers.peers import scripted
from trunkline.app import open_gateway
from trunkline.core.keys import LOCAL
from trunkline.model import Health, ServerDraft, ServerStatus
from trunkline.settings import Settings
from trunkline.upstream.health_monitor import Check


async def test_a_check_of_a_removed_server_leaves_no_series(tmp_path: Path) -> None:
    """R-31, R-52."""
    async with open_gateway(Settings(data_dir=tmp_path)) as gateway:
        await gateway.register(ServerDraft("alpha", "STDIO", scripted()), LOCAL)
        end = time.monotonic() + 20
        while gateway.get_server("alpha").status is not ServerStatus.CONNECTED:
            assert time.monotonic() < end
            await sleep(0.02)
        (patient,) = gateway._supervision.patients()
        await gateway.remove("alpha", LOCAL)
        for check in (Check(healthy=True, failed=False, took_ms=3.0), Check(healthy=False, failed=True)):
            gateway._supervision.on_checked(patient, check, Health(1), ServerStatus.CONNECTED)
        assert b'server="alpha"' not in gateway.metrics_text()
