"""Saturation: for any behaviour of the disks, ledgers are not created again and again, and memory stays bounded (66).

The end of each world checks that adds are acknowledged again once the disks answer.
"""

from __future__ import annotations

from typing import Final

from tests.sim.invariants.history import History, Ledger, Violation
from tests.sim.process import Process

__all__ = ["check_unanswered", "ledger_created", "ledger_listed", "topic_opened"]

# Windows in seconds, and the maximum number of ledgers that one process may list for one log, or create for one cursor,
# within each. Only a ledger that follows a failed one counts. Failed is one without an acknowledged entry, or with
# entries that its writer added and that were not acknowledged. The number of stored entries does not matter. A log or
# cursor that stays open gets 10 within 5 s and 33 within 60 s. Each reopened one begins without a pause: 20 and 60
# allow for a few openings, and those that the process makes within the window add 4 each.
_MOST_FAILURES: Final = {5.0: 20, 60.0: 60}
_MORE_FOR_AN_OPENING: Final = 4
# The intent of a cursor's ledger begins so.
_CURSOR: Final = "cursor "
# What an add takes in memory besides the entry, at least what the production counts.
_OVERHEAD_BYTES: Final = 700


def ledger_listed(history: History, log: str, ledger_id: int) -> None:
    """The log's list has a new ledger."""
    history.look("66")
    _ledger_follows(history, log, log, history.ledger(ledger_id))


def ledger_created(history: History, ledger: Ledger) -> None:
    """A process has created the ledger. Those of cursors count even if no cursor's node ever points at them."""
    intent = history.intents.get(ledger.ledger_id)
    if intent is not None and intent.purpose.startswith(_CURSOR):
        history.look("66")
        topic = intent.purpose.rpartition(" of ")[2]
        _ledger_follows(history, topic, intent.purpose, ledger)


def topic_opened(history: History, topic: str, by: Process) -> None:
    """The process has taken the topic's cursors over."""
    history.openings.setdefault(topic, []).append((history.now(), by))


def _ledger_follows(history: History, topic: str, log: str, new: Ledger) -> None:
    before, history.newest[log] = history.newest.get(log), new.ledger_id
    failures = history.ledger_failures.setdefault(log, [])
    if before is None:
        return
    old = history.ledger(before)
    if old.maker is not new.maker:
        failures.clear()
        return
    stored = old.acked + 1
    if stored and len(old.payloads) == stored:  # it was closed whole
        return
    now = history.now()
    failures[:] = [*(one for one in failures if one[0] > now - max(_MOST_FAILURES)), (now, stored)]
    for window_s, most in _MOST_FAILURES.items():
        recent = [one for one in failures if one[0] > now - window_s]
        openings = [at for at, by in history.openings.get(topic, ()) if at > now - window_s and by is new.maker]
        if len(recent) > most + _MORE_FOR_AN_OPENING * len(openings):
            raise Violation(
                "66",
                f"{log} got {len(recent)} ledgers within {now - recent[0][0]:.2f} s, each after one that failed, and "
                f"{sum(one[1] for one in recent)} entries were stored in those",
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
