"""What has to be looked at, and when: marked by watches, taken by one worker."""

from __future__ import annotations

import threading
import time
from typing import Generic, TypeVar

Key = TypeVar("Key")
_LEAST_WAIT_S = 0.01


class Due(Generic[Key]):
    """Keys with the time at which each is due. `changed` is re-entrant, for what goes with them."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.stopped = False
        self._when: dict[Key, float] = {}

    def mark(self, *keys: Key, after: float = 0.0) -> None:
        """These are due in `after` seconds, or when they already were, if that is sooner."""
        due = time.monotonic() + after
        with self.changed:
            for key in keys:
                self._when[key] = min(due, self._when.get(key, due))
            self.changed.notify_all()

    def take(self) -> Key | None:
        """Waits for one that is due, and forgets it; None once it is stopped."""
        with self.changed:
            while not self.stopped:
                now = time.monotonic()
                for key, when in self._when.items():
                    if when <= now:
                        del self._when[key]
                        return key
                soonest = min(self._when.values(), default=None)
                self.changed.wait(None if soonest is None else max(_LEAST_WAIT_S, soonest - now))
        return None

    def stop(self) -> None:
        """Ends the worker."""
        with self.changed:
            self.stopped = True
            self.changed.notify_all()
