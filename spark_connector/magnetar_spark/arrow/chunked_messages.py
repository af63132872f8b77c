"""Joins messages that are stored in several entries: collects their chunks until a message is complete.

A message belongs to the position of its last chunk. So a slice has the messages whose last chunks are in it, and chunks
at its end without their last one belong to another slice. The chunks of a message are stored in order, mixed with those
of other producers. A producer that lost its connection may have sent some of them twice:

    a0 a1 a1 a2        the second a1 is ignored
    a0 a1 a0 a1 a2     a first chunk restarts the message
    a0 a1 a2 a1 a2     chunks after the last one of a complete message are ignored, unless a first chunk comes
    a0 a2              a chunk is missing: the message is never complete, unless a first chunk comes

A message whose first chunk is before the slice is *headless*. The chunks before the slice determine the meaning of
those in the slice. If its last chunk is in the slice, the message is completed backwards when the whole slice was read,
by one pass for all of these messages: back to the nearest first chunk, from which the rules above determine which
chunks were there when the slice began. A last chunk on that way means that the message was complete before. So the
result does not depend on how a log is split into slices.

The chunks of incomplete messages use at most `max_bytes` of memory. If there is no capacity, the message that began
first is dropped, since a message that nobody finishes would otherwise take the capacity of others for ever. This is an
error only if its last chunk is read. Payloads that are not decoded, because they are encrypted or no value is
requested, are not stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final, TypeAlias

from magnetar_protos.entry_pb2 import MessageMetadata
from magnetar_wire.entry import Entry, decode_entry, decode_entry_metadata
from magnetar_wire.errors import MalformedEntry, TooLarge, WireError

__all__ = ["ChunkedMessages", "CompleteMessage", "EntryPosition", "NoChunkCapacity"]

# The ids of a ledger and an entry.
EntryPosition: TypeAlias = tuple[int, int]
# Identifies a message: a digest of its producer's name and its uuid, which may be long.
_MessageKey: TypeAlias = bytes

# Limits of the messages that are remembered as ended or dropped. A chunk of a forgotten one looks like that of a
# headless message.
_MAX_ENDED: Final = 10_000
_MAX_DROPPED: Final = 100_000
# The expected chunk of a dropped headless message: its missing chunks may be before the slice.
_NO_GAP_KNOWN: Final = 2**31
_KEY_BYTES: Final = 16
# Memory for a stored chunk, besides its payload and the size of its metadata.
CHUNK_OVERHEAD_BYTES: Final = 2_048


class NoChunkCapacity(TooLarge):
    """A message whose chunks were dropped before it was complete, since there was no capacity for them."""


@dataclass(slots=True)
class CompleteMessage:
    # The position of the last chunk.
    position: EntryPosition
    chunks: list[Entry]


@dataclass(slots=True)
class _IncompleteMessage:
    # A chunk with a higher number would leave a gap.
    expected: int
    # All chunks below this one must be before the slice, in order; 0 if the first chunk is in the slice.
    needed: int
    # The number of the message in the order of their beginnings.
    number: int
    chunks: dict[int, Entry] = field(default_factory=dict)
    bytes: int = 0
    last_position: EntryPosition = (-1, -1)
    # The last chunk, without its payload, of a message that is completed backwards.
    last: Entry | None = None
    # The ids of its chunks that were found before the slice, the nearest first.
    earlier: list[int] = field(default_factory=list)

    def count_earlier(self) -> int:
        """Return how many chunks were there, in order, when the slice began. `earlier` goes back to a first chunk."""
        expected = 0
        for chunk_id in reversed(self.earlier):
            if chunk_id > expected:
                return 0
            expected = max(expected, chunk_id + 1)
        return expected

    def complete(self) -> CompleteMessage:
        return CompleteMessage(self.last_position, [self.chunks[chunk_id] for chunk_id in sorted(self.chunks)])


class ChunkedMessages:
    def __init__(
        self,
        max_bytes: int,
        on_dropped: Callable[[EntryPosition, Entry, WireError], None],
        on_damaged: Callable[[EntryPosition, WireError], None],
        *,
        with_payloads: bool = True,
    ) -> None:
        """`on_dropped` is called with the last chunk of a message that is dropped after that chunk was read;
        `on_damaged` for entries before the slice that can't be read."""
        self._max_bytes = max_bytes
        self._on_dropped = on_dropped
        self._on_damaged = on_damaged
        self._with_payloads = with_payloads
        self._begun = 0
        # Invariant: the sum of `bytes` of all incomplete messages.
        self.stored_bytes = 0
        # Messages whose last chunk was not read, in the order of their beginnings.
        self._open: dict[_MessageKey, _IncompleteMessage] = {}
        # Messages whose last chunk was read, and whose first ones are before the slice.
        self._headless: dict[_MessageKey, _IncompleteMessage] = {}
        self._ended: dict[_MessageKey, None] = {}
        # Messages that were dropped before their last chunk was read, with the next expected chunk: a message with a
        # gap is no error.
        self._dropped: dict[_MessageKey, int] = {}

    def add_chunk(self, position: EntryPosition, chunk: Entry, *, in_range: bool = True) -> CompleteMessage | None:
        """Add a chunk, and return the message that it completes. A chunk that is not `in_range` is right before the
        range: it may be a part of a message, but no message ends with it. Raises WireError, and forgets the message."""
        metadata = chunk.metadata
        key, chunk_id, chunks = _make_key(metadata), metadata.chunk_id, metadata.num_chunks_from_msg
        if not 0 <= chunk_id < chunks:
            raise MalformedEntry(
                f"it is declared as chunk {chunk_id} of {chunks} of message {metadata.uuid!r}, which is not possible"
            )
        if chunk_id == 0:
            self._remove(self._open, key)
            self._ended.pop(key, None)
            self._dropped.pop(key, None)
        elif key in self._ended:
            return None
        elif key in self._dropped:
            self._skip_dropped(key, chunk_id, ends=in_range and chunk_id == chunks - 1)
            return None
        message = self._open.get(key)
        if message is None:
            self._begun += 1
            message = self._open[key] = _IncompleteMessage(chunk_id, chunk_id, self._begun)
        if chunk_id > message.expected:
            if not message.needed:
                self._end(key)
                return None
            message.needed = chunk_id
        message.expected = max(message.expected, chunk_id + 1)
        if chunk_id not in message.chunks:
            self._store(message, chunk)
        if key in self._dropped:
            self._skip_dropped(key, chunk_id, ends=in_range and chunk_id == chunks - 1)
            return None
        if chunk_id < chunks - 1:
            return None
        message.last_position = position
        message.last = _remove_payload(chunk)
        if in_range and message.needed:
            self._headless[key] = self._open.pop(key)
            self._end(key)
            return None
        self._end(key)
        return message.complete() if in_range else None

    def complete_headless(
        self, read_earlier: Callable[[], Iterable[tuple[int, int, bytes]]]
    ) -> Iterator[CompleteMessage]:
        """Yield the headless messages whose first chunks are among the entries before the slice, which `read_earlier`
        yields backwards. Messages without their last chunk are dropped."""
        for key in list(self._open):
            self._remove(self._open, key)
        if not self._headless:
            return
        for ledger_id, entry_id, stored in read_earlier():
            try:
                message = self._add_earlier(stored)
            except WireError as error:
                self._on_damaged((ledger_id, entry_id), error)
                continue
            if message is not None:
                yield message
            if not self._headless:
                return

    def drop_headless(self) -> list[EntryPosition]:
        """Drop the headless messages whose first chunks were not found. Return the positions of their last chunks."""
        positions = [message.last_position for message in self._headless.values()]
        for key in list(self._headless):
            self._remove(self._headless, key)
        return positions

    def _add_earlier(self, stored: bytes) -> CompleteMessage | None:
        """Add an entry that is before all others, and return the message that it completes."""
        try:
            _, metadata = decode_entry_metadata(stored)
        except (MalformedEntry, TooLarge):  # it is not a chunk of these messages
            return None
        chunk_id, key = metadata.chunk_id, _make_key(metadata)
        message = self._headless.get(key) if metadata.num_chunks_from_msg > 1 else None
        if message is None:
            return None
        if not 0 <= chunk_id < metadata.num_chunks_from_msg - 1:
            self._remove(self._headless, key)
            return None
        message.earlier.append(chunk_id)
        if chunk_id not in message.chunks:
            try:
                self._store(message, decode_entry(stored))
            except WireError:
                self._remove(self._headless, key)
                raise
        if chunk_id or key not in self._headless:  # `_store` may have dropped it
            return None
        self._remove(self._headless, key)
        return message.complete() if message.count_earlier() >= message.needed else None

    def _store(self, message: _IncompleteMessage, chunk: Entry) -> None:
        """Store the chunk, and drop other messages for it. If its own message is the next one to drop, drop that."""
        if not self._with_payloads or chunk.metadata.encryption_keys:
            chunk = _remove_payload(chunk)
        size = len(chunk.payload) + chunk.metadata.ByteSize() + CHUNK_OVERHEAD_BYTES
        while self.stored_bytes + size > self._max_bytes:
            if self._drop_oldest() is message:
                return
        self.stored_bytes += size
        message.bytes += size
        message.chunks[chunk.metadata.chunk_id] = chunk

    def _drop_oldest(self) -> _IncompleteMessage:
        messages = min(
            (messages for messages in (self._open, self._headless) if messages),
            key=lambda messages: next(iter(messages.values())).number,
        )
        key, message = next(iter(messages.items()))
        self._remove(messages, key)
        if messages is self._headless:
            assert message.last is not None
            self._on_dropped(message.last_position, message.last, self._no_capacity())
        else:
            self._dropped[key] = _NO_GAP_KNOWN if message.needed else message.expected
            if len(self._dropped) > _MAX_DROPPED:
                del self._dropped[next(iter(self._dropped))]
        return message

    def _skip_dropped(self, key: _MessageKey, chunk_id: int, *, ends: bool) -> None:
        """Skip a chunk of a dropped message. Raises NoChunkCapacity for the last chunk of a message without a gap."""
        expected = self._dropped[key]
        if chunk_id > expected:
            del self._dropped[key]
            self._end(key)
            return
        self._dropped[key] = max(expected, chunk_id + 1)
        if ends:
            del self._dropped[key]
            self._end(key)
            raise self._no_capacity()

    def _no_capacity(self) -> NoChunkCapacity:
        return NoChunkCapacity(
            f"incomplete messages in chunks may use {self._max_bytes:,} bytes together; this one was "
            "dropped for others, or is too large by itself"
        )

    def _remove(self, messages: dict[_MessageKey, _IncompleteMessage], key: _MessageKey) -> None:
        message = messages.pop(key, None)
        if message is not None:
            self.stored_bytes -= message.bytes

    def _end(self, key: _MessageKey) -> None:
        """Ignore all further chunks of the message but a first one."""
        self._remove(self._open, key)
        self._ended[key] = None
        if len(self._ended) > _MAX_ENDED:
            del self._ended[next(iter(self._ended))]


def _remove_payload(chunk: Entry) -> Entry:
    return Entry(chunk.metadata, b"", chunk.broker)


def _make_key(metadata: MessageMetadata) -> _MessageKey:
    digest = blake2b(metadata.producer_name.encode(), digest_size=_KEY_BYTES)
    digest.update(b"\0" + metadata.uuid.encode())
    return digest.digest()
