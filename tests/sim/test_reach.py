"""That the simulation comes to the rare branches of the protocol: what no seed runs, no seed can break."""

from __future__ import annotations

from functools import partial
from typing import Final

import pytest

from magnetar_bookie.read.striping import Striping
from tests.sim.reach import Branch, Reach
from tests.sim.run import run_seed

# As a rule each of them is come to by one seed in twenty at least, and all of them within two hundred.
_MOST_SEEDS: Final = 500
_BRANCHES: Final[list[Branch]] = [
    # Limits, and what comes of them.
    ("client/ledger_writer.py", "raise TooManyPending("),
    ("client/ensemble_choice.py", "raise await self._too_few(striping)"),
    ("server/group_commit.py", "self._room_waiters[woken] = None"),
    ("server/record_reader.py", "max_bytes -= len(record)"),
    ("core/commit_group.py", "return Status.READ_ONLY"),
    # A bookie that lags: left by a ledger, and waited for by one that needs it.
    ("client/replicated_adds.py", "self._channels[slot].abandon(self._ledger_id, self)"),
    ("client/replicated_adds.py", "self._released()"),
    ("server/bookie.py", "self._room_timer = None"),
    # The bookie refuses, and finds what the metadata store does not know.
    ("core/ledger_replicas.py", "return Status.LIMBO"),
    ("core/ledger_replicas.py", "return Status.DELETED"),
    ("server/collector.py", "unexplained[ledger_id] = None"),
    ("server/long_polls.py", "self.risen(ledger_id, 2**63)"),
    # Unknown outcomes, and races for the metadata.
    ("client/ledger_store.py", "continue  # if both nodes are there, or come to be, the sweeper finds the intent"),
    ("client/replicated_adds.py", "MetadataUnknown("),
    ("client/ledger_recovery.py", "raise self._decided"),
    ("auto_recovery/sweeper.py", "intent.sweeping = True"),
    # Auto-recovery.
    ("auto_recovery/limbo_repair.py", "await client.recover(ledger_id)"),
    ("auto_recovery/copying.py", "raise CannotRepair(_unreadable(reader.unreadable))"),
    ("auto_recovery/decommission.py", "if await _change_with_cookie(client, bookie_id, marked, mark):"),
    ("core/repair.py", "plan.stuck.append(no_successor(step))"),
    ("core/ledger_metadata.py", "return with_holder(current, *bookies)"),
]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_rare_branches_are_come_to() -> None:
    reach = Reach(_BRANCHES)
    for seed in range(_MOST_SEEDS):
        reach.run(partial(run_seed, seed))
        if not reach.missing:
            break
    assert not reach.missing, f"in {_MOST_SEEDS} seeds nothing came to {reach.missing}"


def test_a_branch_is_reached_or_missing() -> None:
    refused: Branch = ("read/striping.py", "raise ValueError(")
    reach = Reach([refused])
    reach.run(lambda: Striping(3, 3, 2))
    assert reach.missing == [refused]

    def refuse() -> None:
        with pytest.raises(ValueError, match="at least"):
            Striping(3, 2, 3)

    reach.run(refuse)
    assert reach.missing == []


def test_a_branch_must_be_there_once() -> None:
    for text in ("this line is nowhere", ""):
        with pytest.raises(AssertionError, match="name the branch by another"):
            Reach([("read/striping.py", text)])
