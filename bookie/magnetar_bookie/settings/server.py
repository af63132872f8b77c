"""Settings of a bookie: limits of requests and memory, and intervals of regular tasks."""

from __future__ import annotations

from typing import Final

from magnetar_bookie.read.record import MAX_RECORD_BYTES
from magnetar_bookie.settings.ledger_client import PendingBytesSettings
from magnetar_metadata.settings import MetadataRetrySettings
from magnetar_wire.settings import Subject, setting

__all__ = ["MAX_ANSWER_BYTES", "BookieServerSettings"]

# Maximum size of the records of one response: with the ids around them they fit the transport.
MAX_ANSWER_BYTES: Final = MAX_RECORD_BYTES + 1_048_576


class BookieServerSettings(MetadataRetrySettings, PendingBytesSettings):
    """Limits of requests and memory, and intervals of regular tasks."""

    read_only: bool = setting(
        False,
        "Accept no new entries.",
        subject=Subject.BOOKIE,
    )
    max_waiting_answers: int = setting(
        20_000,
        "Maximum number of responses to adds that wait for a client to read them. Above it the bookie stops "
        "reading the client's stream.",
        subject=Subject.BOOKIE,
        unit="responses",
        ge=1,
    )
    max_ledgers_in_memory: int = setting(
        10_000,
        "Maximum number of idle ledgers whose state is cached. Others are looked up again when they are used.",
        subject=Subject.BOOKIE,
        unit="ledgers",
        ge=1,
    )
    max_long_polls: int = setting(
        10_000,
        "Maximum number of requests that wait for a ledger's LAC to advance. Further requests are answered at once.",
        subject=Subject.BOOKIE,
        unit="requests",
        ge=0,
    )
    max_long_poll_ms: int = setting(
        60_000,
        "Maximum time, in milliseconds, that a request waits for a ledger's LAC to advance. 0: all are answered "
        "at once.",
        subject=Subject.BOOKIE,
        ge=0,
    )
    max_concurrent_reads: int = setting(
        64,
        "Maximum number of reads at a time. Further reads are refused.",
        subject=Subject.BOOKIE,
        unit="reads",
        ge=1,
    )
    max_read_bytes: int = setting(
        4 * 1024 * 1024,
        "Maximum size, in bytes, of the records in one response to a read. A request may set a lower or higher "
        "maximum of its own.",
        subject=Subject.BOOKIE,
        ge=1,
        le=MAX_ANSWER_BYTES,
    )
    max_inventory_bytes: int = setting(
        16 * 1024 * 1024,
        "Maximum size, in bytes, of the records that the bookie reads for one response to an inventory request.",
        subject=Subject.BOOKIE,
        ge=1,
    )
    max_ids_per_answer: int = setting(
        10_000,
        "Maximum number of entries that one response to a read, or to an inventory request, covers.",
        subject=Subject.BOOKIE,
        unit="entries",
        ge=1,
        le=100_000,
    )
    disk_check_interval_seconds: float = setting(
        10.0,
        "Seconds between two checks of whether a full disk has free space again.",
        subject=Subject.STORAGE,
        gt=0,
        formerly="disk_check_interval_s",
    )
    garbage_interval_seconds: float = setting(
        300.0,
        "Seconds between two rounds in which the bookie looks for deleted ledgers.",
        subject=Subject.STORAGE,
        gt=0,
        formerly="garbage_interval_s",
    )
    scrub_interval_seconds: float = setting(
        604_800.0,
        "Seconds between two rounds in which all stored entries are checked for damage. 0: never.",
        subject=Subject.STORAGE,
        ge=0,
        formerly="scrub_interval_s",
    )
    scrub_max_bytes_per_second: int = setting(
        10 * 1024 * 1024,
        "Maximum number of bytes per second that the check for damage reads.",
        subject=Subject.STORAGE,
        ge=1,
        formerly="scrub_max_bytes_per_s",
    )
