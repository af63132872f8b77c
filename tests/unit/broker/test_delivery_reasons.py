"""A test for each reason why a subscription delivers nothing that follows from the subscription alone.

The name of a test is `test_` and the reason's code. Reasons of the topic are in admin/test_explain.py, which checks
that each reason of the table has a test.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from magnetar_broker.errors import BrokerError, TopicUnloaded
from magnetar_broker.managed_ledger.log_entry import Chunk
from magnetar_broker.position import Position
from magnetar_broker.topics.consumer import Consumer
from magnetar_broker.topics.dispatch.delivery_capacity import OutboxBudget, OutboxCapacity
from magnetar_broker.topics.dispatch.held_keys import HeldKeys, tag_without_hold
from magnetar_broker.topics.dispatch.key_shared_reasons import find_waiting_keys
from magnetar_broker.topics.dispatch.waiting_keys import WaitingKeys
from magnetar_broker.topics.subscription_reasons import find_unopened_reasons
from magnetar_protos.broker_pb2 import ErrorCode, KeySharedMode, KeySharedOptions, SlotRange, SubscriptionType
from magnetar_wire import delivery_reasons
from magnetar_wire.delivery_reasons import REASONS, DeliveryReason
from tests.unit.broker.cursor_scene import running_cursor_scene
from tests.unit.broker.recording_sink import RecordingSink
from tests.unit.broker.subscription_scene import EARLIEST, LATEST, Scene, ack, at_position, redeliver, settle
from tests.unit.broker.test_damaged_cursors import destroy, open_without_bookies, subscriptions_of, with_ledgers

SHARED, FAILOVER = SubscriptionType.SHARED, SubscriptionType.FAILOVER
KEY_SHARED = SubscriptionType.KEY_SHARED


def _codes(scene: Scene) -> list[str]:
    return [one.code for one in scene.stats().reasons]


def _answer(scene: Scene) -> DeliveryReason:
    return scene.stats().reasons[0]


def _of_consumer(scene: Scene, name: str) -> DeliveryReason | None:
    (found,) = [one.reason for one in scene.stats().consumers if one.name == name]
    return found


@pytest.mark.parametrize("kind", REASONS.values(), ids=lambda kind: kind.code)
def test_texts_of_reasons_are_whole(kind: delivery_reasons.ReasonKind) -> None:
    """ADM-3: a text of one line, and what to do."""
    for text in (kind.text, kind.meaning, kind.action):
        assert text
        assert "\n" not in text
    assert kind.code == kind.code.lower()


async def test_no_consumer() -> None:
    """ADM-3"""
    scene = Scene()
    await scene.subscriptions.create("s", EARLIEST)
    scene.add(2)
    assert _codes(scene) == ["no_consumer"]
    consumer, _ = await scene.subscribe(permits=0)
    assert "no_consumer" not in _codes(scene)
    consumer.leave()
    assert (_codes(scene), scene.stats().blocked_by) == (["no_consumer"], "no consumer is connected")


async def test_no_backlog() -> None:
    """ADM-3: nothing is wrong, and statistics do not count it as blocked."""
    scene = Scene()
    consumer, gets = await scene.subscribe()
    entries = scene.add(2)
    assert _codes(scene) == ["waiting_for_acks"]
    ack(consumer, *gets.take())
    answer = _answer(scene)
    assert (answer.code, answer.facts, answer.kind.is_normal) == ("no_backlog", {"position": str(entries[1])}, True)
    assert (scene.stats().blocked_by, scene.stats().is_blocked) == ("", False)


async def test_end_of_topic() -> None:
    """ADM-3"""
    scene = Scene()
    consumer, gets = await scene.subscribe()
    scene.add(1)
    scene.log.is_terminated = True
    assert _codes(scene) == ["waiting_for_acks"]
    ack(consumer, *gets.take())
    assert _codes(scene) == ["end_of_topic"]


async def test_waiting_for_acks() -> None:
    """ADM-3: to whom, since when and with how many."""
    scene = Scene()
    one, gets_one = await scene.subscribe(kind=SHARED, consumer="one")
    await scene.subscribe(kind=SHARED, consumer="two")
    scene.clock.advance(5)
    scene.add(5)
    now_ms = scene.clock.time_ms()
    answer = _answer(scene)
    assert answer.code == "waiting_for_acks"
    assert answer.facts["delivered"] == "5 entries"
    assert answer.facts["delivered_ms"] == now_ms
    assert answer.facts["acknowledged_ms"] == 0
    assert "one (3 messages), two (2 messages)" in answer.text
    assert "last acknowledgement: never" in answer.text
    ack(one, *gets_one.take())
    assert "two (2 messages)" in _answer(scene).text
    assert _of_consumer(scene, "one") is None
    reason = _of_consumer(scene, "two")
    assert reason is not None
    assert reason.facts["delivered"] == "2 messages"


@pytest.mark.parametrize("kind", [FAILOVER, SHARED])
async def test_no_permits(kind: SubscriptionType) -> None:
    """ADM-3: of all consumers, and of one of them."""
    scene = Scene()
    consumer, _ = await scene.subscribe(kind=kind, consumer="one", permits=2)
    scene.add(3)
    assert (_answer(scene).code, _answer(scene).facts) == ("no_permits", {"who": "consumer one"})
    assert _of_consumer(scene, "one") == _answer(scene)
    consumer.flow(consumer.epoch, 10)
    await settle()
    assert _codes(scene) == ["waiting_for_acks"]


async def test_max_unacked_consumer() -> None:
    """ADM-3, ACK-3"""
    scene = Scene(max_unacked_messages_per_consumer=2)
    one, gets = await scene.subscribe(kind=SHARED, consumer="one")
    await scene.subscribe(kind=SHARED, consumer="two")
    entries = scene.add(5)
    answer = _answer(scene)
    assert (answer.code, answer.facts) == (
        "max_unacked_consumer",
        {"who": "all 2 consumers", "messages": 4, "limit": 2},
    )
    reason = _of_consumer(scene, "one")
    assert reason is not None
    assert reason.facts["messages"] == 2
    ack(one, *gets.take())
    await settle()
    assert len(entries) == 5
    assert _answer(scene).code == "waiting_for_acks"


async def test_max_unacked_subscription() -> None:
    """ADM-3, ACK-3"""
    scene = Scene(max_unacked_messages_per_subscription=3)
    one, gets = await scene.subscribe(kind=SHARED)
    scene.add(5)
    assert (_answer(scene).code, _answer(scene).facts) == ("max_unacked_subscription", {"messages": 3, "limit": 3})
    ack(one, *gets.take())
    await settle()
    assert _codes(scene) == ["waiting_for_acks"]


async def test_not_active() -> None:
    """ADM-3: which consumer is active, and why."""
    scene = Scene()
    await scene.subscribe(kind=FAILOVER, consumer="one")
    await scene.subscribe(kind=FAILOVER, consumer="two")
    await scene.subscribe(kind=FAILOVER, consumer="three", priority=1)
    scene.add(1)
    assert _of_consumer(scene, "one") is None
    second, third = _of_consumer(scene, "two"), _of_consumer(scene, "three")
    assert second is not None
    assert third is not None
    assert (second.code, second.facts["active"], second.facts["cause"]) == ("not_active", "one", "it subscribed first")
    assert "its priority level is 0, and this one's is 1" in third.text
    share = Scene(topic="t-partition-1")
    for name in ("a", "b"):
        await share.subscribe(kind=FAILOVER, consumer=name)
    reason = _of_consumer(share, "a")
    assert reason is not None
    assert "share the partitions" in reason.text


async def test_lower_priority() -> None:
    """ADM-3"""
    scene = Scene()
    await scene.subscribe(kind=SHARED, consumer="first", priority=1, permits=2)
    await scene.subscribe(kind=SHARED, consumer="later", priority=4)
    reason = _of_consumer(scene, "later")
    assert reason is not None
    assert (reason.code, reason.facts) == ("lower_priority", {"level": 1, "own": 4})
    assert _of_consumer(scene, "first") is None
    scene.add(3)
    after = _of_consumer(scene, "later")
    assert after is None or after.code == "waiting_for_acks"


async def test_slow_connection() -> None:
    """ADM-3"""
    scene = Scene()
    slow, gets = await scene.subscribe(kind=SHARED, consumer="slow")
    gets.outbox_capacity.free = 0
    gets.outbox_capacity.queued_bytes = 77
    scene.add(1)
    assert (_answer(scene).code, _answer(scene).facts) == ("slow_connection", {"who": "consumer slow", "bytes": 77})
    gets.outbox_capacity.free = 1_000
    slow.on_outbox_capacity()
    assert _codes(scene) == ["waiting_for_acks"]


def test_broker_memory() -> None:
    """ADM-3: all connections together; each may queue a little in any case."""
    budget = OutboxBudget(1_000_000)
    other, own = (OutboxCapacity(1_000_000, budget, lambda: None) for _ in range(2))
    own.add(300_000)
    assert own.find_shortage("c") is None
    other.add(700_000)
    reason = own.find_shortage("c")
    assert reason is not None
    assert (reason.code, reason.facts) == ("broker_memory", {"who": "c", "bytes": 1_000_000, "limit": 1_000_000})
    own.add(700_000)
    reason = own.find_shortage("c")
    assert reason is not None
    assert reason.code == "slow_connection"


async def test_closing() -> None:
    """ADM-3"""
    scene = Scene()
    consumer, _ = await scene.subscribe(consumer="one")
    consumer.stop_delivery()
    scene.add(1)
    assert (_answer(scene).code, _answer(scene).facts) == ("closing", {"who": "consumer one"})


async def test_chunks_wait() -> None:
    """ADM-3: for the consumer that has the first chunk."""
    scene = Scene()
    one, _ = await scene.subscribe(kind=SHARED, consumer="one", permits=1)
    scene.log.add(chunk=Chunk(1, 0, False))
    scene.log.on_appended()
    await scene.subscribe(kind=SHARED, consumer="two")
    scene.log.add(chunk=Chunk(1, 1, True))
    scene.log.on_appended()
    answer = _answer(scene)
    assert (answer.code, answer.facts) == ("chunks_wait", {"chunks": 1, "who": "consumer one"})
    one.flow(one.epoch, 5)
    await settle()
    assert _codes(scene) == ["waiting_for_acks"]


async def _hold_a_key(scene: Scene, *, permits_of_second: int = 1_000) -> tuple[Consumer, RecordingSink]:
    """Deliver two entries of each of 20 keys to one consumer, then let another one take over half of the keys, and add
    another entry of each."""
    one, gets = await scene.subscribe(kind=KEY_SHARED, consumer="one")
    for _ in range(2):
        for number in range(20):
            scene.log.add(key=f"key {number}")
    scene.log.on_appended()
    await scene.subscribe(kind=KEY_SHARED, consumer="two", permits=permits_of_second)
    for number in range(20):
        scene.log.add(key=f"key {number}")
    scene.log.on_appended()
    await settle()
    return one, gets


async def test_key_held() -> None:
    """ADM-3, SUB-6: how many keys and entries wait, and for whom."""
    scene = Scene()
    one, gets = await _hold_a_key(scene)
    answer = _answer(scene)
    facts = answer.facts
    assert (answer.code, facts["holder"], facts["unacked"]) == ("key_held", "one", 2)
    assert facts["slots"] == facts["entries"] == 60 - len(gets.positions) > 0
    assert f"slot {facts['slot']}" in answer.text
    of_second = _of_consumer(scene, "two")
    assert of_second is not None
    assert (of_second.code, of_second.facts) == (answer.code, facts)
    assert (of_holder := _of_consumer(scene, "one")) is not None
    assert of_holder.code == "waiting_for_acks"
    ack(one, *gets.take())
    await settle()
    assert "key_held" not in _codes(scene)
    assert (after := _of_consumer(scene, "two")) is not None
    assert after.code == "waiting_for_acks"


async def test_a_consumer_without_permits_has_that_reason_first() -> None:
    """ADM-3: although its keys are held, too."""
    scene = Scene()
    await _hold_a_key(scene, permits_of_second=0)
    assert "key_held" in _codes(scene)
    assert (reason := _of_consumer(scene, "two")) is not None
    assert reason.code == "no_permits"


async def test_look_ahead() -> None:
    """ADM-3, SUB-6: the bound, and what waits for whom."""
    scene = Scene(key_shared_look_ahead_msg_in_replay_threshold_per_subscription=2)
    await _hold_a_key(scene)
    answer, held = scene.stats().reasons[:2]
    assert (answer.code, answer.facts["limit"], held.code) == ("look_ahead", 2, "key_held")
    assert int(answer.facts["entries"]) >= 2


async def test_look_ahead_needs_entries_that_were_not_read() -> None:
    """ADM-3, SUB-6"""
    scene = Scene(key_shared_look_ahead_msg_in_replay_threshold_per_subscription=2)
    await scene.subscribe(kind=KEY_SHARED, consumer="one")
    for number in range(20):
        scene.log.add(key=f"key {number}")
    scene.log.on_appended()
    await scene.subscribe(kind=KEY_SHARED, consumer="two")
    for number in range(20):
        if scene.stats().redelivery_entries < 2:
            scene.log.add(key=f"key {number}")
            scene.log.on_appended()
            await settle()
    assert scene.stats().redelivery_entries == 2
    assert "key_held" in _codes(scene)
    assert "look_ahead" not in _codes(scene)
    scene.log.add(key="new")
    scene.log.on_appended()
    await settle()
    assert "look_ahead" in _codes(scene)


async def test_keys_wait() -> None:
    """ADM-3, SUB-5: entries of the keys of a consumer without permits, while another one has permits."""
    scene = Scene()
    halves = [
        KeySharedOptions(mode=KeySharedMode.STICKY, ranges=[SlotRange(first=first, last=first + 32_767)])
        for first in (0, 32_768)
    ]
    slow, _ = await scene.subscribe(kind=KEY_SHARED, consumer="slow", permits=1, key_shared=halves[0])
    fast, gets = await scene.subscribe(kind=KEY_SHARED, consumer="fast", key_shared=halves[1])
    for number in range(20):
        scene.log.add(key=f"key {number}")
    scene.log.on_appended()
    await settle()
    of_slow = 20 - len(gets.positions)
    answer = _answer(scene)
    assert (answer.code, answer.facts["entries"], answer.facts["who"]) == ("keys_wait", of_slow - 1, "consumer slow")
    assert "the receiver queue of consumer slow is full" in answer.text
    assert not answer.kind.is_normal
    ack(fast, *gets.take())
    fast.leave()
    await settle()
    assert _codes(scene) == ["no_permits"]
    slow.flow(slow.epoch, 100)
    await settle()
    assert _codes(scene) == ["waiting_for_acks"]


async def test_slot_without_consumer() -> None:
    """ADM-3, SUB-12: keys in a gap of the consumers' ranges."""
    scene = Scene()
    half = KeySharedOptions(mode=KeySharedMode.STICKY, ranges=[SlotRange(first=0, last=32_767)])
    await scene.subscribe(kind=KEY_SHARED, consumer="one", key_shared=half)
    for number in range(20):
        scene.log.add(key=f"key {number}")
    scene.log.on_appended()
    await settle()
    answer = _answer(scene)
    assert answer.code == "slot_without_consumer"
    assert int(answer.facts["slot"]) > 32_767
    rest = KeySharedOptions(mode=KeySharedMode.STICKY, ranges=[SlotRange(first=32_768, last=65_535)])
    await scene.subscribe(kind=KEY_SHARED, consumer="two", key_shared=rest)
    await settle()
    assert _codes(scene) == ["waiting_for_acks"]


async def test_reasons_of_waiting_keys_count_the_first_slots_only() -> None:
    """ADM-3, SUB-6: so statistics of all slots take a bounded time."""
    scene = Scene()
    old, _ = await scene.subscribe(kind=KEY_SHARED, consumer="old")
    waiting, held = WaitingKeys(), HeldKeys()
    slots = range(1_100)
    waiting.add_each([Position(1, slot) for slot in slots], [None for _ in slots], slots)
    without = {"entries": 1_000, "slot": 0}
    assert [one.facts for one in find_waiting_keys(waiting, held)] == [without]
    held.record_deliveries(old, map(tag_without_hold, slots))
    found = [(one.code, one.facts) for one in find_waiting_keys(waiting, held)]
    assert found == [("key_held", {"entries": 1_000, "slots": 1_000, "slot": 0, "holder": "old", "unacked": 1})]


@pytest.mark.parametrize("has_backlog", [False, True])
async def test_mixed_batches(has_backlog: bool) -> None:
    """ADM-3, SUB-13: how many, also when the subscription has delivered all or has no consumer any more."""
    scene = Scene()
    consumer, _ = await scene.subscribe(kind=KEY_SHARED)
    if has_backlog:
        scene.log.add(key="a")
    assert "mixed_batches" not in _codes(scene)
    consumer.subscription.counters.mixed_batches = 3
    assert (_codes(scene)[-1], scene.stats().reasons[-1].facts) == ("mixed_batches", {"batches": 3})
    consumer.leave()
    assert (_codes(scene)[-1], scene.stats().reasons[-1].facts) == ("mixed_batches", {"batches": 3})


async def test_redelivery_waits() -> None:
    """ADM-3: beside what holds it back."""
    scene = Scene()
    consumer, gets = await scene.subscribe(kind=SHARED, permits=2)
    scene.add(2)
    redeliver(consumer, *gets.take())
    assert _codes(scene) == ["no_permits", "redelivery_waits"]
    assert scene.stats().reasons[1].facts == {"entries": 2}
    consumer.flow(consumer.epoch, 5)
    await settle()
    assert _codes(scene) == ["waiting_for_acks"]


@pytest.mark.parametrize("level", ["subscription", "topic"])
async def test_dispatch_rate_of_a_level(level: str) -> None:
    """ADM-3, RET-4: which rate, and until when."""
    options: dict[str, Any] = {f"dispatch_throttling_rate_per_{level}_in_msg": 2}
    scene = Scene(**options)
    await scene.subscribe()
    scene.add(5)
    answer = _answer(scene)
    assert answer.code == f"dispatch_rate_of_{level}"
    assert f"the dispatch rate of the {level} is at its maximum of 2 messages a second" in answer.text
    assert scene.clock.time_ms() <= int(answer.facts["until_ms"]) <= scene.clock.time_ms() + 1_000


async def test_read_failed() -> None:
    """ADM-3, CHK-67: which entry of which ledger, and the error."""
    scene = Scene()
    (entry,) = scene.add(1)
    scene.log.fails = BrokerError(ErrorCode.PERSISTENCE_ERROR, "no bookie answers")
    await scene.subscribe()
    await settle()
    answer = _answer(scene)
    facts = {"times": 1, "position": str(entry), "ledger": entry.ledger_id, "error": "no bookie answers"}
    assert (answer.code, answer.facts) == ("read_failed", facts)
    assert f"bookies of ledger {entry.ledger_id}" in answer.action
    # While it is retried, it is the same.
    scene.log.gate = asyncio.Event()
    scene.clock.advance(1)
    await settle()
    assert _answer(scene).code == "read_failed"
    scene.log.fails = None
    scene.log.gate.set()
    await settle()
    assert _codes(scene) == ["waiting_for_acks"]


async def test_reading() -> None:
    """ADM-3: since when."""
    scene = Scene()
    scene.log.is_cached = False
    scene.log.gate = asyncio.Event()
    scene.add(1)
    scene.clock.advance(3)
    await scene.subscribe()
    await settle()
    assert (_answer(scene).code, _answer(scene).facts) == ("reading", {"since_ms": scene.clock.time_ms()})
    scene.log.gate.set()
    await settle()
    assert _codes(scene) == ["waiting_for_acks"]


async def test_topic_closing() -> None:
    """ADM-3"""
    scene = Scene()
    scene.add(1)
    scene.log.is_cached = False
    scene.log.fails = TopicUnloaded("it is moved")
    await scene.subscribe()
    await settle()
    assert (_answer(scene).code, _answer(scene).facts) == ("topic_closing", {"error": "it is moved"})


async def _hold(scene: Scene) -> tuple[Consumer, asyncio.Event]:
    """Open a consumer of a subscription whose changes wait."""
    consumer, _ = await scene.subscribe(permits=0)
    cursor = scene.cursors.get("s")
    assert cursor is not None
    gate = cursor.gate = scene.cursors.gate = asyncio.Event()
    return consumer, gate


async def test_changing() -> None:
    """ADM-3: which change."""
    scene = Scene()
    entries = scene.add(3)
    consumer, gate = await _hold(scene)
    seek = asyncio.create_task(consumer.seek(at_position(entries[1])))
    skip = asyncio.create_task(scene.subscriptions.skip("s", 1))
    await settle()
    assert (_answer(scene).code, _answer(scene).facts) == ("changing", {"change": "a seek"})
    gate.set()
    await asyncio.gather(seek, skip)
    assert _codes(scene) == ["no_permits"]


async def test_deleting() -> None:
    """ADM-3"""
    scene = Scene()
    scene.add(3)
    consumer, gate = await _hold(scene)
    deletion = asyncio.create_task(consumer.unsubscribe())
    await settle()
    assert _answer(scene).code == "deleting"
    gate.set()
    await deletion


async def test_cursor_damaged() -> None:
    """ADM-3, CHK-67"""
    async with running_cursor_scene() as scene:
        destroy(scene, (await with_ledgers(scene))["bad"], 0)
        table = await scene.open()
        (stats,) = [one for one in subscriptions_of(scene, table).stats() if one.name == "bad"]
        assert [one.code for one in stats.reasons] == ["cursor_damaged"]
        assert stats.is_blocked
        assert "can't be read" in stats.reasons[0].text
        assert "subscriptions reset" in stats.reasons[0].action


async def test_cursor_opening() -> None:
    """ADM-3"""
    async with running_cursor_scene() as scene:
        table = await open_without_bookies(scene)
        reasons = [find_unopened_reasons(one) for one in table.unopened_cursors()]
        assert [one.code for some in reasons for one in some] == ["cursor_opening"] * 2
        assert reasons[0][0].text == "its cursor is being opened"


async def test_reader_progress() -> None:
    """ADM-3: whose."""
    scene = Scene()
    properties = {"magnetar.progress-owner": "id", "magnetar.progress-owner-name": "nightly job"}
    await scene.subscriptions.create("s", EARLIEST, properties)
    scene.add(1)
    assert (_answer(scene).code, _answer(scene).facts) == ("reader_progress", {"owner": "nightly job"})


async def test_expired() -> None:
    """ADM-3: messages that the time to live removed."""
    scene = Scene()
    scene.add(2)
    await scene.subscribe(permits=0)
    assert await scene.subscriptions.expire("s", 0) == 2
    assert _codes(scene) == ["no_backlog", "expired"]
    assert scene.stats().reasons[1].facts["entries"] == 2


async def test_entries_lost() -> None:
    """ADM-3, CHK-67"""
    scene = Scene()
    entries = scene.add(2)
    scene.log.lost.append(entries[0])
    await scene.subscribe()
    await settle()
    assert _codes(scene) == ["waiting_for_acks", "entries_lost"]
    assert scene.stats().reasons[1].facts == {"entries": 1}


async def test_delivering() -> None:
    """ADM-3: nothing holds it back, while it waits for a turn of the event loop only."""
    scene = Scene()
    await scene.subscribe(start=LATEST)
    on_appended, scene.log.on_appended = scene.log.on_appended, lambda: None
    scene.add(1)
    assert _codes(scene) == ["delivering"]
    assert not scene.stats().is_blocked
    on_appended()
    assert _codes(scene) == ["waiting_for_acks"]
