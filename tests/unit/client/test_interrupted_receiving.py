"""Ctrl-C at any moment of a receive, an acknowledgement, a call that waits for the broker, or a fork."""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from types import FrameType
from typing import Any

import pytest

from magnetar import Consumer, ConsumerBatchReceivePolicy, Message, MessageId, Reader
from magnetar._threads.event_loop import background
from magnetar.exceptions import StaleEpoch
from tests.running import GENEROUS_S
from tests.unit.client.interrupter import Interrupted, Interrupter
from tests.unit.client.scene import sync_scene
from tests.unit.client.sync_consume_scene import (
    EARLIEST,
    LONG_MS,
    SyncConsumeScene,
    sync_consume_scene,
    wait_until,
)

MESSAGES = 2_000
INTERRUPTS = 100


def _publish(on: SyncConsumeScene, until_number: int, number: int = 0) -> None:
    chance = random.Random(7)

    async def publish() -> None:
        nonlocal number
        while number < until_number:
            size = min(chance.choice((1, 1, 2, 7, 60)), until_number - number)
            on.broker.topic("t").publish(*(b"%d" % each for each in range(number, number + size)))
            number += size

    on.run(publish())


@pytest.mark.parametrize("how", ["receive", "receive in time", "batch"])
def test_interrupted_receive_loses_no_message_and_preserves_order(how: str) -> None:
    """CON-2: messages that an interrupted receive had taken are returned by the next one."""
    policy = ConsumerBatchReceivePolicy(9, -1, 50)
    with sync_consume_scene() as on, Interrupter() as interrupter:
        published = MESSAGES
        _publish(on, published)
        consumer = on.client.subscribe(
            "t", "s", **EARLIEST, receiver_queue_size=40, batch_receive_policy=policy, ack_grouping_time_ms=1
        )
        got: list[bytes] = []
        unacknowledged: list[Message] = []
        deadline = time.monotonic() + GENEROUS_S
        while interrupter.hits < INTERRUPTS and time.monotonic() < deadline:
            if len(got) == published:
                _publish(on, published + MESSAGES, published)
                published += MESSAGES
            try:
                interrupter.armed = True
                if how == "batch":
                    messages = consumer.batch_receive()
                elif how == "receive":
                    messages = [consumer.receive()]
                else:
                    messages = [consumer.receive(LONG_MS)]
                interrupter.armed = False
            except Interrupted:
                continue
            finally:
                interrupter.armed = False
            got += [message.data() for message in messages]
            unacknowledged += messages
            try:
                interrupter.armed = True
                while unacknowledged:
                    consumer.acknowledge(unacknowledged[0])
                    del unacknowledged[0]
            except Interrupted:
                pass  # it may have been taken or not, and is acknowledged again
            finally:
                interrupter.armed = False
        assert interrupter.hits >= INTERRUPTS
        assert got == [b"%d" % number for number in range(len(got))]
        while len(got) < published:
            message = consumer.receive(LONG_MS)
            got.append(message.data())
            unacknowledged.append(message)
        for message in unacknowledged:
            consumer.acknowledge(message)
        assert got == [b"%d" % number for number in range(published)]
        topic = on.broker.topic("t")
        wait_until(lambda: topic.cursors.cursors["s"].mark_delete == topic.log.last, "all is acknowledged")


def test_an_interrupted_call_is_done_or_not_and_leaves_nothing_behind() -> None:
    """A consumer or reader that the caller never got is closed, so that an exclusive subscription is free again. The
    next call works."""
    with sync_consume_scene() as on, Interrupter() as interrupter:
        _publish(on, 1_000)
        consumer = on.client.subscribe("t", "s", **EARLIEST)
        calls: list[Callable[[], object]] = [
            lambda: on.client.subscribe("t", "exclusive"),
            lambda: on.client.create_reader("t", MessageId.earliest),
            lambda: on.client.get_topic_partitions("t"),
            lambda: consumer.seek(MessageId.earliest),
            lambda: consumer.acknowledge(consumer.receive(), receipt=True),
            lambda: consumer.get_last_message_id(),
        ]
        deadline = time.monotonic() + GENEROUS_S
        while interrupter.hits < INTERRUPTS and time.monotonic() < deadline:
            for call in calls:
                made: Any = None
                try:
                    interrupter.armed = True
                    made = call()
                    interrupter.armed = False
                    if isinstance(made, Reader):
                        interrupter.armed = True
                        made.has_message_available()
                except (Interrupted, StaleEpoch):
                    pass  # a seek that was interrupted may have begun another epoch
                finally:
                    interrupter.armed = False
                while isinstance(made, (Consumer, Reader)):
                    try:
                        interrupter.armed = True
                        made.close()
                        made = None
                    except Interrupted:
                        pass
                    finally:
                        interrupter.armed = False
        assert interrupter.hits >= INTERRUPTS
        with on.client.subscribe("t", "exclusive"):
            pass
        consumer.seek(MessageId.earliest)
        assert consumer.receive(LONG_MS).data() == b"0"


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
def test_ctrl_c_during_fork_is_raised_after_the_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    """CHK-60: Ctrl-C in the middle of a fork leaves no client suspended, and is raised when the fork is over. At the
    edges of a fork, Python itself ignores it."""
    pytest.importorskip("grpc")
    raised: list[None] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)
    monkeypatch.setattr("_thread.interrupt_main", lambda: raised.append(None))
    with sync_scene() as made, made.client() as client, Interrupter() as interrupter:
        producer = client.create_producer("t")
        for number in range(25):
            interrupter.armed = True
            pid = os.fork()
            if pid == 0:
                os._exit(0)
            interrupter.armed = False
            os.waitpid(pid, 0)
            producer.send(b"%d" % number)
        wait_until(lambda: raised, "Ctrl-C is raised")
        assert made.on_loop(lambda broker: len(broker.topic("t").payloads())) == 25


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("function", ["before_fork", "after_fork_in_parent"])
def test_ctrl_c_in_a_fork_hook_leaves_no_lock_held(function: str) -> None:
    """CHK-60: Python ignores it there, and other threads use their clients afterwards."""

    def interrupt(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_name == function:
            raise KeyboardInterrupt

    sys.setprofile(interrupt)
    try:
        pid = os.fork()
        if pid == 0:
            os._exit(0)
    finally:
        sys.setprofile(None)
    os.waitpid(pid, 0)
    with ThreadPoolExecutor(1) as other:
        assert other.submit(background.lock.acquire, timeout=5).result()
        other.submit(background.lock.release).result()


_FORK_CALLS = (
    *(
        "before_fork",
        "_finish",
        "_suspend_clients",
        "_collect",
        "_stop_for_fork",
        "_stop",
        "run",
        "wait",
        "call_soon_threadsafe",
    ),
    *("after_fork_in_parent", "_go_on", "_start", "start", "call_soon"),
)


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
def test_ctrl_c_at_any_call_of_a_fork_stops_no_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """CHK-60: also where Python ignores it, because it comes as a fork hook begins."""
    pytest.importorskip("grpc")
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)
    monkeypatch.setattr("_thread.interrupt_main", lambda: None)  # it is raised after the fork, at any moment
    with sync_scene() as made, made.client() as client:
        producer = client.create_producer("t")
        for name, times in product(_FORK_CALLS, (1, 2, 3)):
            left = times

            def interrupt(frame: FrameType, event: str, _: object, name: str = name) -> None:
                nonlocal left
                if event == "call" and frame.f_code.co_name == name:
                    left -= 1
                    if left == 0:
                        raise KeyboardInterrupt

            sys.setprofile(interrupt)
            try:
                pid = os.fork()
                if pid == 0:
                    os._exit(0)
            finally:
                sys.setprofile(None)
            os.waitpid(pid, 0)
            producer.send(b"")
            assert left <= 0 or times > 1, name
