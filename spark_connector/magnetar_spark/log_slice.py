"""What one Spark task reads: consecutive pieces of one partition's log, and all that it takes to read them.

It travels from the driver to an executor as a pickle, so it holds plain values alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark.sql.datasource import InputPartition

from magnetar_bookie.read.striping import Fragment, Striping
from magnetar_spark.leases.batch_lease import TaskLease
from magnetar_spark.options.decoding_options import DEFAULT_DECODING, Decoding

__all__ = ["RECONNECT_S", "Connection", "LogSlice", "SlicePiece"]

# How long a running query retries what brokers and bookies do not answer: a rolling restart of a cluster takes minutes.
RECONNECT_S: Final = 600


@dataclass(frozen=True, slots=True)
class SlicePiece:
    """Entries `first_entry_id` … `last_entry_id` of a ledger; reading.proto's `Piece`, or a part of one."""

    ledger_id: int
    first_entry_id: int
    last_entry_id: int
    # Messages of the first entry that are not wanted; and how many of the last are, from its first on; 0: all.
    skip_messages: int
    stop_after_messages: int
    bytes: int
    messages: int
    striping: Striping
    fragments: tuple[Fragment, ...]
    # The last fragment was the last one of a ledger that was not closed when this was planned.
    open: bool = False


@dataclass(frozen=True, slots=True)
class Connection:
    """How a task reaches brokers, for a new plan and to renew a lease, and how long it retries them and bookies."""

    service_url: str
    listener_name: str
    reconnect_s: int = RECONNECT_S


@dataclass(frozen=True)
class LogSlice(InputPartition):
    # As the column `topic` shows it, and the number of the partition: -1 where the topic has none.
    topic: str
    partition: int
    # The topic that holds the log: `topic-partition-<i>`, or the topic itself.
    log: str
    incarnation: str
    pieces: tuple[SlicePiece, ...]
    # Right in front of the first piece: where chunks of a message may be whose last chunk is in it; the nearest last.
    before: tuple[SlicePiece, ...]
    # Addresses by the bookies' ids.
    bookies: dict[str, str]
    # None: the driver renews it.
    lease: TaskLease | None
    connection: Connection
    fail_on_data_loss: bool
    decoding: Decoding = DEFAULT_DECODING
    # What was right in front of `before` was deleted: a beginning that is not in it may have been there.
    chunks_deleted: bool = False
    # There is more in front of `before`, which is not looked at: a beginning that is not in it may be there.
    more_before: bool = False
    # Which of the slices of this log, of the same batch, it is.
    part: int = 0
    parts: int = 1
    # Of a plan that is narrowed to a query's filters; empty: it is not.
    plan_id: str = ""
