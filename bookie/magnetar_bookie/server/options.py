"""A bookie's options."""

from __future__ import annotations

from typing import Final

from pydantic import Field

from magnetar_bookie.read.record import MAX_RECORD_BYTES
from magnetar_wire.configuration import Configuration

__all__ = ["MAX_ANSWER_BYTES", "BookieOptions"]

# The records of one answer: with the ids around them it fits the transport.
MAX_ANSWER_BYTES: Final = MAX_RECORD_BYTES + 1_048_576


class BookieOptions(Configuration):
    """Each has an effect, and bounds what a bookie does or takes."""

    # Takes no new entries, as its operator wants.
    read_only: bool = False
    # Memory, in bytes, of the records that wait for the disk; each entry counts with 512 bytes besides its record. The
    # bookie stops reading streams at this bound, which is at most 1 GiB.
    max_pending_bytes: int = Field(default=64 * 1024 * 1024, gt=0, le=1 << 30)
    # So many answers may wait for a client that does not take them, before its stream is not read on.
    max_waiting_answers: int = Field(default=20_000, gt=0)
    # Idle ledgers beyond so many are looked up again when they are used.
    max_ledgers_in_memory: int = Field(default=10_000, gt=0)
    # Further ones are answered at once.
    max_long_polls: int = Field(default=10_000, ge=0)
    max_long_poll_ms: int = Field(default=60_000, ge=0)
    # Further ones are refused.
    max_concurrent_reads: int = Field(default=64, gt=0)
    # The records of one answer to a read. A request may ask for less.
    max_read_bytes: int = Field(default=4 * 1024 * 1024, gt=0, le=MAX_ANSWER_BYTES)
    # What one answer to `inventory` reads.
    max_inventory_bytes: int = Field(default=16 * 1024 * 1024, gt=0)
    # How many ids one answer to either speaks of.
    max_ids_per_answer: int = Field(default=10_000, gt=0, le=100_000)
    # A bookie whose disk is full looks so often whether there is room again.
    disk_check_interval_s: float = Field(default=10.0, gt=0)
    # Between two rounds in which deleted ledgers are looked for.
    garbage_interval_s: float = Field(default=300.0, gt=0)
    # All that is held is looked through for damage so often, and so many bytes of it in a second at most; interval
    # 0: never.
    scrub_interval_s: float = Field(default=604_800.0, ge=0)
    scrub_max_bytes_per_s: int = Field(default=10 * 1024 * 1024, gt=0)
    # Between two attempts to reach the metadata store.
    metadata_retry_s: float = Field(default=1.0, gt=0)
