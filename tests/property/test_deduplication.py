"""Producers of deduplicated messages on a log that decides late, fails and is lost: compared with a model.

A client has messages, with ids that have gaps, and sends them in order: alone, in batches, or in chunks. It resends
what has no result, perhaps packed in another way, on connections that break. The model knows which ids are in the log.
Each is there once and in order, and what was answered was there by then.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from typing import Any

import pytest

from magnetar_broker.counters import BrokerCounters, TopicCounters
from magnetar_broker.errors import BrokerError, TopicUnloaded
from magnetar_broker.managed_ledger.append_queue import AppendDone
from magnetar_broker.managed_ledger.log_entry import NewEntry
from magnetar_broker.position import Position
from magnetar_broker.settings.rates import NO_RATE
from magnetar_broker.settings.topics import TopicSettings
from magnetar_broker.topics.deduplication.rules import EntryIds, get_entry_ids, record
from magnetar_broker.topics.deduplication.snapshots import decode_stored_ids, encode_stored_ids
from magnetar_broker.topics.entry_check import find_last_sequence_id
from magnetar_broker.topics.producer import Producer, TopicPublishing
from magnetar_broker.topics.producer_names import ProducerNames
from magnetar_broker.topics.producer_sink import ProducerIdentity
from magnetar_broker.topics.publish_budget import PublishBudget
from magnetar_broker.topics.publish_throttle import PublishThrottle
from magnetar_broker.topics.rate_limit import RateLimit
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_wire.batch import decode_messages
from magnetar_wire.clock import SystemClock
from magnetar_wire.entry import decode_entry
from magnetar_wire.topic_name import TopicName
from tests.produce_client import entry
from tests.unit.broker.deduplication_scene import batch, chunk
from tests.unit.broker.topic_scene import FakeProducerSink

_MESSAGES, _STEPS = 40, 400
_CHUNKS = 3


class Log:
    """Entries are stored, refused or lost when the test decides it."""

    name = TopicName.parse("t")
    waiting_for = ""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.stored: list[bytes] = []
        self._pending: deque[tuple[bytes, AppendDone, BrokerError | None]] = deque()

    def append(self, entries: Sequence[NewEntry], done: AppendDone) -> int:
        for accepted, new in enumerate(entries):
            if not self._chance.randrange(30):
                self._pending.append((b"", done, BrokerError(ErrorCode.TOO_MANY_REQUESTS, "full")))
                return accepted
            self._pending.append((new.entry, done, None))
        return len(entries)

    def decide(self, count: int) -> None:
        for _ in range(min(count, len(self._pending))):
            stored, done, error = self._pending.popleft()
            if error is None:
                self.stored.append(stored)
            done(error or [Position(1, len(self.stored) - 1)])

    def lose(self) -> None:
        """Some of the pending entries are stored, in order, but all of them fail."""
        pending, self._pending = self._pending, deque()
        left = self._chance.randrange(len(pending) + 1)
        for stored, done, error in pending:
            if left and error is None:
                self.stored.append(stored)
            else:
                left = 0  # an entry behind one that was refused is not stored
            left = max(0, left - 1)
            done(error or TopicUnloaded("lost"))


class Client:
    """A producer's application: it has messages, and sends those without a result again on each connection."""

    def __init__(self, name: str, chance: random.Random) -> None:
        self.name, self._chance = name, chance
        ids = sorted(chance.sample(range(4 * _MESSAGES), _MESSAGES))
        self.ids = ids
        # The number of messages that are answered, and that were sent on this connection.
        self.answered = self.sent = 0
        # Of each sent entry: the number of messages up to its last one, if it completes one.
        self._ends: list[int | None] = []
        self.sink = FakeProducerSink()

    def connect(self) -> None:
        # Often it does not know of the last results, as after a crash of its own.
        self.answered -= self._chance.randrange(min(3, self.answered) + 1)
        self.sent, self._ends, self.sink = self.answered, [], FakeProducerSink()

    def next_entries(self) -> list[bytes]:
        if not self._chance.randrange(6):  # resends without waiting for the results
            self.sent -= self._chance.randrange(min(4, self.sent) + 1)
        left = self.ids[self.sent :]
        if not left:
            return []
        kind = self._chance.randrange(4)
        if kind == 0:
            uuid = str(self._chance.randrange(3))
            self.sent += 1
            self._ends += [None] * (_CHUNKS - 1) + [self.sent]
            return [chunk(left[0], number, _CHUNKS, uuid, self.name) for number in range(_CHUNKS)]
        if kind == 1:
            self.sent += 1
            self._ends.append(self.sent)
            return [entry(left[0], b"%d" % left[0], self.name)]
        size = 1 + self._chance.randrange(5)
        self.sent += len(left[:size])
        self._ends.append(self.sent)
        return [batch(*left[:size], producer=self.name)]

    def take_results(self) -> list[int]:
        """Return the ids that were answered as stored since the last call."""
        before = self.answered
        results, self.sink.results = self.sink.results, []
        for kind, *rest in results:
            if kind == "ended":
                continue
            number = rest[0]
            if kind in ("stored", "partly stored") and (end := self._ends[number]) is not None:
                self.answered = max(self.answered, end)
        return self.ids[before : self.answered]


class Topic:
    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.log = Log(self.chance)
        self.names: ProducerNames[Producer] = ProducerNames()
        self.clients = [Client("p", self.chance), Client("q", self.chance)]
        self.producers: dict[Client, Producer | None] = dict.fromkeys(self.clients)
        self.epoch = 0
        # All producers since the last crash.
        self._former: list[Producer] = []
        # The last snapshot, and the number of entries that it covers.
        self.snapshot = (encode_stored_ids((), 10_000).encoded, 0)

    def play(self) -> None:
        for step in range(_STEPS + 2_000):
            self._step(quiet=step >= _STEPS)
            for client in self.clients:
                if answered := client.take_results():
                    known = self._stored_ids(client.name)
                    assert set(answered) <= set(known)
                    assert known == sorted(set(known)), "stored twice, or not in order"
            if all(client.answered == _MESSAGES for client in self.clients):
                break
        for client in self.clients:
            assert self._stored_ids(client.name) == client.ids

    def _step(self, *, quiet: bool) -> None:
        client, kind = self.chance.choice(self.clients), self.chance.randrange(20)
        producer = self.producers[client]
        if producer is None or producer.error is not None:
            self._open(client)
        elif kind < 8:
            entries = client.next_entries()
            at = len(client._ends) - len(entries)
            while entries:  # in runs, some of which are lost with the connection
                size = 1 + self.chance.randrange(len(entries))
                producer.publish(at, entries[:size])
                at, entries = at + size, entries[size:]
        elif kind < 15:
            self.log.decide(1 + self.chance.randrange(6))
        elif quiet and client.sent == _MESSAGES and not producer.pending:
            self._leave(client)
        elif quiet:
            pass
        elif kind == 15:
            self._leave(client)
        elif kind == 16:
            self.snapshot = (encode_stored_ids(self.names.ids(0), 10_000).encoded, len(self.log.stored))
        elif kind == 17:
            self._crash()

    def _open(self, client: Client) -> None:
        self._leave(client)
        while any(one.pending for one in self._of(client.name)):
            self.log.decide(1)
        client.connect()
        self.epoch += 1
        throttle = PublishThrottle(PublishBudget(2**30), *[RateLimit("none", lambda: NO_RATE, SystemClock())] * 2)
        log: Any = self.log
        publishing = TopicPublishing(
            log, throttle, TopicSettings(), SystemClock(), TopicCounters(), BrokerCounters(), self._record_stored
        )
        producer = Producer(ProducerIdentity(1, client.name, b"", self.epoch, {}, ""), publishing, client.sink)
        self.names.claim(client.name, b"%d" % self.epoch, 0, producer)
        producer.begin_deduplication(self.names.find_stored(client.name))
        self.producers[client] = producer
        self._former.append(producer)

    def _of(self, name: str) -> list[Producer]:
        return [one for one in self._former if one.producer_name == name]

    def _record_stored(self, name: str, last_sequence_id: int, entries: Sequence[EntryIds], _size_bytes: int) -> None:
        self.names.record_stored(name, last_sequence_id)
        for ids in entries:
            record(self.names.find_stored(name), ids)

    def _leave(self, client: Client) -> None:
        producer = self.producers[client]
        if producer is not None:
            producer.end(TopicUnloaded("disconnected"), report=False)
            self.names.release(client.name, producer)
        self.producers[client] = None

    def _crash(self) -> None:
        """The next owner knows the log and the last snapshot."""
        self.log.lose()
        for client in self.clients:
            self._leave(client)
        self.names, self._former[:] = ProducerNames(), []
        encoded, covered = self.snapshot
        for ids in decode_stored_ids(encoded):
            self.names.restore_ids(ids)
        for stored in self.log.stored[covered:]:
            metadata = decode_entry(stored).metadata
            self.names.replay(metadata.producer_name, find_last_sequence_id(metadata), get_entry_ids(metadata), 0)

    def _stored_ids(self, name: str) -> list[int]:
        """Return the ids of the messages that a consumer gets, in order. A message in chunks is complete with its last
        chunk, if it has all of them."""
        found, chunks = [], dict[tuple[int, str], int]()
        for stored in self.log.stored:
            one = decode_entry(stored)
            if one.metadata.producer_name != name:
                continue
            if one.is_chunk:
                key = one.metadata.sequence_id, one.metadata.uuid
                chunks[key] = 1 if one.metadata.chunk_id == 0 else chunks.get(key, 0) + 1
                if one.metadata.chunk_id == _CHUNKS - 1 and chunks[key] == _CHUNKS:
                    found.append(one.metadata.sequence_id)
            else:
                ids = decode_messages(one).sequence_ids
                assert ids is not None
                found += [int(one) for one in ids if one is not None]
        return found


@pytest.mark.parametrize("seed", range(25))
def test_each_id_is_stored_once_however_often_it_is_sent(seed: int) -> None:
    """DUP-1, DUP-2, CHK-32, CHK-64"""
    Topic(seed).play()
