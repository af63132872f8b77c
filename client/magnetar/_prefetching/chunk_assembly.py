"""The rules by which a consumer joins messages that were sent in chunks. No I/O.

A partition is delivered in order, so the chunks of a message come in order, mixed with those of other producers. Of a
message `a` with three chunks:

    a0 a1 a2           the message is complete, and belongs to the position of its last chunk
    a0 a1 a1 a2        the second a1 was resent: it is discarded
    a0 a1 a0 a1 a2     a first chunk restarts the message: the chunks before it are discarded
    a0 a2, or a1 a2    a chunk is missing: the message can never be complete, and all of it is discarded
    a0 a1              nothing for a minute: its producer is taken for lost, and the message is discarded

No consumer can read what is discarded, and it would stay in the subscription for ever, so it is acknowledged.

**Limits.** A partition has at most `max_messages` incomplete messages, and all partitions of a consumer together at
most `ChunkBudget.max_bytes` of chunks. Above that the message that began first is *dropped*: its chunks are not
acknowledged, and neither are those that still come, so that the message is redelivered later, unless the application
prefers to lose it (`acks_dropped`). Nothing is redelivered to a reader, which ends with an error when a dropped message
turns out to be complete (`on_lost`), instead of losing it. A dropped message that is never complete expires like
others: otherwise messages of lost producers would be redelivered for ever, and others dropped for them. Sizes that the
chunks declare are compared with what was received, never used to allocate memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Final, NamedTuple, Protocol

from magnetar_protos.entry_pb2 import BrokerEntryMetadata, MessageMetadata
from magnetar_wire.chunks import common_fields
from magnetar_wire.entry import Entry
from magnetar_wire.limits import MAX_UNCOMPRESSED_BYTES

__all__ = ["AssembledMessage", "ChunkAssembler", "ChunkBudget", "Discard", "Position"]

# The ids of a ledger and an entry.
Position = tuple[int, int]
# A hash of a message's producer and uuid, which may have thousands of bytes.
_Key = bytes

# Memory of decoded metadata, in sizes of the encoded ones.
_DECODED_FACTOR: Final = 4
_KEY_BYTES: Final = 16
# Memory of a chunk besides its bytes.
_CHUNK_OVERHEAD_BYTES: Final = 512
# Messages that are remembered as discarded or complete, and as dropped, and the chunks of those.
_MAX_ENDED: Final = 1_000
_MAX_DROPPED: Final = 10_000
_MAX_DROPPED_CHUNKS: Final = 50_000


class AssembledMessage(NamedTuple):
    entry: Entry
    # The positions of its chunks, in order.
    positions: tuple[Position, ...]


class Discard(Protocol):
    def __call__(
        self, positions: Sequence[Position], reason: str, acknowledge: bool, /, *, is_expected: bool = False
    ) -> object:
        """Handle chunks of a message that is not joined. `reason`: empty: nobody needs to know."""


class ChunkBudget:
    """The memory that the incomplete messages of one consumer use, in all of its partitions."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.used_bytes = 0
        # In the order in which they began.
        self.messages: dict[_Incomplete, ChunkAssembler] = {}


class _Incomplete:
    __slots__ = ("expires_at", "key", "metadata", "parts", "payload_bytes", "positions", "used_bytes")

    def __init__(self, key: _Key, metadata: MessageMetadata, expires_at: float) -> None:
        self.key = key
        # Of the first chunk.
        self.metadata = metadata
        self.parts: list[memoryview] = []
        self.positions: list[Position] = []
        self.payload_bytes = 0
        self.used_bytes = 0
        self.expires_at = expires_at


class _Dropped:
    """A message whose chunks are left unacknowledged."""

    __slots__ = ("expected", "expires_at", "positions")

    def __init__(self, positions: list[Position], expected: int, expires_at: float) -> None:
        self.positions = positions
        # A chunk with a higher number would leave a gap.
        self.expected = expected
        # Infinite: all chunks were there, so it can be read when it is redelivered, or by another client.
        self.expires_at = expires_at


class ChunkAssembler:
    """The incomplete messages of one topic or partition."""

    def __init__(
        self,
        budget: ChunkBudget,
        discard: Discard,
        *,
        max_messages: int,
        expire_after_s: float,
        acks_dropped: bool,
        on_lost: Callable[[Position], object] = lambda first: None,
    ) -> None:
        """`max_messages` and `expire_after_s`: 0: no limit. `on_lost` is called with the position of the first chunk of
        a dropped message when all of its chunks have come: it would have been handed out now."""
        self._budget = budget
        self._discard = discard
        self._max_messages = max_messages
        self._expire_after_s = expire_after_s
        self._acks_dropped = acks_dropped
        self._on_lost = on_lost
        # In the order in which they began.
        self._incomplete: dict[_Key, _Incomplete] = {}
        # Messages that are complete or discarded: later chunks are not needed.
        self._ended: dict[_Key, None] = {}
        self._dropped: dict[_Key, _Dropped] = {}
        self._dropped_chunks = 0
        # Some dropped messages are not remembered, so a chunk without its first one may belong to one of them.
        self._has_forgotten_dropped = False

    def __len__(self) -> int:
        return len(self._incomplete)

    def find_positions(self) -> list[list[Position]]:
        """Return the positions of the chunks of each incomplete message."""
        return [message.positions for message in self._incomplete.values()]

    def add_chunk(
        self,
        position: Position,
        metadata: MessageMetadata,
        broker: BrokerEntryMetadata | None,
        payload: memoryview,
        now: float,
    ) -> AssembledMessage | None:
        """Add the next chunk, and return the message that it completes."""
        key, chunk_id = _make_key(metadata), metadata.chunk_id
        if chunk_id == 0 and not self._begin_message(key, metadata, position, now):
            return None
        message = self._incomplete.get(key)
        if message is None:
            self._handle_headless(key, position, metadata, now)
            return None
        expected = len(message.parts)
        if chunk_id < expected:
            self._discard([position], "", True)
            return None
        message.positions.append(position)
        if problem := self._find_problem(message, metadata, payload):
            self._end_message(message, problem)
            return None
        # The payload is a view of the entry, so all of that stays in memory; the first one's metadata are decoded, too.
        entry_bytes = memoryview(payload.obj).nbytes
        used_bytes = entry_bytes + _CHUNK_OVERHEAD_BYTES
        if chunk_id == 0:
            used_bytes += _DECODED_FACTOR * (entry_bytes - len(payload))
        if not self._reserve(message, used_bytes):
            return None
        message.parts.append(payload)
        message.payload_bytes += len(payload)
        message.expires_at = now + self._expire_after_s
        if chunk_id < metadata.num_chunks_from_msg - 1:
            return None
        return self._complete_message(message, broker)

    def _begin_message(self, key: _Key, metadata: MessageMetadata, position: Position, now: float) -> bool:
        """Begin a message, or restart it. Return False if it is too large."""
        before = self._incomplete.get(key)
        if before is not None:
            self._remove(before)
            self._discard(before.positions, "", True)
        self._ended.pop(key, None)
        if (dropped := self._forget_dropped(key)) is not None and dropped.expires_at < math.inf:
            self._discard(dropped.positions, "", True)
        total = max(metadata.total_chunk_msg_size, metadata.uncompressed_size)
        most = min(MAX_UNCOMPRESSED_BYTES, self._budget.max_bytes)
        if total > most:
            self._remember_dropped(key, _Dropped([position], 1, math.inf))
            text = f"it has {total:,} bytes, above the limit of {most:,} (max_pending_chunked_bytes, and 134,217,728)"
            self._discard([position], text, False)
            return False
        message = self._incomplete[key] = _Incomplete(key, metadata, now + self._expire_after_s)
        self._budget.messages[message] = self
        if self._max_messages and len(self._incomplete) > self._max_messages:
            oldest = next(iter(self._incomplete.values()))
            self._drop_message(oldest, f"{self._max_messages} others are incomplete (max_pending_chunked_message)")
        return True

    def _handle_headless(self, key: _Key, position: Position, metadata: MessageMetadata, now: float) -> None:
        """Handle a chunk of which the first ones are not there."""
        dropped = self._dropped.get(key)
        if dropped is not None:
            self._add_to_dropped(key, dropped, position, metadata, now)
        elif key in self._ended:
            self._discard([position], "", True)
        else:
            self._remember_ended(key)
            text = f"it begins with chunk {metadata.chunk_id} of {metadata.num_chunks_from_msg}"
            # A reader, or a new subscription, may well begin in the middle of a message.
            self._discard([position], text, not self._has_forgotten_dropped, is_expected=True)

    def _add_to_dropped(
        self, key: _Key, dropped: _Dropped, position: Position, metadata: MessageMetadata, now: float
    ) -> None:
        chunk_id = metadata.chunk_id
        if chunk_id > dropped.expected and dropped.expires_at < math.inf:
            self._end_dropped(key, "a chunk of it is missing", position)
        elif chunk_id < dropped.expected:
            self._discard([position], "", True)
        else:
            dropped.expected = chunk_id + 1
            dropped.positions.append(position)
            self._dropped_chunks += 1
            is_lost = dropped.expires_at < math.inf and chunk_id == metadata.num_chunks_from_msg - 1
            if dropped.expires_at < math.inf:
                dropped.expires_at = math.inf if is_lost else now + self._expire_after_s
            self._discard([position], "", self._acks_dropped)
            self._limit_dropped()
            if is_lost:
                self._on_lost(dropped.positions[0])

    def _find_problem(self, message: _Incomplete, metadata: MessageMetadata, payload: memoryview) -> str:
        """Return why the message can't be completed by this chunk; empty: it can."""
        first, expected, chunk_id = message.metadata, len(message.parts), metadata.chunk_id
        if common_fields(metadata) != common_fields(first):
            return f"its chunks contradict each other: {common_fields(metadata)} and {common_fields(first)}"
        if not 0 <= chunk_id < first.num_chunks_from_msg:
            return f"it has a chunk {chunk_id} of {first.num_chunks_from_msg}"
        if chunk_id > expected:
            return f"chunk {expected} is missing in front of chunk {chunk_id} of {first.num_chunks_from_msg}"
        size, is_last = message.payload_bytes + len(payload), chunk_id == first.num_chunks_from_msg - 1
        if size > first.total_chunk_msg_size or (is_last and size < first.total_chunk_msg_size):
            return f"it declares {first.total_chunk_msg_size:,} bytes, and has {size:,} up to chunk {chunk_id}"
        return ""

    def _reserve(self, message: _Incomplete, used_bytes: int) -> bool:
        """Count the memory of a chunk, and drop other messages for it. False: its own message was dropped."""
        budget = self._budget
        while budget.used_bytes + used_bytes > budget.max_bytes:
            oldest, assembler = next(iter(budget.messages.items()))
            reason = f"incomplete messages have more than {budget.max_bytes:,} bytes (max_pending_chunked_bytes)"
            assembler._drop_message(oldest, reason)
            if oldest is message:
                return False
        budget.used_bytes += used_bytes
        message.used_bytes += used_bytes
        return True

    def _complete_message(self, message: _Incomplete, broker: BrokerEntryMetadata | None) -> AssembledMessage:
        self._remove(message)
        self._remember_ended(message.key)
        metadata = MessageMetadata()
        metadata.CopyFrom(message.metadata)
        metadata.ClearField("num_chunks_from_msg")  # the joined message is not a chunk
        return AssembledMessage(Entry(metadata, b"".join(message.parts), broker), tuple(message.positions))

    # Messages that are not completed.

    @property
    def next_due(self) -> float | None:
        """When the next message expires."""
        if not self._expire_after_s:
            return None
        due = [message.expires_at for message in self._incomplete.values()]
        due += [dropped.expires_at for dropped in self._dropped.values() if dropped.expires_at < math.inf]
        return min(due, default=None)

    def expire(self, now: float) -> None:
        """Discard messages of which no chunk has come for too long."""
        for message in [one for one in self._incomplete.values() if one.expires_at <= now]:
            count, chunks = len(message.parts), message.metadata.num_chunks_from_msg
            self._end_message(
                message, f"it has {count} of {chunks} chunks, and no more have come for {self._expire_after_s:g} s"
            )
        for key in [key for key, dropped in self._dropped.items() if dropped.expires_at <= now]:
            self._end_dropped(key, f"no more chunks of it have come for {self._expire_after_s:g} s")

    def postpone(self, now: float) -> None:
        """Restart the time until incomplete messages expire: chunks could not come."""
        for message in self._incomplete.values():
            message.expires_at = now + self._expire_after_s
        for dropped in self._dropped.values():
            if dropped.expires_at < math.inf:
                dropped.expires_at = now + self._expire_after_s

    def clear(self) -> None:
        """Forget all messages, because everything that is not acknowledged is redelivered."""
        for message in list(self._incomplete.values()):
            self._remove(message)
        self._ended.clear()
        self._dropped.clear()
        self._dropped_chunks = 0
        self._has_forgotten_dropped = False

    def _end_message(self, message: _Incomplete, reason: str) -> None:
        self._remove(message)
        self._remember_ended(message.key)
        self._discard(message.positions, reason, True)

    def _drop_message(self, message: _Incomplete, reason: str) -> None:
        self._remove(message)
        positions = message.positions
        is_complete = len(positions) == message.metadata.num_chunks_from_msg
        dropped = _Dropped(positions, len(positions), math.inf if is_complete else message.expires_at)
        self._remember_dropped(message.key, dropped)
        self._discard(message.positions, reason, self._acks_dropped)
        if is_complete:
            self._on_lost(positions[0])

    def _end_dropped(self, key: _Key, reason: str, *more: Position) -> None:
        dropped = self._forget_dropped(key)
        assert dropped is not None
        self._remember_ended(key)
        self._discard([*dropped.positions, *more], "" if self._acks_dropped else reason, True)

    def _remove(self, message: _Incomplete) -> None:
        del self._incomplete[message.key]
        del self._budget.messages[message]
        self._budget.used_bytes -= message.used_bytes

    def _remember_ended(self, key: _Key) -> None:
        self._ended[key] = None
        if len(self._ended) > _MAX_ENDED:
            del self._ended[next(iter(self._ended))]

    def _remember_dropped(self, key: _Key, dropped: _Dropped) -> None:
        self._dropped[key] = dropped
        self._dropped_chunks += len(dropped.positions)
        self._limit_dropped()

    def _limit_dropped(self) -> None:
        while len(self._dropped) > _MAX_DROPPED or self._dropped_chunks > _MAX_DROPPED_CHUNKS:
            self._forget_dropped(next(iter(self._dropped)))
            self._has_forgotten_dropped = True

    def _forget_dropped(self, key: _Key) -> _Dropped | None:
        dropped = self._dropped.pop(key, None)
        if dropped is not None:
            self._dropped_chunks -= len(dropped.positions)
        return dropped


def _make_key(metadata: MessageMetadata) -> _Key:
    named = f"{len(metadata.producer_name)} {metadata.producer_name}{metadata.uuid}"
    return blake2b(named.encode(), digest_size=_KEY_BYTES).digest()
