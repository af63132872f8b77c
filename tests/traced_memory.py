"""How much memory something takes that was made, as tracemalloc counts it."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from typing import TypeVar

__all__ = ["traced_memory"]

T = TypeVar("T")


def traced_memory(make: Callable[[], T]) -> tuple[int, T]:
    """Return how many bytes are allocated since before `make`, and its result, which keeps them."""
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        made = make()
        gc.collect()
        return tracemalloc.get_traced_memory()[0] - before, made
    finally:
        tracemalloc.stop()
