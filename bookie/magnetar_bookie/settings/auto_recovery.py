"""The options of auto-recovery. Names are BookKeeper's where it has the option, in snake case, the unit last."""

from __future__ import annotations

from pydantic import Field

from magnetar_wire.configuration import Configuration

__all__ = ["AutoRecoverySettings"]


class AutoRecoverySettings(Configuration):
    # Seconds without a registration after which a bookie is lost, and its replicas are copied to others.
    lost_bookie_recovery_delay_s: float = Field(default=30.0, ge=0)
    # Seconds, after lost_bookie_recovery_delay_s, that the writer of an open ledger has to replace a lost bookie
    # itself. Then the ledger is recovered, which closes it.
    open_ledger_rereplication_grace_period_s: float = Field(default=30.0, ge=0)
    # Seconds between two scans of the metadata of all ledgers. A scan also starts when a bookie is lost or leaves.
    auditor_scan_interval_s: float = Field(default=300.0, gt=0)
    # Seconds between two checks of a closed ledger, in which its entries are compared with its bookies' inventories.
    auditor_periodic_check_interval_s: float = Field(default=604_800.0, gt=0)
    # Ledgers that are checked before the auditor pauses for auditor_check_pause_s.
    auditor_checks_per_round: int = Field(default=10, gt=0)
    # Seconds for which the auditor pauses between two rounds of checks, so that the disks can do other work.
    auditor_check_pause_s: float = Field(default=1.0, gt=0)
    # Seconds after which the auditor deletes a ledger that was created and never claimed, counted from when the auditor
    # first saw it.
    intent_grace_period_s: float = Field(default=600.0, ge=0)
    # Seconds before a ledger that could not be repaired is tried again. The pause doubles with each further failure, up
    # to rw_rereplicate_backoff_max_s.
    rw_rereplicate_backoff_s: float = Field(default=5.0, gt=0)
    # Maximum pause, in seconds, between two attempts to repair a ledger; also the pause before a check that could not
    # be completed is repeated.
    rw_rereplicate_backoff_max_s: float = Field(default=300.0, gt=0)
    # Maximum number of entries that a repair reads and then writes at a time.
    rereplication_entry_batch_size: int = Field(default=1000, gt=0)
    # Maximum number of bytes that a repair reads and then writes at a time.
    rereplication_batch_bytes: int = Field(default=1_048_576, gt=0)
    # Maximum number of entries that one inventory request covers.
    inventory_entries: int = Field(default=10_000, gt=0)
    # Seconds that a bookie has to answer an inventory request.
    inventory_timeout_s: float = Field(default=30.0, gt=0)
    # Minimum time, in seconds, between two records of a repair's progress in the metadata store.
    progress_interval_s: float = Field(default=1.0, ge=0)
    # Seconds between two attempts to reach the metadata store.
    metadata_retry_s: float = Field(default=1.0, gt=0)
