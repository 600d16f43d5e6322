"""How long each request of a connection may take: deadlines that move, minded by one timer for all.

A timer for each request would be made and thrown away thousands of times a second, and hardly ever fire.
What happens when one is over is `connection.py`'s.
"""

import asyncio

LONGEST_SLEEP = 3600.0


class Deadline:
    """Cancels the task it was made in when it is over; `expired` then says why. Progress moves it on."""

    __slots__ = ("_cancelling", "_held", "_latest", "_of", "_seconds", "_started", "_task", "expired", "when")

    def __init__(self, of: "Deadlines", seconds: float, cap: float) -> None:
        now = of.now()
        self._of = of
        self._task = asyncio.current_task()
        self._cancelling = self._task.cancelling() if self._task is not None else 0
        self._started = now
        self._seconds = seconds
        self._latest = now + max(cap, seconds)
        self._held = 0
        self.when = now + seconds
        self.expired = False

    def extend(self) -> None:
        if not self._held:
            self._move(min(self._of.now() + self._seconds, self._latest))

    def hold(self) -> None:
        """A person is asked: only the cap counts until `release`."""
        self._held += 1
        self._move(self._latest)

    def release(self) -> None:
        self._held -= 1
        self.extend()

    def expire(self) -> None:
        """Now, whatever was agreed; in a moment, for the task itself may say so on its way out."""
        asyncio.get_running_loop().call_soon(self._strike)

    def _strike(self) -> None:
        if self._task is not None and not self.expired and self._of.has(self):
            self.expired = True
            self._task.cancel()

    def took_effect(self) -> bool:
        """Of a cancellation that came: whether it was this deadline's alone. Asked once."""
        if not self.expired or self._task is None:
            return False
        return self._task.uncancel() <= self._cancelling

    def waited(self) -> float:
        return self._of.now() - self._started

    def _move(self, when: float) -> None:
        self.when = when
        self._of.moved(self)


class Deadlines:
    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._all: set[Deadline] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._next = 0.0
        self.now = self._loop.time

    def begin(self, seconds: float, cap: float) -> Deadline:
        """For the task that calls. `end` must follow."""
        deadline = Deadline(self, seconds, cap)
        self._all.add(deadline)
        self.moved(deadline)
        return deadline

    def end(self, deadline: Deadline) -> None:
        """What comes late changes nothing any more."""
        self._all.discard(deadline)

    def has(self, deadline: Deadline) -> bool:
        return deadline in self._all

    def moved(self, deadline: Deadline) -> None:
        """The timer goes off at the earliest one or before it; one that moved on is found out then."""
        if self._timer is None or deadline.when < self._next:
            self._set_timer(deadline.when)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set_timer(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._next = min(when, self.now() + LONGEST_SLEEP)
        self._timer = self._loop.call_at(self._next, self._look)

    def _look(self) -> None:
        self._timer = None
        now = self.now()
        for deadline in list(self._all):
            if deadline.when <= now:
                deadline.expire()
        left = [deadline.when for deadline in self._all if deadline.when > now]
        if left:
            self._set_timer(min(left))
