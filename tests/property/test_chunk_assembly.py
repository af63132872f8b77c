"""Messages in chunks at a consumer: mixed, resent, restarted and lost chunks, redeliveries, and both kinds of
acknowledgement, compared with the rule as one reads it.
"""

from __future__ import annotations

import random
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar._acknowledging.pending_acks import EpochTracker, PendingAcks
from magnetar._acknowledging.unacked_chunks import EntryRun, UnackedChunks
from magnetar._message import DeliveryEpoch
from magnetar._prefetching.chunk_assembly import AssembledMessage, ChunkAssembler, ChunkBudget, Position
from magnetar_protos.entry_pb2 import MessageMetadata
from tests.examples import examples

# (message, chunk, chunks); of a message that is one entry (message, 0, 1).
LogEntry = tuple[str, int, int]

PER_LEDGER = 7
CHUNK_BYTES = 3


def position_of(at: int) -> Position:
    return at // PER_LEDGER, at % PER_LEDGER


def index_of(position: Position) -> int:
    return position[0] * PER_LEDGER + position[1]


def metadata_of(name: str, chunk: int, chunks: int, **fields: Any) -> MessageMetadata:
    values: dict[str, Any] = {"uuid": name, "chunk_id": chunk, "num_chunks_from_msg": chunks}
    values |= {"total_chunk_msg_size": CHUNK_BYTES * chunks, "producer_name": "p", "sequence_id": 1, "publish_time": 1}
    return MessageMetadata(**values | fields)


def make_log(chance: random.Random, messages: int) -> list[LogEntry]:
    """The chunks of messages, several at a time, some of them resent, restarted, lost or never sent."""
    waiting = []
    for number in range(messages):
        chunks = chance.choice((1, 1, 2, 3, 5))
        waiting.append([(str(number), chunk, chunks) for chunk in range(chunks)])
    log: list[LogEntry] = []
    begun: list[list[LogEntry]] = []
    while waiting or begun:
        while waiting and len(begun) < 3:
            begun.append(waiting.pop(0))
        entries = chance.choice(begun)
        what = chance.random()
        name, chunk, chunks = entries[0]
        if what < 0.04 and chunks > 1:
            entries.pop(0)  # lost
        elif what < 0.06:
            entries.clear()  # its producer dies
        elif what < 0.12 and chunks > 1:
            resent = chance.randrange(chunk + 1)
            entries[:] = [(name, again, chunks) for again in range(resent, chunks)]
        else:
            log.append(entries.pop(0))
        begun = [one for one in begun if one]
    return log


def find_whole(log: list[LogEntry], start: int) -> list[tuple[str, list[int]]]:
    """The messages in the order of their last entries, and where their entries are: the rule as one reads it."""
    found: list[tuple[str, list[int]]] = []
    begun: dict[str, list[int]] = {}
    for at, (name, chunk, chunks) in enumerate(log):
        if at < start:
            continue
        if chunk == 0:
            begun[name] = []
        if name not in begun or chunk < len(begun[name]):
            continue
        if chunk > len(begun[name]):
            del begun[name]
            continue
        begun[name].append(at)
        if chunk == chunks - 1:
            found.append((name, begun.pop(name)))
    return found


class World:
    """A log, a cursor, and a consumer whose application acknowledges what it likes."""

    def __init__(self, seed: int, max_messages: int) -> None:
        self.chance = random.Random(seed)
        self.log = make_log(self.chance, self.chance.randrange(1, 12))
        self.start = self.chance.choice((0, self.chance.randrange(len(self.log) + 1)))
        self.whole = dict(find_whole(self.log, self.start))
        self.chunks = UnackedChunks()
        self.acks = PendingAcks(chunks=self.chunks)
        self.epochs = EpochTracker()
        self.epochs.start_opening(0, 0)
        self.epoch = DeliveryEpoch(None, 1, 0)
        self.budget = ChunkBudget(10_000)
        self.assembler = ChunkAssembler(
            self.budget, self._discard, max_messages=max_messages, expire_after_s=60, acks_dropped=False
        )
        self.chunks.find_incomplete = self.assembler.find_positions
        self.read = self.start
        # The cursor: entries that are acknowledged; those that the client has discarded.
        self.acknowledged: set[int] = set(range(self.start))
        self.discarded: set[int] = set()
        # The last position of each message that was handed out, and the messages that the application acknowledged.
        self.handed_out: dict[str, int] = {}
        self.wanted: set[str] = set()

    def _discard(self, positions: Any, reason: str, acknowledge: bool, /, *, is_expected: bool = False) -> None:
        if acknowledge:
            self.discarded.update(map(index_of, positions))
            self.chunks.remove_dropped(positions)
            self.acks.add_entries(self.epoch, positions)
        else:
            self.chunks.add_dropped(positions)

    def deliver(self, count: int) -> None:
        for _ in range(count):
            while self.read < len(self.log) and self.read in self.acknowledged:
                self.read += 1
            if self.read >= len(self.log):
                return
            at, self.read = self.read, self.read + 1
            self._take(at, *self.log[at])
            self.chunks.add_delivered(EntryRun(*position_of(at), position_of(at)[1]))

    def _take(self, at: int, name: str, chunk: int, chunks: int) -> None:
        if chunks == 1:
            self.handed_out[name] = at
            return
        payload = memoryview(bytes([chunk]) * CHUNK_BYTES)
        self.chunks.remove_dropped([position_of(at)])
        assembled = self.assembler.add_chunk(position_of(at), metadata_of(name, chunk, chunks), None, payload, 0.0)
        if assembled is not None:
            assert assembled.entry.payload == b"".join(bytes([one]) * CHUNK_BYTES for one in range(chunks))
            assert list(map(index_of, assembled.positions)) == self.whole[name]
            self.chunks.add_message(assembled.positions)
            self.handed_out[name] = at

    def redeliver(self) -> None:
        self.send_acks()
        self.chunks.drop_incomplete()
        self.assembler.clear()
        self.read = self.start

    def acknowledge(self) -> None:
        left = [name for name in self.handed_out if name not in self.wanted]
        if not left:
            return
        name = self.chance.choice(left)
        last = self.handed_out[name]
        if self.chance.random() < 0.5:
            self.wanted.add(name)
            self.acks.add_entry(self.epoch, *position_of(last))
        else:
            self.wanted.update(one for one, at in self.handed_out.items() if at <= last)
            self.acks.add_cumulative(self.epoch, *position_of(last), -1, 0)

    def send_acks(self) -> None:
        while (request := self.acks.pop_request(1, self.epochs)) is not None:
            for run in request.entries:
                first = 0 if request.cumulative else index_of((run.ledger_id, run.first_entry_id))
                self.acknowledged.update(range(first, index_of((run.ledger_id, run.last_entry_id)) + 1))
        wanted = {at for name in self.wanted for at in self.whole[name]}
        assert wanted <= self.acknowledged
        assert self.acknowledged <= wanted | self.discarded | set(range(self.start))


@examples(400)
@given(seed=st.integers(0, 2**32), max_messages=st.sampled_from((0, 1, 2)))
def test_each_message_is_handed_out_whole_until_it_is_acknowledged(seed: int, max_messages: int) -> None:
    """CON-7: any order, loss, resending and redelivery. No acknowledgement, cumulative or not, covers a chunk of
    another message, and each covers all chunks of its own. Messages that are dropped for others are redelivered until
    they are handed out, and only what can't be read is discarded."""
    world = World(seed, max_messages)
    for _ in range(40):
        what = world.chance.random()
        if what < 0.5:
            world.deliver(world.chance.randrange(1, 9))
        elif what < 0.8:
            world.acknowledge()
        elif what < 0.92:
            world.send_acks()
        else:
            world.redeliver()
    for _ in range(len(world.log) + 1):
        world.redeliver()
        world.deliver(len(world.log))
        while world.wanted != set(world.handed_out):
            world.acknowledge()
        world.send_acks()
        world.assembler.expire(60.0)
    assert world.handed_out.keys() == world.whole.keys()
    world.send_acks()
    assert world.acknowledged == set(range(len(world.log)))
    assert world.budget.used_bytes == 0
    assert not world.budget.messages


class Discards:
    def __init__(self) -> None:
        self.found: list[tuple[list[Position], str, bool]] = []

    def __call__(self, positions: Any, reason: str, acknowledge: bool, /, *, is_expected: bool = False) -> None:
        self.found.append((list(positions), reason, acknowledge))


def assembler_of(budget: ChunkBudget, discards: Discards, **options: Any) -> ChunkAssembler:
    values: dict[str, Any] = {"max_messages": 10, "expire_after_s": 60, "acks_dropped": False}
    return ChunkAssembler(budget, discards, **values | options)


def add(
    assembler: ChunkAssembler, at: int, name: str, chunk: int, chunks: int, now: float = 0.0, **fields: Any
) -> AssembledMessage | None:
    payload = memoryview(fields.pop("payload", bytes(CHUNK_BYTES)))
    return assembler.add_chunk((0, at), metadata_of(name, chunk, chunks, **fields), None, payload, now)


@pytest.mark.parametrize("acks_dropped", [False, True])
def test_the_oldest_message_is_dropped_when_too_many_are_incomplete(acks_dropped: bool) -> None:
    """CON-7: `max_pending_chunked_message`, `auto_ack_oldest_chunked_message_on_queue_full`: it is left with its later
    chunks, or acknowledged with them."""
    discards = Discards()
    assembler = assembler_of(ChunkBudget(10_000), discards, max_messages=2, acks_dropped=acks_dropped)
    for at, name in enumerate("abc"):
        assert add(assembler, at, name, 0, 2) is None
    [(positions, reason, acknowledged)] = discards.found
    assert (positions, acknowledged) == ([(0, 0)], acks_dropped)
    assert "max_pending_chunked_message" in reason
    for at, name in enumerate("abc", 3):
        assert (add(assembler, at, name, 1, 2) is None) == (name == "a")
    assert discards.found[1:] == [([(0, 3)], "", acks_dropped)]


def test_incomplete_messages_of_all_partitions_share_a_limit_in_bytes() -> None:
    """CON-7: the one that began first is dropped, in any partition, and one above the limit at once."""
    budget, mine, others = ChunkBudget(2_000), Discards(), Discards()
    one, two = assembler_of(budget, mine), assembler_of(budget, others)
    add(one, 0, "a", 0, 2)
    for at in range(2):
        add(two, at, "b", at, 5)
    assert not mine.found
    add(two, 2, "b", 2, 5)
    assert [positions for positions, _, _ in mine.found] == [[(0, 0)]]
    add(two, 3, "b", 3, 5)  # only itself is left to be dropped
    assert [positions for positions, _, _ in others.found] == [[(0, 0), (0, 1), (0, 2), (0, 3)]]
    assert budget.used_bytes == 0
    add(one, 1, "c", 0, 2, total_chunk_msg_size=2_001)
    assert mine.found[-1][0] == [(0, 1)]
    assert not mine.found[-1][2]
    assert not budget.messages


def test_the_whole_entry_of_a_chunk_counts_and_keys_are_small() -> None:
    """CON-7: its payload is a view of it, and metadata may have 10 KiB; so may the uuid of an ended message."""
    budget, discards = ChunkBudget(1_000_000), Discards()
    assembler = assembler_of(budget, discards)
    entry = memoryview(bytes(5_000 + CHUNK_BYTES))
    add(assembler, 0, "u" * 5_000, 0, 3, payload=entry[5_000:])
    assert budget.used_bytes >= 2 * 5_000
    used = budget.used_bytes
    add(assembler, 1, "u" * 5_000, 1, 3, payload=entry[5_000:])
    assert budget.used_bytes - used >= 5_000
    add(assembler, 2, "u" * 5_000, 2, 3, payload=entry[5_000:])
    assert budget.used_bytes == 0
    tracemalloc.start()
    for at in range(300):
        add(assembler, at, f"{at}" + "u" * 10_000, 1, 3)
        discards.found.clear()
    assert tracemalloc.get_traced_memory()[0] < 300_000
    tracemalloc.stop()


def test_hostile_chunks_use_no_more_memory_than_the_limit() -> None:
    """CON-7: numbers and sizes that are declared, and floods of messages, or of tiny chunks"""
    discards = Discards()
    budget = ChunkBudget(100_000)
    assembler = assembler_of(budget, discards)
    for at in range(30_000):
        assert add(assembler, at, f"flood-{at}", 0, 2**31 - 1, total_chunk_msg_size=50_000) is None
    assert len(assembler) == 10
    for at in range(1_000):
        assert add(assembler, at, "tiny", at, 2**31 - 1, total_chunk_msg_size=50_000, payload=b"") is None
    assert budget.used_bytes <= 100_000
    for fields in (
        {"total_chunk_msg_size": 2**31 - 1},
        {"uncompressed_size": 2**32 - 1},
    ):
        assert add(assembler, 1, "large", 0, 2, **fields) is None
        assert not discards.found[-1][2], "another client may be able to read it"
    for fields in (
        {"total_chunk_msg_size": 1},
        {"total_chunk_msg_size": -5},
        {"num_chunks_from_msg": 3, "chunk_id": 2},
    ):
        add(assembler, 1, "lies", 0, 2)
        assert add(assembler, 2, "lies", 1, 2, **fields) is None
        assert discards.found[-1][2], "nobody can read it"
    add(assembler, 1, "short", 0, 2, total_chunk_msg_size=7)
    assert add(assembler, 2, "short", 1, 2, total_chunk_msg_size=7) is None
    assert discards.found[-1][0] == [(0, 1), (0, 2)]


def test_incomplete_messages_expire_when_no_chunk_comes() -> None:
    """CON-7: a minute after the last chunk, unless chunks could not come. They are acknowledged, and late ones, too."""
    discards = Discards()
    assembler = assembler_of(ChunkBudget(10_000), discards)
    add(assembler, 0, "a", 0, 3, 0.0)
    add(assembler, 1, "b", 0, 2, 30.0)
    add(assembler, 2, "a", 1, 3, 40.0)
    assert assembler.next_due == 90.0
    assembler.expire(89.0)
    assert not discards.found
    assembler.postpone(90.0)
    assembler.expire(149.0)
    add(assembler, 3, "b", 1, 2, 149.0)
    assembler.expire(150.0)
    [(positions, reason, acknowledged)] = discards.found
    assert positions == [(0, 0), (0, 2)]
    assert acknowledged
    assert "60 s" in reason
    add(assembler, 4, "a", 2, 3, 151.0)
    assert discards.found[1:] == [([(0, 4)], "", True)]


def test_a_chunk_of_a_dropped_message_that_is_forgotten_is_left() -> None:
    """CON-7: a chunk without its first one is acknowledged only if no message was dropped that it may belong to."""
    discards = Discards()
    assembler = assembler_of(ChunkBudget(10_000), discards, max_messages=1)
    add(assembler, 0, "unknown", 1, 2)
    assert discards.found[-1][2]
    for at in range(10_010):
        add(assembler, at, f"flood-{at}", 0, 2)
    add(assembler, 1, "flood-1", 1, 2)
    assert discards.found[-1][0] == [(0, 1)]
    assert not discards.found[-1][2]
