"""Has Python look for cyclic garbage less often: for processes that hold many long-lived objects.

A broker's cache and its cursors are hundreds of thousands of objects that no cycle holds. With Python's own thresholds
they are looked at again and again: 45 % of a broker's time at 1 KB entries, unbatched, and a tenth of the time that the
imports of its start take. What there is once all is imported is left out of it for good.
"""

from __future__ import annotations

import gc
from typing import Final

__all__ = ["collect_seldom", "look_seldom"]

_THRESHOLDS: Final = (20_000, 50, 100)


def look_seldom() -> None:
    """For the whole process, from its start on."""
    gc.set_threshold(*_THRESHOLDS)


def collect_seldom() -> None:
    """For the whole process; called once, when what lives for ever is there. It takes as long as a hundred messages."""
    gc.collect()
    gc.freeze()
    look_seldom()
