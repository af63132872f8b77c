"""Settings of a ledger client, which brokers, auto-recovery and tools write and read ledgers with."""

from __future__ import annotations

from magnetar_wire.configuration import Configuration
from magnetar_wire.settings import Subject, setting

__all__ = ["LedgerClientSettings", "PendingBytesSettings"]


class PendingBytesSettings(Configuration):
    max_pending_bytes: int = setting(
        64 * 1024 * 1024,
        "Maximum memory, in bytes, of entries in flight. A writer counts the entries of one ledger that are not "
        "completed; a bookie counts all entries that it has received and not written to disk. Each entry counts as "
        "its record plus 512 bytes. At this bound the writer's adds wait, and the bookie stops reading streams. The "
        "entry that passes the bound is still accepted.",
        subject=Subject.REPLICATION,
        ge=1,
        le=1 << 30,
    )


class LedgerClientSettings(PendingBytesSettings):
    add_entry_timeout_seconds: float = setting(
        5.0,
        "Seconds that a bookie has to answer the oldest add in flight. Then the bookie has failed. The time counts "
        "from when that add was sent, or from the answer to the previous add, whichever is later.",
        subject=Subject.REPLICATION,
        gt=0,
        formerly="add_entry_timeout_s",
    )
    read_entry_timeout_seconds: float = setting(
        5.0,
        "Seconds that a bookie has to answer a read. Then the next replica is read.",
        subject=Subject.READING,
        gt=0,
        formerly="read_entry_timeout_s",
    )
    speculative_read_timeout_ms: int = setting(
        2000,
        "Milliseconds without an answer after which a read is sent to the next replica, too.",
        subject=Subject.READING,
        ge=1,
    )
    explicit_lac_interval_ms: int = setting(
        100,
        "Milliseconds without an add after which a writer sends its LAC to the bookies. 0: never.",
        subject=Subject.REPLICATION,
        ge=0,
    )
    max_pending_entries: int = setting(
        1000,
        "Maximum number of entries of one ledger that are added and not completed. Further adds wait.",
        subject=Subject.REPLICATION,
        unit="entries",
        ge=1,
    )
    max_bookie_lag_bytes: int = setting(
        0,
        "Maximum memory, in bytes, of the adds of all ledgers that one bookie has not answered. Each entry counts as "
        "its record plus 512 bytes. Above it, ledgers that can complete their adds without this bookie replace it, "
        "and the adds of all other ledgers wait for it. 0: in a broker, twice max_message_publish_buffer_size_in_mb; "
        "in other processes, four times max_pending_bytes. In a broker, a value other than 0 must be at least "
        "max_message_publish_buffer_size_in_mb.",
        subject=Subject.REPLICATION,
        ge=0,
    )
    bookie_quarantine_time_seconds: float = setting(
        30.0,
        "Seconds for which a bookie that failed is not chosen for new entries. The time doubles each time that "
        "the bookie fails again soon after, up to 32 times this value.",
        subject=Subject.REPLICATION,
        gt=0,
        named_by="BookKeeper",
        formerly="bookie_quarantine_time_s",
    )
    lost_bookie_replacement_delay_seconds: float = setting(
        15.0,
        "Seconds without a registration in the metadata store after which a writer replaces a bookie, even if the "
        "writer adds nothing. It needs another bookie that is available. Set it lower than the sum of auto-recovery's "
        "lost_bookie_recovery_delay_seconds and open_ledger_rereplication_grace_period_seconds, after which "
        "auto-recovery closes the ledger.",
        subject=Subject.REPLICATION,
        gt=0,
        formerly="lost_bookie_replacement_delay_s",
    )
    recovery_timeout_seconds: float = setting(
        60.0,
        "Seconds for which a ledger's recovery is retried while bookies can't report whether an entry exists.",
        subject=Subject.REPLICATION,
        gt=0,
        formerly="recovery_timeout_s",
    )
    recovery_window_entries: int = setting(
        64,
        "Entries that a ledger's recovery reads ahead.",
        subject=Subject.REPLICATION,
        unit="entries",
        ge=1,
    )
    max_recovery_bytes: int = setting(
        134_217_728,
        "Maximum memory, in bytes, of the records that all recoveries of a process have read ahead and not written "
        "yet. Each entry counts as its record plus 512 bytes. At this bound recoveries wait for each other. Each "
        "recovery may hold one entry above the bound, so that all of them proceed.",
        subject=Subject.REPLICATION,
        ge=1,
    )
    read_ahead_entries: int = setting(
        2048,
        "Maximum number of entries that a reader requests ahead; a few MiB limit them, too. 0: none.",
        subject=Subject.READING,
        unit="entries",
        ge=0,
    )
    long_poll_timeout_ms: int = setting(
        10_000,
        "Milliseconds for which a bookie may hold a tailing reader's request for the LAC.",
        subject=Subject.READING,
        ge=1,
    )

    @property
    def lag_bound_bytes(self) -> int:
        """`max_bookie_lag_bytes`, or the bound that 0 stands for outside a broker."""
        return self.max_bookie_lag_bytes or 4 * self.max_pending_bytes
