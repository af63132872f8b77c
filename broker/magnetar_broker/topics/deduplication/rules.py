"""Decides which entries of a producer are duplicates, by the ids that their metadata declare.

Theory of operation
-------------------
A message is identified by its producer's name and its sequence id. The ids of a name ascend, with or without gaps. So
one number per name is enough: the highest stored id. `Progress` has it. There are two of them:

    received   of one opening of a producer: what it has sent, and the log has accepted
    stored     of a name: what is persisted

An entry is compared with `received` only:

    above it              it is new: it is appended, and `received` becomes its highest id
    at or below it        it is a duplicate: its result is (-1,-1), as soon as all entries before it have theirs
    partly                a batch of which some messages are duplicates: the others are stored (partial_batch.py)

**Why the result of a duplicate needs no search for the first copy.** The entry with the first copy is stored, or it is
in the same producer's queue, before the duplicate. A producer that takes over a name is opened after all entries of its
predecessor are decided, and begins with `received` := `stored`. Results are given in the order of the queue. When it is
the duplicate's turn, everything at or below `received` is therefore persisted, or the producer has ended:

- If the log accepts an entry no more, because the topic is full, closed or terminated, the producer stops. No entry
  behind that one is stored, and none is answered: its client reconnects and resends them.
- If a ledger fails, the log closes it, and adds the same bytes to the next one before anything else. Producers don't
  notice. Only if the topic is lost do pending entries fail; then all of its producers end, and the next owner reads
  from the log what was stored.
- An entry that is refused, because it is invalid, was never accepted, and does not change `received`. If its client may
  send it again, the producer ends there (see below): an entry behind it would make it a duplicate that is not stored.

    queue of p, stored 4, received 4.   p sends 5 6 5 7:   5 new · 6 new · 5 waits · 7 new
    the log stores 5 and 6: results of 5, 6, then (-1,-1) for 5; then that of 7
    the log refuses 6: result of 5; the producer ends. It is reopened with received 5, and sends 6 5 7: 5 is a duplicate

So there is no moment at which `received` is too high while an add is resent, and no second failure that resets it again
behind the resent add (CHK-64): `received` belongs to one opening, and is never reset.

**Refused entries.** Whether entries behind one may be stored depends on who sends it again:

    nobody, by itself     too large, or not supported: its library reports the error to the application, and goes on
    the library           CHECKSUM_ERROR: it compares its own copy, and resends that with all entries behind it. So none
                          of these is stored before: the producer ends, after the refusal. The same for a chunk, since
                          its message must not become stored by the last chunk alone
    the application       a batch that is partly a duplicate, and can't be split. It is neither stored nor not stored,
                          so it has no result: the producer ends. Its library resends it, with everything behind it,
                          until the messages time out. So the application learns that none of them is stored

An application that gives ids itself, and sends a message again that was refused, gives it a new id if it has sent
others since: with the old one it is a duplicate by definition.

**Batches.** With `highest_sequence_id` the entry has the ids from `sequence_id` to that. Without it the entry's own id
alone decides (CHK-65). pulsar-client 3.13 sends no batch with it. Its key-based batches have ids that interleave, each
batch its lowest, in ascending order; those of the Java client have their highest:

    keys a b a b a, ids 0 1 2 3 4:   batch of a: 0 2 4, id 0 · batch of b: 1 3, id 1

If the first one was taken for 0 … 4, the second one would be lost. The reverse is harmless: ids above the entry's own
one are not known as stored, so a client that packs the same messages into other batches stores them twice.

**Chunks** of a message have its id in common. A chunk that is not the last one leaves `sequence_id` as it is, and is
remembered as the group's last one. A crash may cut a group off. Then the client resumes it, and the chunks that are
stored are duplicates; or it sends the message again, as another group: all of its chunks are stored, and consumers drop
the first group. A group is identified by a hash of its uuid, its number of chunks and its total size: the uuid of stock
clients is made of the producer's name and the id, and is the same in both cases.

**What entries may lie about.** A name has one producer at a time, so false ids harm only messages of that name.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, NamedTuple

from magnetar_protos.entry_pb2 import MessageMetadata

__all__ = ["NOTHING_STORED", "Decision", "EntryIds", "Group", "Progress", "decide", "get_entry_ids", "record"]

NOTHING_STORED: Final = -1
_MAX_SEQUENCE_ID: Final = 2**63 - 1
_GROUP_HASH_BYTES: Final = 8


class Group(NamedTuple):
    """The chunks of one message up to this one."""

    sequence_id: int
    # Identifies the message among those with this id.
    message: int
    chunk: int


class EntryIds(NamedTuple):
    # The same unless it is a batch that declares its highest id.
    lowest: int
    highest: int
    # Of a chunk that is not the last one, and of the last one. None: the entry has whole messages.
    group: Group | None = None
    is_last_chunk: bool = False


class Decision(enum.Enum):
    NEW = enum.auto()
    DUPLICATE = enum.auto()
    PARTIAL = enum.auto()


@dataclass(slots=True)
class Progress:
    """Which messages of one name are received, or stored."""

    sequence_id: int = NOTHING_STORED
    # The last message of which some chunks are, but not the last one.
    group: Group | None = None

    def copy(self) -> Progress:
        return Progress(self.sequence_id, self.group)


def decide(progress: Progress, ids: EntryIds) -> Decision:
    """Compare an entry with what was received before."""
    if ids.highest <= progress.sequence_id:
        return Decision.DUPLICATE
    if ids.group is not None:
        known = progress.group
        if known is not None and known[:2] == ids.group[:2] and ids.group.chunk <= known.chunk:
            return Decision.DUPLICATE
        return Decision.NEW
    return Decision.NEW if ids.lowest > progress.sequence_id else Decision.PARTIAL


def record(progress: Progress, ids: EntryIds) -> None:
    """Record an entry that was received, or stored. They are recorded in the order of the log."""
    if ids.group is None or ids.is_last_chunk:
        progress.sequence_id = max(progress.sequence_id, ids.highest)
    if ids.group is not None:
        progress.group = None if ids.is_last_chunk else ids.group


def get_entry_ids(metadata: MessageMetadata) -> EntryIds:
    """Return the ids that an entry with these metadata declares. Those of an entry in the log may be anything."""
    own = min(metadata.sequence_id, _MAX_SEQUENCE_ID)
    if metadata.num_chunks_from_msg > 1:
        group = Group(own, _hash_group(metadata), metadata.chunk_id)
        return EntryIds(own, own, group, metadata.chunk_id == metadata.num_chunks_from_msg - 1)
    if not metadata.HasField("num_messages_in_batch"):
        return EntryIds(own, own)
    return EntryIds(own, max(own, min(metadata.highest_sequence_id, _MAX_SEQUENCE_ID)))


def _hash_group(metadata: MessageMetadata) -> int:
    named = f"{metadata.num_chunks_from_msg} {metadata.total_chunk_msg_size} {metadata.uuid}"
    return int.from_bytes(blake2b(named.encode(), digest_size=_GROUP_HASH_BYTES).digest(), "big")
