"""Ctrl-C at any moment of a send, many times, as in a notebook whose user goes on with the same producer."""

from __future__ import annotations

import time

import pytest

from magnetar import BatchingType, MessageId, Result
from tests.running import GENEROUS_S
from tests.unit.client.interrupter import INTERRUPTS, Interrupted, Interrupter
from tests.unit.client.scene import sync_scene


@pytest.mark.parametrize("batching_type", BatchingType)
def test_an_interrupted_send_is_sent_whole_or_not_at_all_and_affects_no_other(batching_type: BatchingType) -> None:
    """PRD-1, PRD-5: no message is mixed up, reported twice, or pending for ever."""
    with sync_scene() as made, made.client() as client, Interrupter() as interrupter:
        producer = client.create_producer(
            "t",
            max_pending_messages=300,
            block_if_queue_full=True,
            batching_max_messages=20,
            batching_type=batching_type,
        )
        results: dict[bytes, list[tuple[Result, MessageId | None]]] = {}
        whole: list[bytes] = []
        number = 0
        deadline = time.monotonic() + GENEROUS_S
        while interrupter.hits < INTERRUPTS and time.monotonic() < deadline:
            number += 1
            content = b"%d" % number
            outcomes = results[content] = []
            key = f"key of {number % 5}" if number % 11 == 0 else None
            try:
                interrupter.armed = True
                if number % 37 == 0:
                    producer.send(content, partition_key=key)
                    outcomes.append((Result.Ok, None))
                else:
                    producer.send_async(content, lambda *outcome, own=outcomes: own.append(outcome), partition_key=key)
                interrupter.armed = False
                whole.append(content)
            except Interrupted:
                pass
        interrupter.armed = False
        producer.flush()
        stored: dict[tuple[int, int], bytes | None] = {}
        for entry, messages in enumerate(made.on_loop(lambda broker: broker.topic("t").messages())):
            for index, payload in enumerate(messages.payloads):
                stored[entry, index if len(messages) > 1 else -1] = payload
                stored_key = None if messages.keys is None else messages.keys[index]
                sent = int(payload or b"")
                assert stored_key == (f"key of {sent % 5}" if sent % 11 == 0 else None)
        assert len(set(stored.values())) == len(stored), "each is stored once"
        assert set(whole) <= set(stored.values())
        for content, outcomes in results.items():
            assert len(outcomes) == 1 or (not outcomes and content not in whole)
            for result, message_id in outcomes:
                assert result is Result.Ok
                if message_id is not None:
                    assert stored[message_id.entry_id(), message_id.batch_index()] == content
