"""Proves what the answer of a health address means, by the status of real HTTP answers."""

from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from tests.upstream.network import outbound_client
from trunkline.upstream.health_monitor import Check, check_of

WELL = Check(healthy=True, failed=False)


@pytest.fixture
async def address() -> AsyncIterator[str]:
    """Answers with the status that its path names."""

    async def answer(request: web.Request) -> web.Response:
        return web.Response(status=int(request.path[1:]), headers={"Location": "/200"})

    application = web.Application()
    application.router.add_get("/{status}", answer)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


async def checked(address: str, status: int) -> Check:
    return check_of(await outbound_client().get_status(f"{address}/{status}", 5))


@pytest.mark.parametrize("status", [200, 201, 202, 204, 206])
async def test_every_success_is_healthy(address: str, status: int) -> None:
    """R-31: an address that has nothing to say answers 204."""
    assert await checked(address, status) == WELL


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_a_redirect_is_a_failure_that_says_why(address: str, status: int) -> None:
    """R-31: where it leads was not judged, so it is not followed."""
    check = await checked(address, status)
    assert (check.healthy, check.failed) == (False, True)
    assert check.note is not None
    assert f"redirects ({status}), which is not followed" in check.note


@pytest.mark.parametrize(("status", "failed"), [(401, False), (404, False), (500, True), (503, True)])
async def test_a_refusal_says_nothing_and_a_fault_is_a_failure(
    address: str, status: int, failed: bool
) -> None:
    """R-31"""
    note = f"its health address answered {status}"
    assert await checked(address, status) == Check(healthy=False, failed=failed, note=note)
