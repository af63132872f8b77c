"""A bookie's options."""

from __future__ import annotations

from typing import Final

from pydantic import Field

from magnetar_bookie.read.record import MAX_RECORD_BYTES
from magnetar_wire.configuration import Configuration

__all__ = ["MAX_ANSWER_BYTES", "BookieServerSettings"]

# The records of one answer: with the ids around them it fits the transport.
MAX_ANSWER_BYTES: Final = MAX_RECORD_BYTES + 1_048_576


class BookieServerSettings(Configuration):
    """Each has an effect, and bounds what a bookie does or takes."""

    # Accept no new entries.
    read_only: bool = False
    # Memory, in bytes, of the records that wait for the disk; each entry counts with 512 bytes besides its record. The
    # bookie stops reading streams at this bound, which is at most 1 GiB. It also bounds the entries of one ledger that
    # this process writes itself and that are not completed.
    max_pending_bytes: int = Field(default=64 * 1024 * 1024, gt=0, le=1 << 30)
    # Maximum number of responses to adds that wait for a client to read them. Above it the bookie stops reading the
    # client's stream.
    max_waiting_answers: int = Field(default=20_000, gt=0)
    # Maximum number of idle ledgers whose state is cached. Others are looked up again when they are used.
    max_ledgers_in_memory: int = Field(default=10_000, gt=0)
    # Maximum number of requests that wait for a ledger's LAC to advance. Further requests are answered at once.
    max_long_polls: int = Field(default=10_000, ge=0)
    # Maximum time, in milliseconds, that a request waits for a ledger's LAC to advance. 0: all are answered at once.
    max_long_poll_ms: int = Field(default=60_000, ge=0)
    # Maximum number of reads at a time. Further reads are refused.
    max_concurrent_reads: int = Field(default=64, gt=0)
    # Maximum size, in bytes, of the records in one response to a read. A request may set a lower or higher maximum of
    # its own.
    max_read_bytes: int = Field(default=4 * 1024 * 1024, gt=0, le=MAX_ANSWER_BYTES)
    # Maximum size, in bytes, of the records that the bookie reads for one response to an inventory request.
    max_inventory_bytes: int = Field(default=16 * 1024 * 1024, gt=0)
    # Maximum number of entries that one response to a read, or to an inventory request, covers.
    max_ids_per_answer: int = Field(default=10_000, gt=0, le=100_000)
    # Seconds between two checks of whether a full disk has free space again.
    disk_check_interval_s: float = Field(default=10.0, gt=0)
    # Seconds between two rounds in which the bookie looks for deleted ledgers.
    garbage_interval_s: float = Field(default=300.0, gt=0)
    # Seconds between two rounds in which all stored entries are checked for damage. 0: never.
    scrub_interval_s: float = Field(default=604_800.0, ge=0)
    # Maximum number of bytes per second that the check for damage reads.
    scrub_max_bytes_per_s: int = Field(default=10 * 1024 * 1024, gt=0)
    # Seconds between two attempts to reach the metadata store.
    metadata_retry_s: float = Field(default=1.0, gt=0)
