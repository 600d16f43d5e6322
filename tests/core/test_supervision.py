"""Proves what becomes of a server's status when its connection or its health changes; time moves by hand."""

import asyncio
from collections.abc import Callable
from datetime import timedelta

import pytest

from tests.core.clock import FakeClock
from tests.core.conftest import ADMIN, House, OpenHouse, until
from tests.core.peer import Peer, definition
from trunkline.core.gateway import PRUNE_SECONDS
from trunkline.errors import CallTimeout, ServerUnavailable
from trunkline.model import HistoryEvent, ServerStatus
from trunkline.upstream.backoff import RECONNECT_CEILINGS

S = ServerStatus
INTERVAL = 30.0


@pytest.fixture
async def slow_house(open_house: OpenHouse, clock: FakeClock) -> House:
    """A gateway on a clock that only a test moves; a check that gets no answer gives up soon."""
    return await open_house(clock=clock, health_interval=INTERVAL, health_timeout=0.2, request_timeout=0.3)


@pytest.fixture
def pauses(clock: FakeClock) -> Callable[[], list[float]]:
    """What was slept after a listing, and before the next attempt to connect."""
    return lambda: [pause for pause in clock.pauses if pause not in (INTERVAL, PRUNE_SECONDS)]


async def test_connecting_is_tried_four_times_then_patiently_and_heals_by_itself(
    slow_house: House, peer: Peer, clock: FakeClock, pauses: Callable[[], list[float]]
) -> None:
    """R-12: CONNECTING over 1, 2 and 4 s; then ERROR, five jittered attempts, and a slow probe for ever."""
    peer.say(start="die")
    await slow_house.register("alpha", peer.config)
    for number, pause in enumerate((1.0, 2.0, 4.0), 1):
        await until(lambda number=number: len(pauses()) == number)  # type: ignore[misc]
        assert pauses()[-1] == pause
        assert slow_house.server("alpha").status is S.CONNECTING
        assert slow_house.server("alpha").error_message
        clock.advance(pause)
    for number in range(4, 12):
        await until(lambda number=number: len(pauses()) == number)  # type: ignore[misc]
        assert slow_house.server("alpha").status is S.ERROR
        quick = number - 4 < len(RECONNECT_CEILINGS)
        low, high = (0, RECONNECT_CEILINGS[number - 4]) if quick else (270, 330)
        assert low <= pauses()[-1] <= high
        clock.advance(pauses()[-1] - 0.001)
        await asyncio.sleep(0)
        assert slow_house.server("alpha").status is S.ERROR
        if number == 11:
            peer.no_longer("start")
        clock.advance(0.002)
    await slow_house.reaches("alpha", S.CONNECTED)
    history = [record.event for record in reversed(await slow_house.gateway.history("alpha"))]
    assert history == [
        *[HistoryEvent.ERROR, HistoryEvent.RECONNECT] * 8,
        HistoryEvent.CONNECTED,
    ]


async def test_somebody_who_connects_ends_the_pause(
    slow_house: House, peer: Peer, clock: FakeClock, pauses: Callable[[], list[float]]
) -> None:
    """R-05, R-12: no need to wait for the next attempt."""
    peer.say(start="die")
    await slow_house.register("alpha", peer.config)
    for number, pause in enumerate((1.0, 2.0, 4.0), 1):
        await until(lambda number=number: len(pauses()) == number)  # type: ignore[misc]
        clock.advance(pause)
    await slow_house.reaches("alpha", S.ERROR)
    peer.no_longer("start")
    await slow_house.gateway.connect("alpha", ADMIN)
    await slow_house.reaches("alpha", S.CONNECTED)


async def checked(house: House, peer: Peer, clock: FakeClock) -> None:
    """One round of health checks of the one server."""
    asked, rounds = peer.asked("ping"), clock.pauses.count(INTERVAL)
    clock.advance(INTERVAL)
    await until(lambda: peer.asked("ping") > asked and clock.pauses.count(INTERVAL) > rounds)


async def test_one_two_three_failures_and_back(
    slow_house: House, peer: Peer, clock: FakeClock, pauses: Callable[[], list[float]]
) -> None:
    """R-31, R-32: CONNECTED, DEGRADED, ERROR and a new connection; a success sets the failures to 0."""
    peer.has(definition("tool"))
    await slow_house.connected("alpha", peer.config)
    peer.say(ping="mute")
    seen = []
    for _ in range(2):
        await checked(slow_house, peer, clock)
        health = slow_house.gateway.health_of("alpha")
        seen.append((slow_house.server("alpha").status, health.consecutive_failures))
    assert seen == [(S.CONNECTED, 1), (S.DEGRADED, 2)]
    assert slow_house.server("alpha").last_health_check == clock.now()
    peer.no_longer("ping")
    await checked(slow_house, peer, clock)
    assert slow_house.server("alpha").status is S.CONNECTED
    assert slow_house.gateway.health_of("alpha").consecutive_failures == 0
    peer.say(ping="mute")
    for _ in range(3):
        await checked(slow_house, peer, clock)
    failed = await slow_house.reaches("alpha", S.ERROR)
    assert failed.error_message is not None
    assert "3 health checks failed in a row" in failed.error_message
    await until(lambda: len(pauses()) == 2)
    clock.advance(1)
    await slow_house.reaches("alpha", S.CONNECTED)
    assert slow_house.gateway.health_of("alpha").consecutive_failures == 0
    history = [record.event for record in reversed(await slow_house.gateway.history("alpha"))]
    kinds = HistoryEvent
    assert history == [
        *(kinds.CONNECTED, kinds.DEGRADED, kinds.CONNECTED, kinds.DEGRADED, kinds.ERROR),
        *(kinds.RECONNECT, kinds.CONNECTED),
    ]


async def test_a_degraded_server_executes_with_a_warning_and_a_served_call_heals_it(
    slow_house: House, peer: Peer, clock: FakeClock
) -> None:
    """R-28, R-32: an answer to a call is a sign of life as good as a ping's."""
    peer.has(definition("tool"))
    await slow_house.connected("alpha", peer.config)
    peer.say(ping="mute")
    for _ in range(2):
        await checked(slow_house, peer, clock)
    assert slow_house.server("alpha").status is S.DEGRADED
    assert b"tool was called" in await slow_house.call("alpha.tool")
    assert slow_house.server("alpha").status is S.CONNECTED
    assert slow_house.gateway.health_of("alpha").consecutive_failures == 0


async def test_a_call_that_timed_out_asks_for_a_check_at_once(
    slow_house: House, peer: Peer, clock: FakeClock
) -> None:
    """R-15: a dead session is noticed by the call, not a health interval later."""
    peer.has(definition("tool"))
    peer.say(calls={"tool": ["mute"]}, ping="mute")
    await slow_house.connected("alpha", peer.config)
    with pytest.raises(CallTimeout):
        await slow_house.call("alpha.tool")
    await until(lambda: slow_house.gateway.health_of("alpha").consecutive_failures == 1)
    assert peer.asked("ping") == 1
    assert slow_house.gateway.health_of("alpha").last_check == clock.now()


async def test_servers_that_are_not_connected_are_not_checked(
    slow_house: House, peer: Peer, clock: FakeClock
) -> None:
    """R-31: and the time of the last check stays what it was."""
    await slow_house.connected("alpha", peer.config)
    await checked(slow_house, peer, clock)
    last = clock.now()
    await slow_house.gateway.disconnect("alpha", force=False, by=ADMIN)
    rounds = clock.pauses.count(INTERVAL)
    clock.advance(INTERVAL)
    await until(lambda: clock.pauses.count(INTERVAL) > rounds)
    assert clock.now() - last == timedelta(seconds=INTERVAL)
    assert slow_house.server("alpha").last_health_check == last
    assert peer.asked("ping") == 1


async def test_one_server_that_does_not_answer_delays_no_other(
    open_house: OpenHouse, clock: FakeClock, new_peer: Callable[[str], Peer]
) -> None:
    """R-31: all in parallel."""
    house = await open_house(clock=clock, health_interval=INTERVAL, health_timeout=20)
    mute, well = new_peer("mute"), new_peer("well")
    mute.say(ping="mute")
    for peer in (mute, well):
        await house.connected(peer.file.stem, peer.config)
    clock.advance(INTERVAL)
    await until(lambda: mute.asked("ping") == 1)
    await until(lambda: house.gateway.health_of("well").last_check is not None, 5)
    assert house.gateway.health_of("mute").last_check is None


async def test_a_lost_connection_is_said_and_made_again(
    slow_house: House, peer: Peer, clock: FakeClock, pauses: Callable[[], list[float]]
) -> None:
    """R-14, R-15: ERROR with what the server's end looked like, RECONNECT, CONNECTED; counted in a metric."""
    peer.has(definition("die"))
    peer.say(calls={"die": ["die"]})
    await slow_house.connected("alpha", peer.config)
    with pytest.raises(ServerUnavailable):
        await slow_house.call("alpha.die")
    failed = await slow_house.reaches("alpha", S.ERROR)
    assert failed.error_message is not None
    assert "status 3" in failed.error_message
    await until(lambda: len(pauses()) == 2)
    clock.advance(1)
    healed = await slow_house.reaches("alpha", S.CONNECTED)
    assert healed.error_message is None
    assert 'trunkline_reconnects_total{server="alpha"} 1.0' in slow_house.gateway.metrics_text().decode()
