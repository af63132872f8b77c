"""Waits on the main thread that Ctrl-C ends.

Python runs the handler of a signal on the main thread, between two instructions. A signal interrupts a system call in
which that thread waits. It does not if it arrives just before the call, or if the kernel delivers it to another thread.
Then the handler runs when the wait ends by itself, which may be never. On a busy machine this happened to a tenth of
the interrupts that came just before a wait, since a thread may have to hand over the interpreter lock before it enters
the call. So each wait returns after SIGNAL_CHECK_S at most, to run pending handlers, and is repeated.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

__all__ = ["SIGNAL_CHECK_S", "acquire_lock", "join_thread"]

SIGNAL_CHECK_S: Final = 0.5


def acquire_lock(lock: threading.Lock, timeout_s: float | None = None) -> bool:
    """Acquire the lock. Return False if that was not possible within the timeout; None is no timeout."""
    return _in_slices(lambda slice_s: lock.acquire(timeout=slice_s), timeout_s)


def join_thread(thread: threading.Thread, timeout_s: float | None = None) -> bool:
    """Wait for the end of the thread. Return False if it did not end within the timeout; None is no timeout."""

    def ended(slice_s: float) -> bool:
        thread.join(slice_s)
        return not thread.is_alive()

    return _in_slices(ended, timeout_s)


def _in_slices(wait: Callable[[float], bool], timeout_s: float | None) -> bool:
    if timeout_s is None:
        while not wait(SIGNAL_CHECK_S):
            pass
        return True
    while timeout_s > 0:
        slice_s = min(timeout_s, SIGNAL_CHECK_S)
        if wait(slice_s):
            return True
        timeout_s -= slice_s
    return wait(0)
