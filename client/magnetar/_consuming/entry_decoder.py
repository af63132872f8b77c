"""Entries of one topic or partition, from their delivery until they are decoded into the receiver queue.

**Waiting.** An entry may be a thousand times as large when it is decompressed. So on delivery only the size that its
producer declared is read. The entry is decoded when there is capacity: while the decoded entries in the receiver queue
take less than `max_bytes`, or there are none. Until then an entry waits in the size in which it was delivered, and the
permits limit how many entries wait.

**Messages that are not handed out** are those that are acknowledged, those before the start in its batch, markers
that servers write into the log, and those that were delivered too often (`_letters/letter_stage.py`).

**Chunks** of a large message are joined as soon as they are delivered (`_prefetching/chunk_assembly.py`), and the
message waits like an entry, with the position of its last chunk. A chunk takes a permit, which is free again at once,
unless it is the last one: so a message may have more chunks than the receiver queue has capacity. A Shared or
Key_Shared subscription has several consumers and redelivers single entries, so chunks are not joined there.

**Entries that can't be decoded.** A damaged entry is logged and acknowledged: no consumer can read it, and an entry
that is never acknowledged blocks a Shared subscription in the end. An intact entry that this code can't read
(encrypted, a chunk of a Shared subscription, an unknown compression) is logged too, and stays in the subscription for a
consumer that can.

**With a schema**, an entry waits until the schema version is known by which it was encoded, and those behind it wait as
well (`_values/value_decoder.py`). A payload that can't be decoded is a matter of `Message.value`. With
DecodeFailureAction.SKIP all payloads are decoded here, and such a message is logged and acknowledged instead of handed
out. A message whose schema version can't be read at present may be decoded later, so it is never skipped.

Each entry takes as many permits as its batch has messages, however many are handed out.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Container, Iterator, Sequence
from typing import Final, NamedTuple

from magnetar._acknowledging.pending_acks import PendingAcks
from magnetar._acknowledging.unacked_chunks import EntryRun, UnackedChunks
from magnetar._consuming.mixed_batch_warning import MixedBatchWarning
from magnetar._letters.letter_stage import LetterStage
from magnetar._message import (
    DeliveredEntry,
    DeliveryEpoch,
    decode_delivered_entry,
    get_batch_size,
    get_uncompressed_bytes,
)
from magnetar._prefetching.chunk_assembly import ChunkAssembler, Position
from magnetar._prefetching.partition_queue import PartitionQueue
from magnetar._prefetching.permits import Permits
from magnetar._prefetching.read_position import ReadPosition
from magnetar._prefetching.receiver_queue import ReceiverQueue
from magnetar._values.value_decoder import PayloadDecoder, VersionDecoders
from magnetar.exceptions import DecodeError, SchemaUnavailable
from magnetar_protos.broker_pb2 import Delivery
from magnetar_protos.entry_pb2 import BrokerEntryMetadata, MessageMetadata
from magnetar_wire.batch import check_not_encrypted
from magnetar_wire.entry import Entry, decode_entry, locate_payload
from magnetar_wire.errors import MalformedFrame, PartOfMessage, UnsupportedEntry, WireError
from magnetar_wire.frame import find_entry_ids

__all__ = ["EntryDecoder"]

log = logging.getLogger("magnetar")

# The maximum number of messages that are made at a time: few enough not to trigger Python's garbage collector, which
# runs after 700 new objects.
_SEGMENT_SIZE: Final = 256


class _PendingEntry(NamedTuple):
    epoch: DeliveryEpoch
    ledger_id: int
    entry_id: int
    redelivery_count: int
    # The messages that are acknowledged, one bit each.
    acknowledged: bytes
    entry: Entry
    # How many messages its batch has; 1: it is not a batch.
    message_count: int
    # The positions of the message's chunks; empty: it was not sent in chunks.
    chunks: tuple[Position, ...] = ()


class EntryDecoder:
    def __init__(
        self,
        topic: str,
        queue: ReceiverQueue,
        partition_queue: PartitionQueue,
        permits: Permits,
        acks: PendingAcks,
        position: ReadPosition,
        *,
        durable: bool,
        versions: VersionDecoders | None = None,
        skips_undecodable: bool = False,
        assembler: ChunkAssembler | None = None,
        unacked_chunks: UnackedChunks | None = None,
        letters: LetterStage | None = None,
        mixed_batches: MixedBatchWarning | None = None,
    ) -> None:
        """`versions`: None: values are payloads. `assembler`: None: chunks are not joined. `letters`: takes entries
        that are not handed out, or later."""
        self._topic = topic
        self._queue = queue
        self._partition_queue = partition_queue
        self._permits = permits
        self._acks = acks
        self._position = position
        self._durable = durable
        self._versions = versions
        self._skips_undecodable = skips_undecodable
        self._assembler = assembler
        self._letters = letters
        self._mixed_batches = mixed_batches
        self._unacked_chunks = unacked_chunks or UnackedChunks()
        if assembler is not None:
            self._unacked_chunks.find_incomplete = assembler.find_positions
        # The epoch of the last delivery.
        self._epoch: DeliveryEpoch | None = None
        self._pending: deque[_PendingEntry] = deque()
        # The first pending entry waits until its schema version is known.
        self.waits_for_schema = False
        self._is_stopped = False

    def add_delivery(
        self, epoch: DeliveryEpoch, delivery: Delivery, entries: Sequence[bytes], now: float = 0.0
    ) -> None:
        """Add delivered entries. Raises MalformedFrame if they have no valid ids, or were delivered without permits."""
        acknowledged = delivery.acknowledged if len(entries) == 1 else b""
        self._epoch = epoch
        entry_ids = find_entry_ids(delivery.first_entry_id, delivery.gaps, len(entries))
        for entry_id, stored in zip(entry_ids, entries, strict=True):
            if self._is_stopped:  # by a chunk of this delivery
                return
            try:
                broker, metadata, payload_at = locate_payload(stored)
            except WireError as error:
                self._permits.count_delivered(_count_permits(stored), 0, 0)
                self._skip_undecodable(epoch, delivery.ledger_id, entry_id, error)
                continue
            if metadata.num_chunks_from_msg > 1:
                payload = memoryview(stored)[payload_at:]
                self._add_chunk(epoch, delivery, entry_id, metadata, broker, payload, now)
                continue
            entry = Entry(metadata, stored[payload_at:], broker)
            count = get_batch_size(entry.metadata) or 1
            self._permits.count_delivered(count, count, get_uncompressed_bytes(entry))
            if self._versions is not None:
                self._versions.fetch_ahead(entry.metadata.schema_version)
            self._pending.append(
                _PendingEntry(
                    epoch, delivery.ledger_id, entry_id, delivery.redelivery_count, acknowledged, entry, count
                )
            )
        self._position.count_delivered(delivery.ledger_id, entry_ids[-1])
        if self._assembler is not None:  # else there are no cumulative acknowledgements
            for run in _find_runs(delivery, entry_ids):
                self._unacked_chunks.add_delivered(run)
        if self._permits.is_overdrawn:
            raise MalformedFrame(
                f"the broker delivered messages of {self._topic} without permits: it has {self._permits.outstanding}"
            )

    def _add_chunk(
        self,
        epoch: DeliveryEpoch,
        delivery: Delivery,
        entry_id: int,
        metadata: MessageMetadata,
        broker: BrokerEntryMetadata | None,
        payload: memoryview,
        now: float,
    ) -> None:
        """Add a chunk; the last one of a message adds the message."""
        ledger_id = delivery.ledger_id
        try:
            check_not_encrypted(metadata)
            if self._assembler is None:
                raise _not_joined(metadata)
        except WireError as error:
            self._permits.count_delivered(1, 0, 0)
            if metadata.chunk_id == 0:  # once for a message
                self._skip_undecodable(epoch, ledger_id, entry_id, error)
            return
        self._unacked_chunks.remove_dropped([(ledger_id, entry_id)])
        assembled = self._assembler.add_chunk((ledger_id, entry_id), metadata, broker, payload, now)
        if assembled is None:
            self._permits.count_delivered(1, 0, 0)
            return
        entry, chunks = assembled
        self._permits.count_delivered(1, 1, get_uncompressed_bytes(entry))
        self._unacked_chunks.add_message(chunks)
        if self._versions is not None:
            self._versions.fetch_ahead(entry.metadata.schema_version)
        self._pending.append(
            _PendingEntry(epoch, ledger_id, entry_id, delivery.redelivery_count, b"", entry, 1, chunks)
        )

    def discard_chunks(
        self, positions: Sequence[Position], reason: str, acknowledge: bool, /, *, is_expected: bool = False
    ) -> None:
        """Handle chunks of messages that are not joined, as the assembler decides."""
        if reason:
            text = "a message in chunks from entry %s:%s of %s on is not handed out, and %s: %s"
            then = "its chunks are acknowledged" if acknowledge else "stays in the subscription until its redelivery"
            if not self._durable:
                then = "is skipped"
            level = logging.WARNING if is_expected else logging.ERROR
            log.log(level, text, *positions[0], self._topic, then, reason)
        if not acknowledge:
            self._unacked_chunks.add_dropped(positions)
        elif self._epoch is not None:
            self._unacked_chunks.remove_dropped(positions)
            self._acks.add_entries(self._epoch, positions)

    def decode_pending(self) -> None:
        """Decode entries while there is capacity, and add them to the receiver queue."""
        partition_queue = self._partition_queue
        while True:
            decoded = self._decode_while_capacity()
            # While entries wait, each segment that is handed out must be reported, since it frees capacity. This is set
            # before the entries are added: otherwise a report could be missed.
            half = max(1, self._permits.window // 2)
            partition_queue.report_at = 1 if self._pending else half
            partition_queue.segment_size = min(half, _SEGMENT_SIZE)
            self._queue.add_entries(partition_queue, decoded)
            if not self._pending or self.waits_for_schema or self._queue.has_uncounted_of(partition_queue):
                return

    def _decode_while_capacity(self) -> list[DeliveredEntry]:
        decoded: list[DeliveredEntry] = []
        size = self._partition_queue.size_bytes
        versions, decoder = self._versions, None
        self.waits_for_schema = False
        while self._pending:
            first = self._pending[0].entry
            if size and size + get_uncompressed_bytes(first) > self._permits.max_bytes:
                break
            if versions is not None and not first.is_marker:
                decoder = versions.find(first.metadata.schema_version)
                if decoder is None:
                    self.waits_for_schema = True
                    break
            entry = self._decode(self._pending.popleft(), decoder)
            if entry is not None and (self._letters is None or not self._letters.withhold(entry)):
                decoded.append(entry)
                size += entry.size_bytes
        return decoded

    def clear(self) -> None:
        """Drop all entries."""
        self._pending.clear()
        if self._assembler is not None:
            self._unacked_chunks.drop_incomplete()
            self._assembler.clear()
        if self._letters is not None:
            self._letters.clear()
        self.waits_for_schema = False
        self._position.forget_delivered()

    def stop(self) -> None:
        """Drop all entries, and take no more."""
        self._is_stopped = True
        self.clear()

    def drop_entries(self, positions: Container[tuple[int, int]]) -> None:
        """Drop the entries with these ledger and entry ids."""
        retained: deque[_PendingEntry] = deque()
        for pending in self._pending:
            if (pending.ledger_id, pending.entry_id) in positions:
                self._permits.count_handed_out(pending.message_count)
            else:
                retained.append(pending)
        self._pending = retained
        if self._letters is not None:
            self._letters.drop_entries(positions)

    def _decode(self, pending: _PendingEntry, decoder: PayloadDecoder | None) -> DeliveredEntry | None:
        """Return the decoded entry; None: it has no messages to hand out."""
        epoch, ledger_id, entry_id, redelivery_count, acknowledged, stored, count, chunks = pending
        try:
            entry = decode_delivered_entry(epoch, ledger_id, entry_id, redelivery_count, stored, decoder)
        except WireError as error:
            self._permits.count_handed_out(count)
            self._skip_undecodable(epoch, ledger_id, entry_id, error)
            return None
        entry.chunks = chunks
        if self._mixed_batches is not None:
            self._mixed_batches.check(self._topic, entry)
        if acknowledged:
            entry.skip_acknowledged(acknowledged)
        if entry.is_marker:
            self._acks.add_entry(epoch, ledger_id, entry_id)
        if self._position.first_wanted is not None:
            self._skip_before_start(entry)
        if self._skips_undecodable and decoder is not None and entry.remaining:
            self._skip_undecodable_values(entry, decoder)
        if len(entry.remaining) != count:
            self._permits.count_handed_out(count - len(entry.remaining))
        return entry if entry.remaining else None

    def _skip_before_start(self, entry: DeliveredEntry) -> None:
        unwanted = self._position.find_unwanted_rows(entry)
        if unwanted:
            self._skip_rows(entry, unwanted)

    def _skip_rows(self, entry: DeliveredEntry, rows: list[int]) -> None:
        skipped = set(rows)
        entry.remaining = [row for row in entry.remaining if row not in skipped]
        if self._durable:  # so that the entry is acknowledged as soon as the other rows are
            self._acks.add_rows(entry, rows)

    def _skip_undecodable_values(self, entry: DeliveredEntry, decoder: PayloadDecoder) -> None:
        rows, error = list(entry.remaining), None
        try:
            values = entry.decode_values()
        except SchemaUnavailable:
            return
        except DecodeError as of_all:
            is_logged, decoder.is_logged = decoder.is_logged, True  # once for the version, not for each of its entries
            error = None if is_logged else of_all
        else:
            rows = [row for row in rows if isinstance(values[row], DecodeError)]
            error = values[rows[0]] if rows else None
        if error is not None:
            text = "messages of entry %s:%s of %s (%d) can't be decoded, and are skipped: %s"
            log.error(text, entry.ledger_id, entry.entry_id, self._topic, len(rows), error)
        if rows:
            self._skip_rows(entry, rows)

    def _skip_undecodable(self, epoch: DeliveryEpoch, ledger_id: int, entry_id: int, error: WireError) -> None:
        if isinstance(error, UnsupportedEntry):
            text = (
                "entry %s:%s of %s is not handed out, and stays in the subscription for a client that can read it: %s"
            )
            log.error(text, ledger_id, entry_id, self._topic, error)
        else:
            text = "entry %s:%s of %s is damaged, and was skipped and acknowledged: %s"
            log.error(text, ledger_id, entry_id, self._topic, error)
            self._acks.add_entry(epoch, ledger_id, entry_id)


def _not_joined(metadata: MessageMetadata) -> PartOfMessage:
    return PartOfMessage(
        f"it is chunk {metadata.chunk_id} of {metadata.num_chunks_from_msg} of a message, and chunks are not joined on "
        "a Shared or Key_Shared subscription: use Exclusive or Failover"
    )


def _count_permits(stored: bytes) -> int:
    """Return the permits that an entry takes that can't be decoded, as far as can be read."""
    try:
        return get_batch_size(decode_entry(stored, verify=False).metadata) or 1
    except WireError:
        return 1


def _find_runs(delivery: Delivery, entry_ids: Sequence[int]) -> Iterator[EntryRun]:
    """Yield the delivered entries as runs with consecutive ids."""
    first = 0
    for number, gap in enumerate(delivery.gaps, 1):
        if gap:
            yield EntryRun(delivery.ledger_id, entry_ids[first], entry_ids[number - 1])
            first = number
    yield EntryRun(delivery.ledger_id, entry_ids[first], entry_ids[-1])
