"""The rules of the scrubber: when a pass starts, where it continues, and how fast it reads.

A pass reads all ledgers in the order of their ids, and each ledger's entries in the order of theirs. It starts
`interval_s` after the start of the one before, or at once if that one took longer. Its position is stored now and then,
so that a restarted process continues about there: if each process began from the start, the last ledgers would never be
read.

The speed is limited in bytes per second. Each record and each ledger counts as some bytes in addition to its own, since
there may be any number of small ones.
"""

from __future__ import annotations

from typing import Final

from magnetar_protos.ledger_pb2 import ScrubPosition

__all__ = [
    "LEDGER_COST_BYTES",
    "RECORD_COST_BYTES",
    "move_position",
    "seconds_to_pause",
    "seconds_until_due",
    "start_pass",
]

RECORD_COST_BYTES: Final = 1000
LEDGER_COST_BYTES: Final = 4000


def seconds_until_due(position: ScrubPosition, now_ms: int, interval_s: float) -> float:
    """Return the time until the next pass starts, or until an interrupted one continues."""
    if not position.began_ms or not position.done:
        return 0.0
    # If the clock was set back, the pass is put off by one interval at most.
    since_s = max(0, now_ms - position.began_ms) / 1000
    return max(0.0, interval_s - since_s)


def start_pass(position: ScrubPosition, now_ms: int) -> ScrubPosition:
    """Return the position at which a due pass starts: where it was interrupted, or the first ledger."""
    if position.began_ms and not position.done:
        return position
    return ScrubPosition(began_ms=max(1, now_ms))


def move_position(position: ScrubPosition, ledger_id: int, entry_id: int = 0, *, done: bool = False) -> ScrubPosition:
    """Return the position at which all entries before this one were read."""
    return ScrubPosition(began_ms=position.began_ms, ledger_id=ledger_id, entry_id=entry_id, done=done)


def seconds_to_pause(size_bytes: int, records: int, ledgers: int, took_s: float, max_bytes_per_s: int) -> float:
    """Return how long to pause after reading this much in `took_s`."""
    cost_bytes = size_bytes + records * RECORD_COST_BYTES + ledgers * LEDGER_COST_BYTES
    return max(0.0, cost_bytes / max_bytes_per_s - took_s)
