"""Messages that are several entries: their chunks, collected until a message is whole.

A message is where its last chunk is. A slice of a log so holds the messages whose last chunks are in it, and chunks
without a last one at its end are another slice's. The chunks of a message come in order, those of different producers
mixed. Of what a producer sent again after it had lost its connection some is there twice:

    a0 a1 a1 a2        the second a1 says nothing new
    a0 a1 a0 a1 a2     a first chunk begins the message anew
    a0 a1 a2 a1 a2     what follows a whole message's last chunk, and is no first one, is nothing
    a0 a2              one is missing between: never whole, whatever follows but a first one

A message whose first chunk is in front of the slice is *headless* here: what else is there in front decides what its
chunks in the slice are. If its last one is in the slice it is completed backwards when all of the slice was read, in
one walk for all such messages: back to its nearest first chunk, from where the rule above says how far it had come when
the slice began. A last chunk on the way there means that the message was whole before. So it does not depend on where a
log is cut into slices which messages there are.

Chunks are held in memory until their message is whole, `max_bytes` of them at most: where there is no capacity, the
message that was begun longest ago is given up, since one that nobody ends would otherwise take the place of others for
good. That is an error only if its last chunk is there. Payloads that nobody will decode, of encrypted messages or where
no value is asked for, are not held.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final

from magnetar_protos.entry_pb2 import MessageMetadata
from magnetar_wire.entry import Entry, decode_entry, decode_entry_metadata
from magnetar_wire.errors import MalformedEntry, TooLarge, WireError

__all__ = ["ChunkGroups", "NoChunkCapacity", "Place", "Whole"]

Place = tuple[int, int]
# Of a message, by its producer and its own: a digest, which is short however long those are.
_Name = bytes

# Of messages that were whole, or can't be: what comes of them yet is told by it from a headless message.
_MAX_ENDED: Final = 10_000
_MAX_GIVEN_UP: Final = 100_000
# Of one whose first chunk is in front of the slice: the chunks between may be there, too.
_NO_GAP_KNOWN: Final = 2**31
_NAME_BYTES: Final = 16
# Of a chunk that is kept, besides its payload and as many bytes as its metadata has.
CHUNK_OVERHEAD_BYTES: Final = 2_048


class NoChunkCapacity(TooLarge):
    """A message whose chunks were dropped before it was whole, since there was no capacity for them."""


@dataclass(slots=True)
class Whole:
    """All chunks of a message, and where the last one is."""

    place: Place
    chunks: list[Entry]


@dataclass(slots=True)
class _Group:
    # What must come next at the latest.
    expected: int
    # Every chunk below this one must be in front of the slice, in order; of a message whose first one is in it, 0.
    needed: int
    # The lower, the longer ago it was begun.
    began: int
    chunks: dict[int, Entry] = field(default_factory=dict)
    bytes: int = 0
    last_place: Place = (-1, -1)
    # The last chunk, without its payload, of a message that is completed backwards.
    last: Entry | None = None
    # Of the chunks that were met in front of the slice, the nearest first.
    earlier: list[int] = field(default_factory=list)

    @property
    def had_come(self) -> int:
        """How many chunks were there, in order, when the slice began: `earlier` goes back to a first one."""
        expected = 0
        for chunk_id in reversed(self.earlier):
            if chunk_id > expected:
                return 0
            expected = max(expected, chunk_id + 1)
        return expected

    def whole(self) -> Whole:
        return Whole(self.last_place, [self.chunks[chunk_id] for chunk_id in sorted(self.chunks)])


class ChunkGroups:
    def __init__(
        self,
        max_bytes: int,
        on_given_up: Callable[[Place, Entry, WireError], None],
        on_damaged: Callable[[Place, WireError], None],
        *,
        with_payloads: bool = True,
    ) -> None:
        """`on_given_up` is called for messages that are given up after their last chunk was read, with that chunk;
        `on_damaged` for entries in front of the slice that can't be read."""
        self._max_bytes = max_bytes
        self._on_given_up = on_given_up
        self._on_damaged = on_damaged
        self._with_payloads = with_payloads
        self._begun = 0
        # Invariant: as many as all groups' chunks have.
        self.held_bytes = 0
        self._open: dict[_Name, _Group] = {}
        # Those whose last chunk is there, and whose first ones are not.
        self._headless: dict[_Name, _Group] = {}
        self._ended: dict[_Name, None] = {}
        # Given up before their last chunk had come, with what must come next at the latest: of a message that has a gap
        # no error is due.
        self._given_up: dict[_Name, int] = {}

    @property
    def open_messages(self) -> int:
        """The number of messages whose first chunk is there and whose last one is not."""
        return len(self._open)

    def add(self, place: Place, chunk: Entry, *, counts: bool = True) -> Whole | None:
        """The message that this chunk makes whole. One that does not count is in front of the range: it can be a part
        of a message that does, but no message ends with it. Raises WireError, and forgets the message then."""
        metadata = chunk.metadata
        name, chunk_id, chunks = _name(metadata), metadata.chunk_id, metadata.num_chunks_from_msg
        if not 0 <= chunk_id < chunks:
            raise MalformedEntry(
                f"it is declared as chunk {chunk_id} of {chunks} of message {metadata.uuid!r}, which is not possible"
            )
        if chunk_id == 0:
            self._forget(self._open, name)
            self._ended.pop(name, None)
            self._given_up.pop(name, None)
        elif name in self._ended:
            return None
        elif name in self._given_up:
            self._pass_given_up(name, chunk_id, ends=counts and chunk_id == chunks - 1)
            return None
        group = self._open.get(name)
        if group is None:
            self._begun += 1
            group = self._open[name] = _Group(chunk_id, chunk_id, self._begun)
        if chunk_id > group.expected:
            if not group.needed:
                self._end(name)
                return None
            group.needed = chunk_id
        group.expected = max(group.expected, chunk_id + 1)
        if chunk_id not in group.chunks:
            self._keep(group, chunk)
        if name in self._given_up:
            self._pass_given_up(name, chunk_id, ends=counts and chunk_id == chunks - 1)
            return None
        if chunk_id < chunks - 1:
            return None
        group.last_place = place
        group.last = _without_payload(chunk)
        if counts and group.needed:
            self._headless[name] = self._open.pop(name)
            self._end(name)
            return None
        self._end(name)
        return group.whole() if counts else None

    def complete(self, earlier: Callable[[], Iterable[tuple[int, int, bytes]]]) -> Iterator[Whole]:
        """The messages of which the rest is found backwards from the slice's start, nearest first. Those of which it is
        not are dropped."""
        for name in list(self._open):
            self._forget(self._open, name)
        if not self._headless:
            return
        for ledger_id, entry_id, stored in earlier():
            try:
                whole = self._before(stored)
            except WireError as error:
                self._on_damaged((ledger_id, entry_id), error)
                continue
            if whole is not None:
                yield whole
            if not self._headless:
                return

    def drop_headless(self) -> list[Place]:
        """The last chunks of the messages of which the rest was not found."""
        places = [group.last_place for group in self._headless.values()]
        for name in list(self._headless):
            self._forget(self._headless, name)
        return places

    def _before(self, stored: bytes) -> Whole | None:
        """The message that is whole with the entry, which is in front of all that was looked at."""
        try:
            _, metadata = decode_entry_metadata(stored)
        except (MalformedEntry, TooLarge):  # whatever it is, it is no chunk of these
            return None
        chunk_id, name = metadata.chunk_id, _name(metadata)
        group = self._headless.get(name) if metadata.num_chunks_from_msg > 1 else None
        if group is None:
            return None
        if not 0 <= chunk_id < metadata.num_chunks_from_msg - 1:
            self._forget(self._headless, name)
            return None
        group.earlier.append(chunk_id)
        if chunk_id not in group.chunks:
            try:
                self._keep(group, decode_entry(stored))
            except WireError:
                self._forget(self._headless, name)
                raise
        if chunk_id or name not in self._headless:  # it may have been given up just now
            return None
        self._forget(self._headless, name)
        return group.whole() if group.had_come >= group.needed else None

    def _keep(self, group: _Group, chunk: Entry) -> None:
        """Holds the chunk, unless its own message had to be given up."""
        if not self._with_payloads or chunk.metadata.encryption_keys:
            chunk = _without_payload(chunk)
        size = len(chunk.payload) + chunk.metadata.ByteSize() + CHUNK_OVERHEAD_BYTES
        while self.held_bytes + size > self._max_bytes:
            if self._give_up_oldest() is group:
                return
        self.held_bytes += size
        group.bytes += size
        group.chunks[chunk.metadata.chunk_id] = chunk

    def _give_up_oldest(self) -> _Group:
        groups = min(
            (groups for groups in (self._open, self._headless) if groups),
            key=lambda groups: next(iter(groups.values())).began,
        )
        name, group = next(iter(groups.items()))
        self._forget(groups, name)
        if groups is self._headless:
            assert group.last is not None
            self._on_given_up(group.last_place, group.last, self._too_large())
        else:
            self._given_up[name] = _NO_GAP_KNOWN if group.needed else group.expected
            if len(self._given_up) > _MAX_GIVEN_UP:
                del self._given_up[next(iter(self._given_up))]
        return group

    def _pass_given_up(self, name: _Name, chunk_id: int, *, ends: bool) -> None:
        """Raises NoChunkCapacity at the end of the message."""
        expected = self._given_up[name]
        if chunk_id > expected:
            del self._given_up[name]
            self._end(name)
            return
        self._given_up[name] = max(expected, chunk_id + 1)
        if ends:
            del self._given_up[name]
            self._end(name)
            raise self._too_large()

    def _too_large(self) -> NoChunkCapacity:
        return NoChunkCapacity(
            f"incomplete messages in chunks may use {self._max_bytes:,} bytes together; this one was "
            "dropped for others, or is too large by itself"
        )

    def _forget(self, groups: dict[_Name, _Group], name: _Name) -> None:
        group = groups.pop(name, None)
        if group is not None:
            self.held_bytes -= group.bytes

    def _end(self, name: _Name) -> None:
        """Nothing that comes of the message but its first chunk says anything any more."""
        self._forget(self._open, name)
        self._ended[name] = None
        if len(self._ended) > _MAX_ENDED:
            del self._ended[next(iter(self._ended))]


def _without_payload(chunk: Entry) -> Entry:
    return Entry(chunk.metadata, b"", chunk.broker)


def _name(metadata: MessageMetadata) -> _Name:
    digest = blake2b(metadata.producer_name.encode(), digest_size=_NAME_BYTES)
    digest.update(b"\0" + metadata.uuid.encode())
    return digest.digest()
