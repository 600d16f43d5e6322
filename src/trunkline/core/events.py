"""Says what happened to a server, to whoever listens: which server is dirty, never what its truth is.

A listener is called at once, must return at once, and reads the truth again itself; one that fails costs
nobody else anything.
"""

import logging
from collections.abc import Callable

from trunkline.model import Event

log = logging.getLogger(__name__)

Listener = Callable[[Event], None]


class Events:
    def __init__(self) -> None:
        self._listeners: list[Listener] = []

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Returns what ends the subscription."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def publish(self, event: Event) -> None:
        for listener in list(self._listeners):
            try:
                listener(event)
            except Exception:
                log.exception("a listener failed at %s", event.kind)
