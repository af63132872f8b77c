"""Settings of auto-recovery: the auditor and the replication workers. Names are BookKeeper's where it has the
setting."""

from __future__ import annotations

from magnetar_metadata.settings import MetadataRetrySettings
from magnetar_wire.settings import Subject, setting

__all__ = ["AutoRecoverySettings"]


class AutoRecoverySettings(MetadataRetrySettings):
    lost_bookie_recovery_delay_seconds: float = setting(
        30.0,
        "Seconds without a registration in the metadata store after which a bookie is lost. Then its replicas are "
        "copied to other bookies.",
        subject=Subject.RECOVERY,
        ge=0,
        formerly="lost_bookie_recovery_delay_s",
    )
    open_ledger_rereplication_grace_period_seconds: float = setting(
        30.0,
        "Seconds that the writer of an open ledger has to replace a lost bookie itself, counted from the end of "
        "lost_bookie_recovery_delay_seconds. Then the ledger is recovered, which closes it.",
        subject=Subject.RECOVERY,
        ge=0,
        formerly="open_ledger_rereplication_grace_period_s",
    )
    auditor_scan_interval_seconds: float = setting(
        300.0,
        "Seconds between two scans of the metadata of all ledgers. A scan also starts when a bookie is lost or leaves.",
        subject=Subject.RECOVERY,
        gt=0,
        formerly="auditor_scan_interval_s",
    )
    auditor_periodic_check_interval_seconds: float = setting(
        604_800.0,
        "Seconds between two checks of a closed ledger, in which its entries are compared with its bookies' "
        "inventories.",
        subject=Subject.RECOVERY,
        gt=0,
        formerly="auditor_periodic_check_interval_s",
    )
    auditor_checks_per_round: int = setting(
        10,
        "Ledgers that are checked before the auditor pauses for auditor_check_pause_seconds.",
        subject=Subject.RECOVERY,
        unit="ledgers",
        ge=1,
    )
    auditor_check_pause_seconds: float = setting(
        1.0,
        "Seconds for which the auditor pauses between two rounds of checks, so that the disks can do other work.",
        subject=Subject.RECOVERY,
        gt=0,
        formerly="auditor_check_pause_s",
    )
    intent_grace_period_seconds: float = setting(
        600.0,
        "Seconds after which the auditor deletes a ledger that was created and never claimed, counted from when "
        "the auditor first saw it.",
        subject=Subject.RECOVERY,
        ge=0,
        formerly="intent_grace_period_s",
    )
    rw_rereplicate_backoff_seconds: float = setting(
        5.0,
        "Seconds before a ledger that could not be repaired is tried again. The pause doubles with each further "
        "failure, up to rw_rereplicate_backoff_max_seconds.",
        subject=Subject.RECOVERY,
        gt=0,
        formerly="rw_rereplicate_backoff_s",
    )
    rw_rereplicate_backoff_max_seconds: float = setting(
        300.0,
        "Maximum pause, in seconds, between two attempts to repair a ledger; also the pause before a check that "
        "could not be completed is repeated.",
        subject=Subject.RECOVERY,
        gt=0,
        formerly="rw_rereplicate_backoff_max_s",
    )
    rereplication_entry_batch_size: int = setting(
        1000,
        "Maximum number of entries that a repair reads and then writes at a time.",
        subject=Subject.RECOVERY,
        unit="entries",
        ge=1,
        named_by="BookKeeper",
    )
    rereplication_batch_bytes: int = setting(
        1_048_576,
        "Maximum number of bytes that a repair reads and then writes at a time.",
        subject=Subject.RECOVERY,
        ge=1,
    )
    inventory_entries: int = setting(
        10_000,
        "Maximum number of entries that one inventory request covers.",
        subject=Subject.RECOVERY,
        unit="entries",
        ge=1,
    )
    inventory_timeout_seconds: float = setting(
        30.0,
        "Seconds that a bookie has to answer an inventory request.",
        subject=Subject.RECOVERY,
        gt=0,
        formerly="inventory_timeout_s",
    )
    progress_interval_seconds: float = setting(
        1.0,
        "Minimum time, in seconds, between two records of a repair's progress in the metadata store.",
        subject=Subject.RECOVERY,
        ge=0,
        formerly="progress_interval_s",
    )
