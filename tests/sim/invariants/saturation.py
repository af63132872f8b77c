"""Saturation: whatever the disks do, ledgers are not created again and again, and memory stays bounded (66).

That adds are acknowledged again once the disks answer is looked at in the end of each world.
"""

from __future__ import annotations

from typing import Final

from tests.sim.invariants.history import History, Violation

__all__ = ["check_unanswered", "ledger_listed"]

# The most ledgers that one process may list for one log within the window, each after a ledger that failed: one without
# an acknowledged entry, or with entries that its writer added and that were not acknowledged. The number of stored
# entries does not matter. A log that stays open gets 10; each reopened log begins without a pause, hence 20.
_MOST_FAILURES: Final = 20
_WINDOW_S: Final = 5.0
# What an add takes in memory besides the entry, at least what the production counts.
_OVERHEAD_BYTES: Final = 700


def ledger_listed(history: History, log: str, ledger_id: int) -> None:
    """The log's list has a new ledger."""
    history.look("66")
    before, history.newest[log] = history.newest.get(log), ledger_id
    failures = history.ledger_failures.setdefault(log, [])
    if before is None:
        return
    old, new = history.ledger(before), history.ledger(ledger_id)
    if old.maker is not new.maker:
        failures.clear()
        return
    stored = old.acked + 1
    if stored and len(old.payloads) == stored:  # it was closed whole
        return
    now = history.now()
    failures[:] = [*(one for one in failures if one[0] > now - _WINDOW_S), (now, stored)]
    if len(failures) > _MOST_FAILURES:
        entries = sum(one[1] for one in failures)
        raise Violation(
            "66",
            f"{log} got {len(failures)} ledgers within {now - failures[0][0]:.2f} s, each after one that failed, and "
            f"{entries} entries were stored in those",
        )


def check_unanswered(
    history: History, bookie_id: str, unanswered_bytes: int, bound_bytes: int, open_ledgers: int, max_pending: int
) -> None:
    """Check the bytes of a process that the bookie has not answered.

    At most they are the bound and what the open ledgers, with at most `max_pending` entries each, had pending when it
    was passed.
    """
    history.look("66")
    entry_bytes = history.longest_payload + _OVERHEAD_BYTES
    most = bound_bytes + (open_ledgers + 1) * max_pending * entry_bytes
    if unanswered_bytes > most:
        raise Violation("66", f"{bookie_id} has {unanswered_bytes} bytes unanswered, and {most} are the most")
