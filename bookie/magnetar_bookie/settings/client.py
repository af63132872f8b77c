"""Settings of a ledger client, which brokers, auto-recovery and tools write and read ledgers with."""

from __future__ import annotations

from magnetar_wire.configuration import Configuration
from magnetar_wire.settings import Subject, setting

__all__ = ["LedgerClientSettings", "PendingBytesSettings"]


class PendingBytesSettings(Configuration):
    max_pending_bytes: int = setting(
        64 * 1024 * 1024,
        "Memory, in bytes, of entries in flight: at a writer, those of one ledger that are not completed; at a bookie, "
        "all that it has received and not written to disk. Each entry counts with 512 bytes besides its record. At "
        "this bound the writer's adds wait, and the bookie stops reading streams. The entry that passes the bound is "
        "still accepted.",
        subject=Subject.REPLICATION,
        ge=1,
        le=1 << 30,
    )


class LedgerClientSettings(PendingBytesSettings):
    add_entry_timeout_seconds: float = setting(
        5.0,
        "Seconds after which a bookie has failed that does not answer the oldest add in flight. They count from "
        "when the add was sent, or from the answer to the add before it, whichever is later.",
        subject=Subject.REPLICATION,
        gt=0,
        formerly="add_entry_timeout_s",
    )
    read_entry_timeout_seconds: float = setting(
        5.0,
        "Seconds after which a read has failed at a bookie that has not answered it. Then the next replica is read.",
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
        "Memory, in bytes, of the adds of all ledgers that one bookie has not answered: each entry counts with "
        "512 bytes besides its record. Above it ledgers that can complete their adds without this bookie replace "
        "it, and all others wait for it. 0: in a broker, twice max_message_publish_buffer_size_in_mb; in other "
        "processes, four times max_pending_bytes. A broker refuses to start with less than "
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
        "Seconds without a registration after which a writer replaces a bookie, even if the writer adds nothing, "
        "provided that another bookie is available. Set it lower than auto-recovery's "
        "lost_bookie_recovery_delay_seconds plus open_ledger_rereplication_grace_period_seconds, after which the "
        "ledger is closed.",
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
        "Memory, in bytes, of the records that all recoveries of a process have read ahead and not written yet; "
        "each entry counts with 512 bytes besides its record. At this bound recoveries wait for each other. Each "
        "may hold one entry above the bound, so that all of them proceed.",
        subject=Subject.REPLICATION,
        ge=1,
    )
    read_ahead_entries: int = setting(
        2048,
        "Entries that a reader requests ahead, and at most a few MiB of them. 0: none.",
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
