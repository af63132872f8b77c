"""Has Python look for cyclic garbage less often: for processes that hold many long-lived objects.

A broker's cache and its cursors are hundreds of thousands of objects that no cycle holds. With Python's own thresholds
they are looked at again and again: 45 % of a broker's time at 1 KB entries, unbatched. What there is once all is
imported is left out of it for good.
"""

from __future__ import annotations

import gc
from typing import Final

__all__ = ["collect_seldom"]

_THRESHOLDS: Final = (20_000, 50, 100)


def collect_seldom() -> None:
    """For the whole process; called once, when what lives for ever is there."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
