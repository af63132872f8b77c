"""What one Spark task reads: consecutive pieces of one partition's log, and how to read them.

The driver pickles a slice for each task, so it has plain values only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark.sql.datasource import InputPartition

from magnetar_bookie.read.striping import Fragment, Striping
from magnetar_spark.leases.batch_lease import BatchLease
from magnetar_spark.options.decoding_options import DEFAULT_DECODING, DecodingOptions

__all__ = ["DEFAULT_RECONNECT_S", "Connection", "LogSlice", "SlicePiece"]

# How long a running query retries requests that brokers and bookies do not answer. A rolling restart takes minutes.
DEFAULT_RECONNECT_S: Final = 600


@dataclass(frozen=True, slots=True)
class SlicePiece:
    """Entries `first_entry_id` … `last_entry_id` of a ledger; reading.proto's `Piece`, or a part of one."""

    ledger_id: int
    first_entry_id: int
    last_entry_id: int
    # Messages of the first entry that are before the range; and how many of the last entry are in it, from its first
    # on; 0: all.
    skip_messages: int
    stop_after_messages: int
    bytes: int
    messages: int
    striping: Striping
    fragments: tuple[Fragment, ...]
    # The last fragment is that of a ledger that was not closed when the piece was planned.
    open: bool = False


@dataclass(frozen=True, slots=True)
class Connection:
    """How a task reaches brokers, and how long it retries requests to them and to bookies."""

    service_url: str
    listener_name: str
    reconnect_s: int = DEFAULT_RECONNECT_S


@dataclass(frozen=True)
class LogSlice(InputPartition):
    # The values of the columns `topic` and `partition`; the partition is -1 if the topic is not partitioned.
    topic: str
    partition: int
    # The name of the partition, `topic-partition-<i>`, or of the topic if it is not partitioned.
    log: str
    incarnation: str
    pieces: tuple[SlicePiece, ...]
    # The pieces right before the first one, the nearest last. They may have the first chunks of a message whose last
    # chunk is in the slice.
    before: tuple[SlicePiece, ...]
    # Addresses by the bookies' ids.
    bookies: dict[str, str]
    # None: the driver renews it.
    lease: BatchLease | None
    connection: Connection
    fail_on_data_loss: bool
    decoding: DecodingOptions = DEFAULT_DECODING
    # Entries right before `before` were deleted: they may have had first chunks that are not in `before`.
    chunks_deleted: bool = False
    # There are entries before `before`, which are not searched: they may have first chunks that are not in `before`.
    more_before: bool = False
    # The number of the slice among those of its log in the same batch, and how many there are.
    part: int = 0
    parts: int = 1
    # The id of a plan with pushed filters; empty: it has none.
    plan_id: str = ""
