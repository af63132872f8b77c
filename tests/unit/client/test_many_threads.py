"""Many threads on one synchronous producer while its connection breaks again and again."""

from __future__ import annotations

import threading
import time

import pytest

from magnetar import MessageId, Result
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_testing.randomness import SeededRandomness
from tests.running import GENEROUS_S
from tests.unit.client.scene import sync_scene

THREADS = 4
EACH = 3_000
# How often the connection breaks. The producer's pauses get longer each time.
FAULTS = 20


@pytest.mark.slow
@pytest.mark.parametrize("batching", [True, False])
def test_each_callback_is_called_once_and_each_thread_s_messages_stay_in_order(
    batching: bool,
) -> None:
    """PRD-9, PRD-10, CHK-33"""
    with sync_scene() as made, made.client() as client:
        producer = client.create_producer(
            "t", max_pending_messages=200, block_if_queue_full=True, batching_enabled=batching, batching_max_messages=50
        )
        results: dict[bytes, list[tuple[Result, MessageId | None]]] = {}

        def send(name: int) -> None:
            for number in range(EACH):
                content = b"%d:%d" % (name, number)
                outcomes = results[content] = []
                if number % 500 == 499:
                    outcomes.append((Result.Ok, producer.send(content)))
                else:
                    producer.send_async(content, lambda *outcome, own=outcomes: own.append(outcome))

        threads = [threading.Thread(target=send, args=(name,)) for name in range(THREADS)]
        for thread in threads:
            thread.start()
        chance = SeededRandomness(7)
        faults = 0
        deadline = time.monotonic() + GENEROUS_S
        while any(thread.is_alive() for thread in threads):
            assert time.monotonic() < deadline, "there is no progress"
            if faults == FAULTS or not producer.is_connected():
                pass
            elif chance.random() < 0.3:
                faults += 1
                made.on_loop(lambda broker: broker.break_streams())
            elif chance.random() < 0.3:
                faults += 1
                made.on_loop(lambda broker: broker.end_producers(broker.topic("t"), ErrorCode.SERVICE_NOT_READY))
            threads[0].join(0.02)
        producer.flush()
        assert len(results) == THREADS * EACH
        topic = made.on_loop(lambda broker: broker.topic("t").messages())
        stored = {
            (entry, index if len(messages) > 1 else -1): payload
            for entry, messages in enumerate(topic)
            for index, payload in enumerate(messages.payloads)
        }
        for content, outcomes in results.items():
            ((result, message_id),) = outcomes
            assert result is Result.Ok
            assert message_id is not None
            assert stored[message_id.entry_id(), message_id.batch_index()] == content
        first_seen = list(dict.fromkeys(stored.values()))
        for name in range(THREADS):
            own = [payload for payload in first_seen if (payload or b"").startswith(b"%d:" % name)]
            assert own == [b"%d:%d" % (name, number) for number in range(EACH)]
