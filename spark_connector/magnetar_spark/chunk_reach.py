"""How far in front of what is read the beginning of a message in chunks is looked for.

It is what plans ask to be told, and to be kept by their leases, and what a task reads backwards at most. A message that
began in front of that can't be joined. Nobody knows then whether it was one at all, so it is refused by its place.
"""

from __future__ import annotations

from typing import Final

__all__ = ["REACH", "REACH_BYTES", "REACH_LEDGERS"]

REACH_LEDGERS: Final = 8
REACH_BYTES: Final = 1 << 30
# For people.
REACH: Final = f"{REACH_LEDGERS} ledgers and {REACH_BYTES >> 30} GiB"
