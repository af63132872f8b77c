"""Messages that an interrupted receive has put back, when their entries are redelivered.

`Permits` must count every message once: by the debt, or by what `drop_entries` returns.
"""

from __future__ import annotations

from typing import Any

import pytest

from magnetar._message import DeliveredEntry, DeliveryEpoch, Message
from magnetar._prefetching.partition_queue import PartitionQueue
from magnetar._prefetching.received_messages import ReceivedMessages
from magnetar._prefetching.receiver_queue import ReceiverQueue
from magnetar_protos.entry_pb2 import MessageMetadata
from magnetar_wire.messages import Messages

DROPPED = {(1, 0)}


class _Origin:
    """Stands for a `PartitionConsumer`."""

    def __init__(self, number: int, segment_size: int) -> None:
        self.topic = "t"
        self.partition = number
        self.decode_value = None
        self.partition_queue = PartitionQueue(lambda: None)
        self.partition_queue.segment_size = segment_size


class _Scene:
    def __init__(self, *, partitions: int = 1, segment_size: int = 10) -> None:
        self.queue = ReceiverQueue()
        origins: list[Any] = [_Origin(number, segment_size) for number in range(partitions)]
        self.partitions: list[PartitionQueue] = [origin.partition_queue for origin in origins]
        self._epochs = [DeliveryEpoch(origin, 1, 1) for origin in origins]
        self.handed_out = [0] * partitions

    def add(self, partition: int, entry_id: int, messages: int) -> None:
        batch = MessageMetadata(num_messages_in_batch=messages)
        stored = Messages([b"x"] * messages)
        entry = DeliveredEntry(self._epochs[partition], 1, entry_id, 0, batch, None, stored, messages)
        self.queue.add_entries(self.partitions[partition], [entry])

    def take(self, count: int) -> list[Message]:
        taken = []
        for _ in range(count):
            with self.queue.lock:
                message = self.queue.take_message_locked()
            assert message is not None
            taken.append(message)
        return taken

    def take_batch(self) -> list[Message]:
        batch: list[Message] = []
        with self.queue.lock:
            self.queue.take_batch_locked(batch, 100, 100)
        return batch

    def take_rest(self) -> list[tuple[int, int, int]]:
        """Return the partition, entry id and batch index of each message."""
        rest = []
        with self.queue.lock:
            while (message := self.queue.take_message_locked()) is not None:
                taken = message.message_id()
                rest.append((taken.partition(), taken.entry_id(), taken.batch_index()))
        return rest

    def drop(self, partition: int) -> None:
        self.handed_out[partition] += self.queue.drop_entries(self.partitions[partition], DROPPED)

    def has_messages(self) -> list[bool]:
        return [self.queue.has_messages_of(partition) for partition in self.partitions]

    def count_handed_out(self) -> list[int]:
        """Return how many messages of each partition the loop has counted."""
        for number, partition in enumerate(self.partitions):
            self.handed_out[number] += self.queue.fetch_debt(partition)
        return self.handed_out


def test_messages_of_an_interrupted_batch_are_dropped_and_not_counted_again() -> None:
    """CON-2"""
    on = _Scene(partitions=2)
    on.add(0, 0, 3)
    on.add(0, 1, 2)
    on.add(1, 0, 2)
    batch = on.take_batch()
    assert on.count_handed_out() == [5, 2]
    on.queue.put_back(batch)
    assert on.has_messages() == [True, True]
    on.drop(0)
    assert on.has_messages() == [True, True]
    assert on.take_rest() == [(1, 0, 0), (1, 0, 1), (0, 1, 0), (0, 1, 1)]
    assert on.count_handed_out() == [5, 2]
    assert on.has_messages() == [False, False]


def test_messages_put_back_before_the_segment_of_another_partition() -> None:
    on = _Scene(partitions=2)
    on.add(0, 0, 2)
    taken = on.take(2)
    on.add(1, 0, 3)
    taken += on.take(1)
    on.queue.put_back(taken[:2])
    assert on.has_messages() == [True, True]
    on.drop(1)  # an entry of the same ids
    assert on.has_messages() == [True, False]
    assert on.take_rest() == [(0, 0, 0), (0, 0, 1)]
    assert on.count_handed_out() == [2, 3]


@pytest.mark.parametrize("returned", [[0], [2], [0, 1, 2]])
def test_messages_put_back_before_the_rest_of_their_segment(returned: list[int]) -> None:
    on = _Scene()
    on.add(0, 0, 5)
    taken = on.take(3)
    on.queue.put_back([taken[at] for at in returned])
    on.drop(0)
    assert on.has_messages() == [False]
    assert on.take_rest() == []
    assert on.count_handed_out() == [5]


class _ReceivedScene(_Scene):
    """A queue that finds out what was received."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.queue.received = ReceivedMessages(self.queue.ready)

    def fetch(self) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """Return the entry id and batch index of the messages that were put back, and of those that were received."""
        returned, received = (
            [(one.message_id().entry_id(), one.message_id().batch_index()) for one in messages]
            for messages in self.queue.fetch_received()
        )
        return returned, received


def test_only_messages_that_were_taken_count_as_received() -> None:
    """(CON-6): not those that are prefetched, also if their segment has begun."""
    on = _ReceivedScene(segment_size=3)
    on.add(0, 0, 2)
    on.add(0, 1, 2)
    assert on.fetch() == ([], [])
    on.take(1)
    assert on.fetch() == ([], [(0, 0)])
    on.take(3)
    assert on.fetch() == ([], [(0, 1), (1, 0), (1, 1)])
    assert on.fetch() == ([], [])
    on.add(0, 2, 2)
    on.add(0, 3, 1)
    on.take(1)
    on.take_batch()
    assert on.fetch() == ([], [(2, 0), (2, 1), (3, 0)])


def test_messages_that_were_put_back_are_received_when_they_are_taken_again() -> None:
    """(CON-6)"""
    on = _ReceivedScene()
    on.add(0, 0, 5)
    taken = on.take(3)
    assert on.fetch()[1] == [(0, 0), (0, 1), (0, 2)]
    on.take(1)
    on.queue.put_back(taken[1:])
    assert on.fetch() == ([(0, 1), (0, 2)], [(0, 3)])
    on.take(1)
    assert on.fetch() == ([], [(0, 1)])
    on.queue.put_back(on.take(1))
    on.take(2)
    assert on.fetch() == ([(0, 2)], [(0, 2), (0, 4)])


def test_messages_that_were_taken_before_others_are_dropped_are_received() -> None:
    """(CON-6)"""
    on = _ReceivedScene(partitions=2)
    on.add(0, 0, 3)
    on.take(1)
    on.drop(0)
    assert on.fetch() == ([], [(0, 0)])
    on.add(1, 1, 3)
    on.queue.put_back(on.take(1))
    on.take(1)
    on.queue.clear(on.partitions[1])
    assert on.fetch() == ([(1, 0)], [(1, 0)])
    assert on.take_rest() == []
    assert on.fetch() == ([], [])


def test_messages_that_wait_for_their_listener_are_not_received_yet() -> None:
    """(CON-6)"""
    on = _ReceivedScene()
    on.add(0, 0, 4)
    taken = on.take(3)
    for message in taken[1:]:
        on.queue.defer_locked(message)
    assert on.fetch() == ([], [(0, 0)])
    assert on.queue.has_deferred
    on.queue.end_deferral_locked(taken[2])
    assert on.fetch() == ([], [(0, 2)])
    on.queue.end_deferral_locked(taken[1])
    assert on.fetch() == ([], [(0, 1)])
    assert not on.queue.has_deferred
