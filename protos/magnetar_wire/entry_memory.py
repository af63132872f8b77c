"""The memory of waiting entries. Every limit on undecided entries counts with these numbers.

A limit on payloads alone doesn't limit memory. A published entry of 25 bytes that is not stored yet is a bytes object,
its records in the queues that it waits in, and their numbers. Together these take far more than its payload.

Measured with tracemalloc on CPython 3.11, 64 bits, over 200,000 entries of 20 … 61 bytes; bytes per entry besides its
payload, in runs of 1,000 entries and alone:

    the topic's producer and append queue     380 … 500   (Pulsar's listener keeps 130 more)
    the ledger writer's pending adds          210 … 390
    unanswered adds, for each bookie          230 … 420
    the bookie's group, waiting for the disk  310 … 430
    the cache of recent entries               400

All layers count the same way: if a limit is reached in one layer, the same entries reach it in the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

__all__ = ["ENTRY_OVERHEAD_BYTES", "count_entry_memory"]

ENTRY_OVERHEAD_BYTES: Final = 512


def count_entry_memory(entries: Sequence[bytes]) -> int:
    """Return the bytes of memory that the entries take while they wait."""
    return sum(map(len, entries)) + len(entries) * ENTRY_OVERHEAD_BYTES
