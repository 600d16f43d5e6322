"""When to try again: a pure schedule, so that fifty servers that die at once do not come back at once.

Connecting retries quickly and visibly; a server that stays away is then asked with growing, fully jittered
pauses, and at last seldom but for ever, so that it heals with nobody's help. Sleeping is done elsewhere.
"""

import random
from dataclasses import dataclass, field

CONNECT_PAUSES = (1.0, 2.0, 4.0)
"""Between the attempts of one connect."""
RECONNECT_CEILINGS = (1.0, 2.0, 4.0, 8.0, 8.0)
"""Each background attempt comes after a pause drawn between zero and its ceiling."""
SLOW_PROBE_INTERVALS = 10
"""After that one attempt in so many health intervals."""
STABLE_SECONDS = 30.0
"""A connection that lived so long, or served a call, starts the schedule anew when it is lost."""


@dataclass(slots=True)
class Backoff:
    health_interval: float
    rng: random.Random = field(default_factory=random.Random)
    attempts: int = 0

    def reset(self) -> None:
        self.attempts = 0

    def next_pause(self) -> float:
        attempt = self.attempts
        self.attempts += 1
        if attempt < len(RECONNECT_CEILINGS):
            return self.rng.uniform(0.0, RECONNECT_CEILINGS[attempt])
        return self.health_interval * SLOW_PROBE_INTERVALS * self.rng.uniform(0.9, 1.1)

    @property
    def hopeful(self) -> bool:
        """Whether the server may be back within seconds, so that waiting for it makes sense."""
        return self.attempts < len(RECONNECT_CEILINGS)
