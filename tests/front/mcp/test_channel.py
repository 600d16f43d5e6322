"""What a channel drops for a reader that takes nothing, and what it never drops."""

import asyncio

import pytest

from trunkline.front.mcp import channel
from trunkline.front.mcp.channel import Channel


async def test_notifications_are_dropped_from_the_front_and_what_is_owed_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(channel, "MOST_KEPT", 3)
    one = Channel()
    one.take_over(one)
    one.put(b"owed", owed=True)
    for number in range(5):
        one.put(b"%d" % number)
    taken = await one.next(one) or b""
    assert [line[6:] for line in taken.split(b"\n") if line.startswith(b"data: ")] == [b"owed", b"3", b"4"]


async def test_what_was_taken_is_dropped_though_it_was_owed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "MOST_KEPT", 2)
    one = Channel("g", replayable=True)
    one.take_over(one)
    one.put(b"first", owed=True)
    await one.next(one)
    one.put(b"second", owed=True)
    one.put(b"third", owed=True)
    one.take_over(one, after=0)
    taken = await one.next(one) or b""
    assert b"first" not in taken
    assert b"second" in taken
    assert b"third" in taken


async def test_who_waits_for_room_gets_it_when_the_reader_takes_or_goes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(channel, "MOST_BYTES", 10)
    one = Channel()
    one.take_over(one)
    await one.room()
    for ending in ("take", "close"):
        one.put(b"x" * 8, owed=True)
        waiting = asyncio.ensure_future(one.room())
        await asyncio.sleep(0.01)
        assert not waiting.done()
        if ending == "take":
            await one.next(one)
        else:
            one.close()
        await asyncio.wait_for(waiting, 1)
