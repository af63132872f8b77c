"""What can be set about a ledger client."""

from __future__ import annotations

from pydantic import Field

from magnetar_wire.configuration import Configuration

__all__ = ["LedgerClientSettings"]


class LedgerClientSettings(Configuration):
    # Seconds after which a bookie has failed that does not answer the oldest add in flight. They count from when the
    # add was sent, or from the answer to the add before it, whichever is later.
    add_entry_timeout_s: float = Field(default=5.0, gt=0)
    # Seconds after which a read has failed at a bookie that has not answered it. Then the next replica is read.
    read_entry_timeout_s: float = Field(default=5.0, gt=0)
    # Milliseconds without an answer after which a read is sent to the next replica, too.
    speculative_read_timeout_ms: int = Field(default=2000, gt=0)
    # Milliseconds without an add after which a writer sends its LAC to the bookies. 0: never.
    explicit_lac_interval_ms: int = Field(default=100, ge=0)
    # Maximum number of entries of one ledger that are added and not completed. Further adds wait.
    max_pending_entries: int = Field(default=1000, gt=0)
    # Memory, in bytes, of the entries of one ledger that are added and not completed; each entry counts with 512 bytes
    # besides its record. Further adds wait. The entry that passes the bound is still added.
    max_pending_bytes: int = Field(default=67_108_864, gt=0)
    # Memory, in bytes, of the adds of all ledgers that one bookie has not answered: each entry counts with 512 bytes
    # besides its record. Above it ledgers that can complete their adds without this bookie replace it, and all others
    # wait for it. 0: in a broker, twice max_message_publish_buffer_size_in_mb; in other processes, four times
    # max_pending_bytes. A broker refuses to start with less than max_message_publish_buffer_size_in_mb.
    max_bookie_lag_bytes: int = Field(default=0, ge=0)
    # Seconds for which a bookie that failed is not chosen for new entries. The time doubles each time that the bookie
    # fails again soon after, up to 32 times this value.
    bookie_quarantine_time_s: float = Field(default=30.0, gt=0)
    # Seconds without a registration after which a writer replaces a bookie, even if the writer adds nothing, provided
    # that another bookie is available. Set it lower than auto-recovery's lost_bookie_recovery_delay_s plus
    # open_ledger_rereplication_grace_period_s, after which the ledger is closed.
    lost_bookie_replacement_delay_s: float = Field(default=15.0, gt=0)
    # Seconds for which a ledger's recovery is retried while bookies can't report whether an entry exists.
    recovery_timeout_s: float = Field(default=60.0, gt=0)
    # Entries that a ledger's recovery reads ahead.
    recovery_window_entries: int = Field(default=64, gt=0)
    # Memory, in bytes, of the records that all recoveries of a process have read ahead and not written yet; each entry
    # counts with 512 bytes besides its record. At this bound recoveries wait for each other. Each may hold one entry
    # above the bound, so that all of them proceed.
    max_recovery_bytes: int = Field(default=134_217_728, gt=0)
    # Entries that a reader requests ahead, and at most a few MiB of them. 0: none.
    read_ahead_entries: int = Field(default=2048, ge=0)
    # Milliseconds for which a bookie may hold a tailing reader's request for the LAC.
    long_poll_timeout_ms: int = Field(default=10_000, gt=0)

    @property
    def lag_bound_bytes(self) -> int:
        """`max_bookie_lag_bytes`, or what its 0 means where no broker has said it."""
        return self.max_bookie_lag_bytes or 4 * self.max_pending_bytes
