"""Proves that who listens hears, and that one who fails costs nobody else anything."""

import logging

import pytest

from trunkline.core.events import Events
from trunkline.model import Event

REMOVED = Event("server.removed", "id-1", "alpha")


def test_every_listener_hears_every_event_in_order() -> None:
    """R-14"""
    events, first, second = Events(), list[Event](), list[Event]()
    events.subscribe(first.append)
    events.subscribe(second.append)
    later = Event("server.registered", "id-2", "beta")
    events.publish(REMOVED)
    events.publish(later)
    assert first == second == [REMOVED, later]


def test_who_has_left_hears_no_more() -> None:
    events, heard = Events(), list[Event]()
    leave = events.subscribe(heard.append)
    events.publish(REMOVED)
    leave()
    events.publish(REMOVED)
    assert heard == [REMOVED]


def test_a_listener_that_fails_is_logged_and_the_others_hear(caplog: pytest.LogCaptureFixture) -> None:
    events, heard = Events(), list[Event]()

    def fail(event: Event) -> None:
        raise RuntimeError("no")

    events.subscribe(fail)
    events.subscribe(heard.append)
    with caplog.at_level(logging.ERROR):
        events.publish(REMOVED)
    assert heard == [REMOVED]
    assert "a listener failed at server.removed" in caplog.text


def test_a_listener_may_leave_while_it_is_called() -> None:
    events, heard = Events(), list[Event]()

    def once(event: Event) -> None:
        heard.append(event)
        leave()

    leave = events.subscribe(once)
    events.subscribe(heard.append)
    events.publish(REMOVED)
    assert heard == [REMOVED, REMOVED]
