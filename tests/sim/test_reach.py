"""The simulation reaches the rare branches of the protocol: a branch that no seed runs, no seed can break."""

from __future__ import annotations

from functools import partial
from typing import Final

import pytest

from magnetar_bookie.read.striping import Striping
from tests.sim.reach import Branch, Reach
from tests.sim.run import run_seed
from tests.source_locations import FragmentNotFound

# As a rule each of them is come to by one seed in twenty at least, and all of them within two hundred.
_MOST_SEEDS: Final = 500
_BRANCHES: Final = [
    # Limits, and what comes of them.
    Branch("ReplicatedAdds.append_entries", "raise TooManyPending"),
    Branch("EnsembleChoice.choose", "raise await self._describe_shortage(striping)"),
    Branch("GroupCommit.wait_for_capacity", "self._capacity_waiters[woken] = None"),
    Branch("RecordReader._get_pending", "max_bytes -= len(record)"),
    Branch("CommitGroup._final_status", "return Status.READ_ONLY"),
    # A bookie that lags: left by a ledger, and waited for by one that needs it.
    Branch("ReplicatedAdds._abandon_unneeded", "self._channels[slot].abandon(self._ledger_id, self)"),
    Branch("ReplicatedAdds._decide", "self._on_unblocked()"),
    Branch("Bookie._check_free_space", "self._free_space_timer = None"),
    # The bookie refuses, and finds what the metadata store does not know.
    Branch("LedgerRules._find_refusal", "return Status.LIMBO"),
    Branch("LedgerRules._find_identity_refusal", "return Status.DELETED"),
    Branch("GarbageCollector._check_ledgers", "unexplained[ledger_id] = None"),
    Branch("LongPolls.wake_all", "self.wake(ledger_id, 2**63)"),
    # Unknown outcomes, and races for the metadata.
    Branch("LedgerMetadataStore.create_ledger", "continue"),
    Branch("ReplicatedAdds._publish_change", "MetadataUnknown"),
    Branch("_Attempt._read_and_write", "raise self._decided"),
    Branch("UnclaimedLedgerDeleter._prevent_claim", "intent.sweeping = True"),
    # Auto-recovery.
    Branch("_repair_ledger_in_limbo", "await client.recover(ledger_id)"),
    Branch("copy_missing_entries", "raise CannotRepair"),
    Branch("start_decommission", "if await _change_with_cookie(client, bookie_id, update, mark):"),
    Branch("_plan_fragment", "plan.stuck.append(describe_no_replacement(step))"),
    Branch("add_recovery_holders", "return add_holders(current, *bookies)"),
]


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_rare_branches_are_reached() -> None:
    reach = Reach(_BRANCHES)
    for seed in range(_MOST_SEEDS):
        reach.run(partial(run_seed, seed))
        if not reach.missing:
            break
    assert not reach.missing, f"in {_MOST_SEEDS} seeds nothing came to {reach.missing}"


def test_a_branch_is_reached_or_missing() -> None:
    refused = Branch("Striping.__post_init__", "raise ValueError")
    reach = Reach([refused])
    reach.run(lambda: Striping(3, 3, 2))
    assert reach.missing == [refused]

    def refuse() -> None:
        with pytest.raises(ValueError, match="invalid quorums"):
            Striping(3, 2, 3)

    reach.run(refuse)
    assert reach.missing == []


def test_the_branches_fit() -> None:
    assert len(Reach(_BRANCHES).missing) == len(_BRANCHES)


def test_a_branch_that_does_not_fit_is_refused() -> None:
    for fragment in ("this line is nowhere", "self", ""):
        with pytest.raises(FragmentNotFound, match=r"does not fit any more: .*Striping\.__post_init__"):
            Reach([Branch("Striping.__post_init__", fragment)])
