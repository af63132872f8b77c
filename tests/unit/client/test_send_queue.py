"""The send queue: what the fast path may add, when batches close, and which waiting callers are woken."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar._producing.batch import Batch
from magnetar._producing.outgoing_message import OutgoingMessage
from magnetar._producing.send_queue import SendLimits, SendQueue
from magnetar.exceptions import AlreadyClosed, ProducerFenced, ProducerQueueIsFull
from tests.running import GENEROUS_S


class Driven:
    """A queue whose loop is the test. Time stands still until the test changes it."""

    def __init__(self, **limits: Any) -> None:
        self.now = 0.0
        self.wakes = 0
        given = {
            "pending_messages": 100,
            "pending_bytes": 10_000,
            "batch_messages": 10,
            "batch_bytes": 1_000,
            "batch_delay_s": 0.01,
            "max_message_bytes": 5_000,
        } | limits
        # Why pending messages are not stored.
        self.reason = ""
        self.queue = SendQueue(SendLimits(**given), 0, self._wake, lambda: self.now, lambda: self.reason)

    def _wake(self) -> None:
        self.wakes += 1

    def add(self, size: int = 10, key: str | None = None, **how: Any) -> None:
        self.queue.add_message(OutgoingMessage(b"x", key, size=size), **how)

    def fast(self, size: int = 10) -> bool:
        """Do what `Producer.send_async` does."""
        queue = self.queue
        if queue.capacity > 0 and size < queue.byte_capacity:
            queue.capacity -= 1
            queue.byte_capacity -= size
            queue.open_batch += (b"x", None)
            return True
        return False

    def send(self, size: int = 10) -> None:
        if not self.fast(size):
            self.add(size)

    def take(self) -> list[int]:
        return [batch.count for batch in self.taken()]

    def taken(self) -> list[Batch]:
        return self.queue.take_batches(self.now)[0]


def test_event_loop_is_woken_once_until_it_takes_the_batches() -> None:
    driven = Driven()
    for _ in range(35):
        driven.send()
    assert driven.wakes == 1
    assert driven.take() == [10, 10, 10]
    for _ in range(3):
        driven.send()
    assert driven.wakes == 1, "the open batch's delay is watched already"
    assert driven.queue.take_batches(driven.now)[1] == pytest.approx(0.01)
    driven.now = 0.02
    assert driven.take() == [8]
    driven.send()
    assert driven.wakes == 2
    driven.queue.close_batch_soon()
    assert driven.take() == [1]


def test_a_batch_closes_before_the_message_that_would_pass_its_bytes() -> None:
    """PRD-4"""
    driven = Driven()
    for size in (400, 400, 400, 1_000, 10, 3_000, 10):
        driven.send(size)
    assert driven.take() == [2, 1, 1, 1, 1]
    driven.now = 1
    assert driven.take() == [1]


def test_full_in_messages_and_in_bytes() -> None:
    """PRD-1"""
    driven = Driven(pending_messages=15)
    for _ in range(15):
        driven.send()
    assert not driven.fast()
    with pytest.raises(ProducerQueueIsFull, match="15 messages"):
        driven.add()
    driven.reason = "the topic waits for bookies"
    with pytest.raises(ProducerQueueIsFull, match="set block_if_queue_full; the topic waits for bookies"):
        driven.add()
    driven.now = 1
    (full, rest) = driven.taken()
    driven.queue.release_answered(full)
    for _ in range(10):
        driven.send()
    rest.callbacks = [lambda *_: None] * rest.count
    driven.queue.release_answered(rest)
    with pytest.raises(ProducerQueueIsFull):
        driven.add()
    driven.add(in_callback=True)
    driven.queue.release_called(rest)
    driven.add()
    in_bytes = Driven(pending_bytes=2_000)
    in_bytes.send(1_500)
    with pytest.raises(ProducerQueueIsFull, match="1500 bytes"):
        in_bytes.add(600)
    in_bytes.send(500)
    lonely = Driven(pending_bytes=100)
    lonely.send(4_000)
    with pytest.raises(ProducerQueueIsFull):
        lonely.add(1)


def test_a_waiting_thread_is_woken_when_half_is_free_or_the_queue_is_closed() -> None:
    driven = Driven(pending_messages=4, batch_messages=2)
    for _ in range(4):
        driven.send()
    one, other = driven.taken()
    began, ended = threading.Event(), threading.Event()

    def wait() -> None:
        driven.add(block=True)
        began.set()
        try:
            while True:
                driven.add(block=True)
        except AlreadyClosed:
            ended.set()

    thread = threading.Thread(target=wait)
    thread.start()
    driven.queue.release_answered(one)
    driven.queue.release_answered(other)
    assert began.wait(GENEROUS_S)
    left = driven.queue.close(AlreadyClosed("the test is over"))
    assert ended.wait(GENEROUS_S)
    thread.join(GENEROUS_S)
    assert sum(batch.count for batch in left) <= 4
    driven.queue.close(ProducerFenced("later"))
    with pytest.raises(AlreadyClosed):
        driven.add()
    assert not driven.fast()


async def test_a_coroutine_waits_for_capacity() -> None:
    driven = Driven(pending_messages=2, batch_messages=2)
    driven.send()
    driven.send()
    (batch,) = driven.taken()
    waits = asyncio.get_running_loop().create_task(driven.queue.wait_for_capacity())
    cancelled = asyncio.get_running_loop().create_task(driven.queue.wait_for_capacity())
    await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.wait([cancelled])
    assert not waits.done()
    assert len(driven.queue._capacity_futures) == 1  # a cancelled one is forgotten, however long the queue stays full
    driven.queue.release_answered(batch)
    await waits


@settings(max_examples=100)
@given(
    st.lists(
        st.tuples(st.sampled_from(["send", "keyed", "take", "time", "release"]), st.integers(1, 3_000)), max_size=80
    )
)
def test_no_message_is_lost_and_the_limits_hold(steps: list[tuple[str, int]]) -> None:
    """PRD-1, PRD-4, PRD-10: in order, each once, no batch above its limits, no more pending than allowed."""
    driven = Driven(pending_messages=25, pending_bytes=6_000)
    sizes: list[int] = []
    batches: list[Batch] = []
    released = 0
    for step, size in steps:
        if step in ("send", "keyed"):
            pending = sizes[sum(batch.count for batch in batches[:released]) :]
            fits = not pending or (len(pending) < 25 and sum(pending) + size <= 6_000)
            try:
                if step == "send":
                    driven.send(size)
                else:
                    driven.add(size, key="k")
                assert fits
                sizes.append(size)
            except ProducerQueueIsFull:
                assert not fits
        elif step == "release" and released < len(batches):
            driven.queue.release_answered(batches[released])
            released += 1
        elif step == "time":
            driven.now += 1
        else:
            batches += driven.taken()
    driven.queue.close_batch_soon()
    batches += driven.taken()
    assert [batch.first_sequence_id for batch in batches] == [
        sum(batch.count for batch in batches[:index]) for index in range(len(batches))
    ]
    assert sum(batch.count for batch in batches) == len(sizes)
    at = 0
    for batch in batches:
        own = sizes[at : at + batch.count]
        assert batch.bytes == sum(own)
        assert batch.count == 1 or (batch.bytes <= 1_000 and batch.count <= 10)
        if batch.columns is not None and batch.columns.keys is not None:
            assert len(batch.columns.keys) == batch.count
        at += batch.count
