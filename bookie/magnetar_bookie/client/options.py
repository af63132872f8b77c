"""What can be set about a ledger client."""

from __future__ import annotations

from pydantic import Field

from magnetar_wire.configuration import Configuration

__all__ = ["LedgerClientOptions"]


class LedgerClientOptions(Configuration):
    # Seconds after which a bookie has failed that does not answer the oldest add it was sent. They count from when the
    # add left this process, or from the answer to the add before it, whichever is later.
    add_entry_timeout_s: float = Field(default=5.0, gt=0)
    # Seconds after which a read has failed at a bookie that has not answered it. Then the next replica is asked.
    read_entry_timeout_s: float = Field(default=5.0, gt=0)
    # After so long the next replica is asked as well.
    speculative_read_timeout_ms: int = Field(default=2000, gt=0)
    # A writer that adds nothing for so long tells the bookies its LAC; 0: never.
    explicit_lac_interval_ms: int = Field(default=100, ge=0)
    # Entries of one ledger that are added and not completed, at most. More of them wait.
    max_pending_entries: int = Field(default=1000, gt=0)
    # Memory, in bytes, of the entries of one ledger that are added and not completed: each entry counts with 512 bytes
    # besides its record. Others wait. The entry that passes the bound is still added.
    max_pending_bytes: int = Field(default=67_108_864, gt=0)
    # Memory, in bytes, of the adds of all ledgers that one bookie has not answered: each entry counts with 512 bytes
    # besides its record. Above it ledgers that can complete their adds without this bookie replace it, and all others
    # wait for it. 0: in a broker, twice max_message_publish_buffer_size_in_mb; in other processes, four times
    # max_pending_bytes. A broker refuses to start with less than max_message_publish_buffer_size_in_mb.
    max_bookie_lag_bytes: int = Field(default=0, ge=0)
    # A bookie that failed is not chosen for so long; for longer each time that it fails again soon after.
    bookie_quarantine_time_s: float = Field(default=30.0, gt=0)
    # A writer replaces a bookie that has had no registration for so long, though it adds nothing, where another one can
    # take its place. Shorter than auto-recovery waits, which would take the ledger from its writer.
    lost_bookie_replacement_delay_s: float = Field(default=15.0, gt=0)
    # So long a recovery asks bookies again that could not say whether an entry exists.
    recovery_timeout_s: float = Field(default=60.0, gt=0)
    # So many entries a recovery reads ahead of the one that it decides on.
    recovery_window_entries: int = Field(default=64, gt=0)
    # Bytes of memory of the records that all recoveries of a process hold at a time, read ahead and not written yet;
    # each counts with 512 bytes besides its length. At this bound recoveries wait for each other. Each may hold one
    # entry whatever the bound is, so that all of them proceed.
    max_recovery_bytes: int = Field(default=134_217_728, gt=0)
    # So many entries a reader has fetched or on their way before they are asked for; and a few MiB of them at most.
    read_ahead_entries: int = Field(default=2048, ge=0)
    # So long a bookie keeps a tailing reader's question for the LAC.
    long_poll_timeout_ms: int = Field(default=10_000, gt=0)

    @property
    def lag_bound_bytes(self) -> int:
        """`max_bookie_lag_bytes`, or what its 0 means where no broker has said it."""
        return self.max_bookie_lag_bytes or 4 * self.max_pending_bytes
