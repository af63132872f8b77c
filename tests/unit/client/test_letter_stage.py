"""What happens to an entry between its decoding and the receiver queue, if its consumer has letters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from magnetar import ConsumerDeadLetterPolicy
from magnetar._letters.held_letters import MAX_HELD, HeldBytes
from magnetar._letters.letter_rules import make_letter_rules
from magnetar._letters.letter_stage import LetterStage
from magnetar._letters.letters import DeadEntry, OnMoved
from magnetar._message import DeliveredEntry, DeliveryEpoch, PickledOrigin, decode_delivered_entry
from magnetar._prefetching.partition_queue import PartitionQueue
from magnetar._prefetching.permits import Permits
from magnetar._prefetching.receiver_queue import ReceiverQueue
from magnetar_protos.entry_pb2 import MessageMetadata
from magnetar_testing.clock import ManualClock
from magnetar_wire.batch import encode_message
from magnetar_wire.entry import decode_entry
from magnetar_wire.messages import Messages
from magnetar_wire.topic_name import TopicName

_RETRIES = "persistent://public/default/t-s-RETRY"
_HOUR_MS = 3_600_000


class _Letters:
    """Stores dead letters when the test calls `store`."""

    def __init__(self) -> None:
        rules = make_letter_rules("s", ConsumerDeadLetterPolicy(2), True, [TopicName.parse("t")])
        assert rules is not None
        self.rules = rules
        self.held_bytes = HeldBytes(2**20)
        self.moving: list[tuple[DeadEntry, OnMoved]] = []

    def move(self, dead: DeadEntry, on_moved: OnMoved) -> None:
        self.moving.append((dead, on_moved))

    def store(self, handed_out: Sequence[int] = ()) -> None:
        dead, on_moved = self.moving.pop(0)
        on_moved(dead, handed_out)


class _Scene:
    def __init__(self, topic: str = _RETRIES, letters: _Letters | None = None) -> None:
        self.clock = ManualClock()
        self.letters = letters or _Letters()
        self.permits = Permits(10, 2**20)
        self.queue = ReceiverQueue()
        self.partition_queue = PartitionQueue(lambda: None)
        self.topic = topic
        self.changes = 0
        shared: Any = self.letters
        self.stage = LetterStage(
            topic, shared, self.clock, self.permits, self.queue, self.partition_queue, self._count_change
        )

    def _count_change(self) -> None:
        self.changes += 1

    def entry(self, entry_id: int, delay_ms: int = 0, redelivery_count: int = 0) -> DeliveredEntry:
        """Return an entry that was delivered, and counts in the receiver queue."""
        metadata = MessageMetadata(producer_name="p", sequence_id=0, publish_time=self.clock.time_ms())
        messages = Messages([b"%d" % entry_id], properties=[{"DELAY_TIME": str(delay_ms)}])
        epoch = DeliveryEpoch(PickledOrigin(self.topic, -1), 0, 0)
        stored = decode_entry(encode_message(messages, metadata))
        self.permits.count_delivered(1, 1, 10)
        return decode_delivered_entry(epoch, 1, entry_id, redelivery_count, stored)

    def received(self) -> list[int]:
        with self.queue.lock:
            found = []
            while (message := self.queue.take_message_locked()) is not None:
                found.append(int(message.data()))
            return found


def test_letters_are_handed_out_in_the_order_of_their_times() -> None:
    """CON-9: however often they were delivered, since they may have been held before. Others are handed out at once."""
    scene = _Scene()
    assert not scene.stage.withhold(scene.entry(0))
    assert scene.stage.withhold(scene.entry(1, 2_000, redelivery_count=9))
    assert scene.stage.withhold(scene.entry(2, 1_000))
    assert scene.permits.queued == 1, "those that are held don't count in the receiver queue"
    scene.clock.advance(1.5)
    assert scene.received() == [2]
    scene.clock.advance(1)
    assert scene.received() == [1]
    assert scene.permits.queued == 3
    assert scene.changes == 2
    other = _Scene("persistent://public/default/t")
    assert not other.stage.withhold(other.entry(1, 2_000)), "only letters of the retry topic are held"


def test_letters_that_will_be_redelivered_are_dropped() -> None:
    """CON-9"""
    scene = _Scene()
    for entry_id in range(4):
        assert scene.stage.withhold(scene.entry(entry_id, 1_000))
    scene.stage.drop_entries({(1, 0), (1, 2)})
    scene.clock.advance(1)
    assert scene.received() == [1, 3]
    assert scene.stage.withhold(scene.entry(4, 1_000))
    scene.stage.clear()
    scene.clock.advance(2)
    assert scene.received() == []


def test_what_is_held_is_bounded() -> None:
    """CON-9: beyond the limit, letters count in the receiver queue, so that no more are delivered."""
    scene = _Scene()
    for entry_id in range(MAX_HELD + 2):
        assert scene.stage.withhold(scene.entry(entry_id, _HOUR_MS))
    assert scene.permits.queued == 2
    scene.stage.drop_entries({(1, MAX_HELD + 1)})
    assert scene.permits.queued == 1
    scene.clock.advance(3_601)
    assert len(scene.received()) == MAX_HELD + 1
    assert scene.permits.queued == MAX_HELD + 1


def test_the_size_of_what_is_held_is_bounded_for_all_partitions_of_a_consumer() -> None:
    """CON-9: what one partition holds, or no longer holds, counts for the others."""
    letters = _Letters()
    letters.held_bytes.maximum = 3
    scenes = [_Scene(f"{_RETRIES}-partition-{number}", letters) for number in range(2)]

    def hold_in_each() -> list[int]:
        for scene in scenes:
            scene.permits.start_epoch()
            for number in range(2):
                scene.stage.withhold(scene.entry(number, _HOUR_MS))
        return [scene.permits.queued for scene in scenes]

    assert hold_in_each() == [0, 1]
    scenes[1].stage.clear()
    scenes[0].stage.drop_entries({(1, 0)})
    assert hold_in_each() == [0, 2]
    for scene in scenes:
        scene.clock.advance(3_601)
        assert scene.received()
    assert letters.held_bytes.used == 0


def test_entries_that_become_dead_letters_count_in_the_receiver_queue_until_they_are_stored() -> None:
    """CON-10: so a dead letter topic that stores nothing stops the deliveries."""
    scene = _Scene()
    taken = [scene.stage.withhold(scene.entry(number, redelivery_count=number)) for number in range(5)]
    assert taken == [False, False, False, True, True]
    assert scene.permits.queued == 5
    scene.letters.store()
    assert scene.permits.queued == 4
    assert scene.changes == 1


@pytest.mark.parametrize("is_cleared", [False, True])
def test_a_redelivery_of_what_becomes_a_dead_letter_makes_no_second_letter(is_cleared: bool) -> None:
    """CON-10: the last delivery is acknowledged. A queue that was cleared counts only what came after that."""
    scene = _Scene()
    scene.stage.withhold(scene.entry(7, redelivery_count=3))
    if is_cleared:
        scene.stage.clear()
        scene.permits.start_epoch()
    again = scene.entry(7, redelivery_count=4)
    assert scene.stage.withhold(again)
    ((dead, _),) = scene.letters.moving
    assert dead.entry is again
    scene.letters.store()
    assert scene.permits.queued == 0
    assert scene.stage.withhold(scene.entry(7, redelivery_count=5))
    assert len(scene.letters.moving) == 1


@pytest.mark.parametrize("is_cleared", [False, True])
def test_what_can_not_become_a_dead_letter_is_handed_out_unless_it_is_redelivered(is_cleared: bool) -> None:
    """(CON-10, SUB-9)"""
    scene = _Scene()
    scene.stage.withhold(scene.entry(7, redelivery_count=3))
    if is_cleared:
        scene.stage.clear()
        scene.permits.start_epoch()
    scene.letters.store(handed_out=[0])
    assert scene.received() == ([] if is_cleared else [7])
    assert scene.permits.queued == (0 if is_cleared else 1)
