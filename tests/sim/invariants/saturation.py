"""Saturation: however slow the disks are, ledgers are not made in vain again and again, and memory stays bounded (66).

That adds are acknowledged again once the disks answer is looked at in the end of each world.
"""

from __future__ import annotations

from typing import Final

from tests.sim.invariants.history import History, Violation

__all__ = ["check_unanswered", "ledger_listed"]

# The most ledgers that one process may list for one log within the window, each after a ledger without an acknowledged
# entry. A broker that unloads and reopens a topic each time resets its pauses, hence not fewer.
_MOST_FRUITLESS: Final = 25
_WINDOW_S: Final = 5.0
# What an add takes in memory besides the entry, at least what the production counts.
_OVERHEAD_BYTES: Final = 700


def ledger_listed(history: History, log: str, ledger_id: int) -> None:
    """The log's list has a new ledger."""
    history.look("66")
    before, history.newest[log] = history.newest.get(log), ledger_id
    fruitless = history.fruitless.setdefault(log, [])
    if before is None:
        return
    old, new = history.ledger(before), history.ledger(ledger_id)
    if old.acked >= 0 or old.maker is not new.maker:
        fruitless.clear()
        return
    now = history.now()
    fruitless[:] = [*(made for made in fruitless if made > now - _WINDOW_S), now]
    if len(fruitless) > _MOST_FRUITLESS:
        raise Violation(
            "66", f"{log} got {len(fruitless)} ledgers within {now - fruitless[0]:.2f} s, and nothing was stored in any"
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
