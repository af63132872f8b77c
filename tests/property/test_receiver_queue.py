"""The receiver queue, against a plain list."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from magnetar._message import DeliveredEntry, DeliveryEpoch, Message, PickledOrigin
from magnetar._prefetching.partition_queue import PartitionQueue
from magnetar._prefetching.receiver_queue import ReceiverQueue
from magnetar_protos.entry_pb2 import MessageMetadata
from magnetar_wire.messages import Messages


def _batch_of(count: int) -> MessageMetadata:
    return MessageMetadata(num_messages_in_batch=count)


def _position(message: Message) -> tuple[int, int]:
    """Return the message's entry id and batch index."""
    message_id = message.message_id()
    return message_id.entry_id(), message_id.batch_index()


QUEUE_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 2), st.integers(1, 12)),
        st.tuples(st.just("take"), st.just(0), st.integers(1, 12)),
        st.tuples(st.just("batch"), st.integers(1, 15), st.integers(0, 40)),
        st.tuples(st.just("clear"), st.integers(0, 2), st.just(0)),
        st.tuples(st.just("drop"), st.integers(0, 2), st.integers(0, 50)),
    ),
    max_size=80,
)


@given(QUEUE_STEPS, st.integers(1, 5))
def test_receiver_queue_matches_lists_and_counts_consumed_messages(
    steps: list[tuple[str, int, int]], segment: int
) -> None:
    """CON-1, CON-2"""
    queue = ReceiverQueue()
    partitions = [PartitionQueue(lambda: None) for _ in range(3)]
    epochs = [DeliveryEpoch(PickledOrigin("t", partition), 1, 1) for partition in range(len(partitions))]
    waiting: list[list[tuple[int, int]]] = [[], [], []]
    handed: list[int] = [0, 0, 0]
    debt: list[int] = [0, 0, 0]
    number = 0
    for partition_queue in partitions:
        partition_queue.segment_size = segment

    def take() -> Message | None:
        with queue.lock:
            return queue.take_message_locked()

    def got(message: Message) -> None:
        at = message.message_id().partition()
        assert waiting[at].pop(0) == _position(message)
        handed[at] += 1

    for what, which, count in steps:
        if what == "add":
            one = DeliveredEntry(
                epochs[which], 1, number, 0, _batch_of(count), None, Messages([b"xx"] * count), 3 * count
            )
            waiting[which] += [(number, at) for at in range(count)]
            queue.add_entries(partitions[which], [one])
            number += 1
        elif what == "take":
            for _ in range(count):
                message = queue.ready.popleft() if queue.ready else take()
                if message is None:
                    assert not any(waiting)
                    break
                got(message)
        elif what == "batch":
            with queue.lock:
                complete = queue.has_batch(which, count)
                there = sum(map(len, waiting))
                assert complete == (there >= which or 2 * there >= count)
                batch: list[Message] = []
                queue.take_batch_locked(batch, which, count)
            assert len(batch) == min(there, which, max(count // 2, 1))
            for message in batch:
                got(message)
        elif what == "clear":
            first = queue.clear(partitions[which])
            expected = waiting[which][0] if waiting[which] else None
            assert expected == (None if first is None else _position(first))
            waiting[which].clear()
            handed[which] = debt[which] = 0
        else:
            dropped = queue.drop_entries(partitions[which], {(1, count)})
            assert dropped == sum(entry_id == count for entry_id, _ in waiting[which])
            waiting[which] = [position for position in waiting[which] if position[0] != count]
        assert len(queue) == sum(map(len, waiting))
        for at, partition_queue in enumerate(partitions):
            assert queue.has_messages_of(partition_queue) == bool(waiting[at])
            debt[at] += queue.fetch_debt(partition_queue)
            assert debt[at] <= handed[at] <= debt[at] + segment
    assert take() is None or any(waiting)
    if not any(waiting):
        for at, partition_queue in enumerate(partitions):
            assert debt[at] + queue.fetch_debt(partition_queue) == handed[at], "in the end everything is counted"
