"""The limit of one `produce` stream's undecided entries, and each producer's share of it.

A stream at its limit is not read, which stops all its producers. Topics whose bookies do not answer must not bring it
there, or they would stop the producers of healthy topics too. So a producer is paused when its own undecided bytes
reach twice the unused part of three quarters of the limit (dynamic thresholds, as in switches with shared memory):

    own >= 2 * (3/4 * limit - used)

- One producer alone gets half of the limit.
- n producers that fill up at the same time get 3/4 * limit * 2 / (2n + 1) each. Those that fill up one after another
  get 2/3 of the unused part each. A part is left unused in both cases.
- A producer with no undecided entries is never paused, so a healthy one can always send.
- The last quarter is for entries that were sent before the pause arrived, and for the first frame of each producer
  that finds the other three quarters used.

The limit itself stays exact. Stuck producers stop the others only if the entries that were in flight when they were
paused fill the last quarter too. A client that does not pause fills it alone.

**Resuming.** A paused producer has undecided entries. It is examined when some of its own are decided, and not when
others' are: if its own topic is stuck, it has no use for more. When its last one is decided it is resumed in any case.
So no decided entry costs a look at other producers, and no producer stays paused for ever.
"""

from __future__ import annotations

__all__ = ["StreamBudget"]


class StreamBudget:
    __slots__ = ("_shared_bytes", "max_bytes", "used_bytes")

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        # Memory of entries that were received and are not decided.
        self.used_bytes = 0
        self._shared_bytes = max_bytes * 3 // 4

    @property
    def full(self) -> bool:
        return self.used_bytes >= self.max_bytes

    def has_share(self, own_bytes: int) -> bool:
        """Return whether a producer may send more; `own_bytes` are its part of `used_bytes`."""
        return own_bytes == 0 or own_bytes < 2 * (self._shared_bytes - self.used_bytes)
