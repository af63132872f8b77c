"""The options of auto-recovery. Names are BookKeeper's where it has the option, in snake case, the unit last."""

from __future__ import annotations

from pydantic import Field

from magnetar_wire.configuration import Configuration

__all__ = ["AutoRecoveryOptions"]


class AutoRecoveryOptions(Configuration):
    # How long a bookie may be away before its replicas are made again elsewhere.
    lost_bookie_recovery_delay_s: float = Field(default=30.0, ge=0)
    # How much longer the writer of an open ledger has to replace it by itself, before the ledger is taken from it.
    open_ledger_rereplication_grace_period_s: float = Field(default=30.0, ge=0)
    # How often the metadata of all ledgers is gone through, besides when a bookie is lost or leaves.
    auditor_scan_interval_s: float = Field(default=300.0, gt=0)
    # How often the entries of a closed ledger that does not change are held against its bookies' inventories.
    auditor_periodic_check_interval_s: float = Field(default=604_800.0, gt=0)
    # So many such checks at most, then a pause: the disks have other work.
    auditor_checks_per_round: int = Field(default=10, gt=0)
    auditor_check_pause_s: float = Field(default=1.0, gt=0)
    # After how long the auditor deletes a ledger that nobody has claimed.
    intent_grace_period_s: float = Field(default=600.0, ge=0)
    # The pause before a ledger that could not be repaired is tried again; it doubles up to the second. After that one a
    # check that could not be completed is tried again.
    rw_rereplicate_backoff_s: float = Field(default=5.0, gt=0)
    rw_rereplicate_backoff_max_s: float = Field(default=300.0, gt=0)
    # What is read and then written at a time.
    rereplication_entry_batch_size: int = Field(default=1000, gt=0)
    rereplication_batch_bytes: int = Field(default=1_048_576, gt=0)
    # How many entries one question for an inventory covers, and how long its answer may take.
    inventory_entries: int = Field(default=10_000, gt=0)
    inventory_timeout_s: float = Field(default=30.0, gt=0)
    # How often a repair's progress is written down at most.
    progress_interval_s: float = Field(default=1.0, ge=0)
    # The pause after the metadata store gave no answer.
    metadata_retry_s: float = Field(default=1.0, gt=0)
