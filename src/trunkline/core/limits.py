"""How much one key may ask at once and in a minute, so that one busy client is not everybody's trouble.

What is over a limit is refused at once, in words that say when to come again; nothing is queued here. How
much one server takes at once is the router's, which knows the connection.
"""

import math
from dataclasses import dataclass

from trunkline.errors import RateLimited, TooManyCalls
from trunkline.ports import Clock

MOST_KEYS = 10_000
RETRY_AFTER = 1


@dataclass(slots=True)
class _Account:
    calls: int = 0
    tokens: float = 0.0
    at: float = 0.0


class Limits:
    def __init__(self, *, clock: Clock, most_calls: int, per_minute: int) -> None:
        self._clock = clock
        self._most = most_calls
        self._per_minute = per_minute
        self._accounts: dict[str, _Account] = {}

    def enter(self, key_id: str) -> None:
        """One more call of this key. Raises `TooManyCalls`, `RateLimited`; else `leave` must follow."""
        account = self._accounts.get(key_id)
        if account is None:
            account = self._accounts[key_id] = self._new_account()
        if account.calls >= self._most:
            raise TooManyCalls(
                f"This key has {account.calls} calls under way, and MCP_AGGREGATOR_MAX_CALLS_PER_KEY "
                "allows no more",
                retry_after=RETRY_AFTER,
            )
        if self._per_minute:
            self._spend(account)
        account.calls += 1

    def leave(self, key_id: str) -> None:
        account = self._accounts.get(key_id)
        if account is not None:
            account.calls -= 1

    def _new_account(self) -> _Account:
        if len(self._accounts) >= MOST_KEYS:
            self._accounts = {key: each for key, each in self._accounts.items() if each.calls}
        return _Account(0, float(self._per_minute), self._clock.monotonic())

    def _spend(self, account: _Account) -> None:
        """A bucket of a minute's calls, refilled all the time."""
        now, rate = self._clock.monotonic(), self._per_minute / 60
        account.tokens = min(float(self._per_minute), account.tokens + (now - account.at) * rate)
        account.at = now
        if account.tokens < 1:
            raise RateLimited(
                f"This key has made its {self._per_minute} calls of this minute (MCP_AGGREGATOR_RATE_LIMIT)",
                retry_after=max(1, math.ceil((1 - account.tokens) / rate)),
            )
        account.tokens -= 1
