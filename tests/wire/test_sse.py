"""Server-sent events, by the rules of the HTML standard, however the stream is cut."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.wire.sse import EventTooLarge, SseEvent, SseParser

LIMIT = 1 << 20
fragments = st.sampled_from(
    [b"data: a", b"data:b", b"data", b"data: ", b"event: endpoint", b"event:", b"id: 7", b"id:", b"id: x\0y",
     b"retry: 500", b"retry: soon", b": comment", b":", b"odd", "data: é€😀".encode(), b"\xef\xbb\xbf",
     b" data: c"]
)  # fmt: skip
line_ends = st.sampled_from([b"\n", b"\r\n", b"\r", b"\n\n", b"\r\n\r\n", b"\r\r"])
streams = st.lists(st.tuples(fragments, line_ends)).map(lambda parts: b"".join(a + b for a, b in parts))


def parse(chunks: list[bytes]) -> tuple[list[SseEvent], str | None, int | None]:
    parser = SseParser(LIMIT)
    events = [event for chunk in chunks for event in parser.feed(chunk)]
    return events, parser.last_id, parser.retry_ms


@given(streams, st.lists(st.integers(0)))
def test_events_do_not_depend_on_how_the_stream_is_cut(stream: bytes, places: list[int]) -> None:
    ends = sorted({place % (len(stream) + 1) for place in places} | {len(stream)})
    chunks = [stream[start:end] for start, end in zip([0, *ends], ends, strict=False)]
    assert parse(chunks) == parse([stream]) == parse([bytes([byte]) for byte in stream])


@given(streams)
def test_line_ends_of_all_three_kinds_mean_the_same(stream: bytes) -> None:
    plain = stream.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    assert parse([plain.replace(b"\n", b"\r\n")]) == parse([plain]) == parse([plain.replace(b"\n", b"\r")])


def message(data: bytes, identity: str | None = None) -> SseEvent:
    return SseEvent("message", data, identity)


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"data: {}\n\n", [message(b"{}")]),
        (b"data: a\ndata:  b\n\n", [message(b"a\n b")]),
        (b"event: endpoint\ndata: /m?x=1\n\n", [SseEvent("endpoint", b"/m?x=1", None)]),
        (b"event: x\n\ndata: a\n\n", [message(b"a")]),
        (b"data\n\n", [message(b"")]),
        (b"id: 4\ndata:\n\ndata: b\n\n", [message(b"", "4"), message(b"b", "4")]),
        (b"id: 4\ndata: a\n\nid:\ndata: b\n\n", [message(b"a", "4"), message(b"b", "")]),
        (b"id: 4\0\ndata: a\n\n", [message(b"a")]),
        (b": ping\n\n: ping\n\ndata: a\n\n", [message(b"a")]),
        (b"\xef\xbb\xbfdata: a\n\n", [message(b"a")]),
        (b"data: a\n\xef\xbb\xbfdata: b\n\n", [message(b"a")]),
        (b"data: never finished\n", []),
        (b"\n\n\r\r", []),
    ],
)
def test_a_stream_is_read_as_the_standard_says(stream: bytes, events: list[SseEvent]) -> None:
    assert parse([stream])[0] == events


def test_an_event_torn_off_does_not_move_the_place_to_resume_from() -> None:
    """R-15: otherwise a resumed stream would skip the event that never came whole."""
    assert parse([b"id: 1\ndata: a\n\nid: 2\ndata: b"])[1] == "1"
    assert parse([b"id: 1\ndata: a\n\nid: 2\n\n"])[1] == "2"


def test_retry_is_a_number_of_milliseconds() -> None:
    assert parse([b"retry: 1500\n\n"])[2] == 1500
    assert parse([b"retry: -1\nretry: 1e3\nretry:\n\n"])[2] is None


@pytest.mark.parametrize("size", [65_535, 65_536, 65_537, 99_999, 100_000])
def test_an_event_up_to_the_limit_passes_whole(size: int) -> None:
    """R-30"""
    stream = b"event: message\ndata: " + b"x" * size + b"\n\n"
    for step in (1 << 10, 1 << 16, 1 << 20):
        parser = SseParser(100_000)
        chunks = [stream[start : start + step] for start in range(0, len(stream), step)]
        assert [event.data for chunk in chunks for event in parser.feed(chunk)] == [b"x" * size]


@pytest.mark.parametrize(
    "flood",
    [
        b"data: " + b"x" * 2000 + b"\n\n",
        b": " + b"x" * 2000,
        b"data: x\n" * 600,
        b"x" * 2000,
        b"data\n" * 2000,
    ],
)
@pytest.mark.parametrize("step", [7, 300, 100_000])
def test_more_than_the_limit_is_refused_and_never_held(flood: bytes, step: int) -> None:
    parser = SseParser(1000)
    chunks = [flood[start : start + step] for start in range(0, len(flood), step)]
    with pytest.raises(EventTooLarge):
        [parser.feed(chunk) for chunk in [*chunks, b""]]
    with pytest.raises(EventTooLarge):
        parser.feed(b"\n\ndata: after\n\n")


def test_events_before_one_too_large_are_not_lost() -> None:
    parser = SseParser(1000)
    assert parser.feed(b"data: good\n\ndata: " + b"x" * 2000 + b"\n\n") == [message(b"good")]
    with pytest.raises(EventTooLarge):
        parser.feed(b"")


def test_comments_without_end_hold_nothing() -> None:
    parser = SseParser(1000)
    for _ in range(1000):
        assert parser.feed(b": keep-alive\n\n: more\n") == []


@pytest.mark.parametrize(
    "stream",
    [b"data: " + b"x" * (10 << 20) + b"\n\n", b"data: {}\n\n" * 300_000, b"data: x\n" * 300_000 + b"\n"],
    ids=["one of 10 MiB", "many small", "many lines"],
)
def test_long_streams_cost_no_more_than_their_length(stream: bytes) -> None:
    """Quadratic work would take many seconds; two leave room for a busy machine."""
    parser = SseParser(16 << 20)
    before = time.process_time()
    size = 0
    for start in range(0, len(stream), 65_536):
        size += sum(len(event.data) for event in parser.feed(stream[start : start + 65_536]))
    assert size > 300_000
    assert time.process_time() - before < 2
