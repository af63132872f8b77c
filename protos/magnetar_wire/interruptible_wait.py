"""Waiting on the main thread so that Ctrl-C ends it.

Python runs the handler of a signal on the main thread, between two instructions. A signal interrupts a system call in
which that thread waits; it does not where it arrives just before the call, or where the kernel delivers it to another
thread. Then the handler runs when the wait ends by itself, which may be never. On a busy machine a tenth of the
interrupts that came just before a wait were lost, since a thread may have to hand the interpreter lock over before it
enters the call. So no wait is longer than SIGNAL_CHECK_S without a look at what has arrived.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

__all__ = ["SIGNAL_CHECK_S", "acquire", "join"]

SIGNAL_CHECK_S: Final = 0.5


def acquire(lock: threading.Lock, timeout_s: float | None = None) -> bool:
    """False: it was not to be had in that time. None: waits without end."""
    return _in_slices(lambda slice_s: lock.acquire(timeout=slice_s), timeout_s)


def join(thread: threading.Thread, timeout_s: float | None = None) -> bool:
    """False: the thread did not end in that time. None: waits without end."""

    def ended(slice_s: float) -> bool:
        thread.join(slice_s)
        return not thread.is_alive()

    return _in_slices(ended, timeout_s)


def _in_slices(wait: Callable[[float], bool], timeout_s: float | None) -> bool:
    left = timeout_s
    while left is None or left > 0:
        slice_s = SIGNAL_CHECK_S if left is None else min(left, SIGNAL_CHECK_S)
        if wait(slice_s):
            return True
        if left is not None:
            left -= slice_s
    return wait(0)
