"""When a bookie looks through all that it holds for damage, where it goes on, and how slowly.

A pass goes through the ledgers in the order of their ids, and through each one's entries in the order of theirs. It
begins `interval_s` after the one before began, or at once where that took longer. Its place is kept on the disk now and
then: a process that ends goes on from about there, since a pass that always began anew would never see what comes last.

The pace is a bound on bytes per second. What a record or a ledger costs besides its bytes is reckoned as bytes too:
there may be any number of small ones.
"""

from __future__ import annotations

from typing import Final

from magnetar_protos.ledger_pb2 import ScrubPosition

__all__ = ["LEDGER_COST_BYTES", "RECORD_COST_BYTES", "began", "due_in_s", "goes_on_at", "pause_s"]

RECORD_COST_BYTES: Final = 1000
LEDGER_COST_BYTES: Final = 4000


def due_in_s(position: ScrubPosition, now_ms: int, interval_s: float) -> float:
    """After how long the next pass begins, or the one that was broken off goes on."""
    if not position.began_ms or not position.done:
        return 0.0
    # A clock that was set back must not put it off by more than an interval.
    since_s = max(0, now_ms - position.began_ms) / 1000
    return max(0.0, interval_s - since_s)


def began(position: ScrubPosition, now_ms: int) -> ScrubPosition:
    """The position with which a pass that is due begins: the one that was broken off, or the beginning of all."""
    if position.began_ms and not position.done:
        return position
    return ScrubPosition(began_ms=max(1, now_ms))


def goes_on_at(position: ScrubPosition, ledger_id: int, entry_id: int = 0, *, done: bool = False) -> ScrubPosition:
    """All before this entry was looked at."""
    return ScrubPosition(began_ms=position.began_ms, ledger_id=ledger_id, entry_id=entry_id, done=done)


def pause_s(size_bytes: int, records: int, ledgers: int, took_s: float, max_bytes_per_s: int) -> float:
    """How long nothing more is read after so much."""
    cost_bytes = size_bytes + records * RECORD_COST_BYTES + ledgers * LEDGER_COST_BYTES
    return max(0.0, cost_bytes / max_bytes_per_s - took_s)
