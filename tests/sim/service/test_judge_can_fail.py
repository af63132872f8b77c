"""Each check of messages reports a small constructed history with its violation, and accepts one without it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import cast

import pytest

from magnetar.exceptions import IncarnationChanged, MessageTooBig, StaleEpoch, Timeout
from magnetar_protos.broker_pb2 import (
    FAILOVER,
    KEY_SHARED,
    SHARED,
    ActiveChanged,
    ConsumerOpened,
    EpochBegan,
    OpenConsumer,
    Problem,
    ProduceAnswer,
    Receipt,
    Redeliver,
)
from magnetar_protos.managed_ledger_pb2 import DELETING
from magnetar_wire.message_id import MessageId
from tests.sim.invariants.history import Violation
from tests.sim.service.bundle_owners import check_bundles
from tests.sim.service.held_keys import HeldKeys, KeyedEntry
from tests.sim.service.history import ConsumerSeen, Found, ProducerSeen
from tests.sim.service.judge_scene import MESSAGES, TOPIC, Scene, at
from tests.sim.service.subscription_acks import WireAck
from tests.sim.world.metadata import SimulatedMetadata


def well(scene: Scene) -> None:
    """A whole run without violations."""
    scene.opens()
    scene.delivers(0, 1, 2)
    for number in range(3):
        scene.given(number)
    scene.asks_receipt(0)
    scene.gives_receipt()
    scene.acknowledges(0)
    scene.sends_answer(epochs=[EpochBegan(consumer_id=1, epoch=2, acknowledged_from=2)])
    scene.asks_receipt(1, request=2)
    scene.gives_receipt(request=2, problem=Problem())
    scene.history.acknowledging(scene.consumer, [at(1)], cumulative=False, receipt=True)
    scene.history.acknowledge_failed(scene.consumer, [at(1)], StaleEpoch("late"), cumulative=False)
    scene.delivers(1, 2, epoch=2)
    scene.given(1)
    scene.owned(1)
    scene.opens(1, stream=2)
    scene.delivers(1, 2, broker=1, stream=2)
    scene.given(1)
    scene.asks_receipt(1, broker=1, stream=2)
    scene.gives_receipt(broker=1, stream=2)
    scene.acknowledges(1)
    scene.sends(3)
    scene.history.stored(scene.producer, MESSAGES[3], at(3))
    scene.found(0, 1, 2, 3)
    scene.opens(1, stream=3, name="last")
    scene.delivers(2, 3, broker=1, stream=3)
    scene.drains(2, 3)


# ── messages ──


def never_sent(scene: Scene) -> None:
    scene.found(0, 1, 2, 3)


def lost_behind_the_beginning(scene: Scene) -> None:
    scene.found(0, 2, indexes=(0, 1))


def trimmed_before_it_was_acknowledged(scene: Scene) -> None:
    scene.found(1, 2)


def two_receipts_for_one_position(scene: Scene) -> None:
    scene.sends(3)
    scene.history.stored(scene.producer, MESSAGES[3], at(2))


def receipt_outside_of_the_topic(scene: Scene) -> None:
    scene.sends(3)
    scene.history.stored(scene.producer, MESSAGES[3], at(0, 99))


def receipts_out_of_order(scene: Scene) -> None:
    for payload in (b"first", b"second"):
        scene.history.sending(scene.producer, payload)
    scene.history.stored(scene.producer, b"second", at(3))
    scene.history.stored(scene.producer, b"first", at(4))


def found_behind_what_was_sent_later(scene: Scene) -> None:
    for payload in (b"first", b"second"):
        scene.history.sending(scene.producer, payload)
    found = [*MESSAGES[:3], b"second", b"first"]
    scene.history.found(TOPIC, [Found(at(number), payload, number) for number, payload in enumerate(found)])


def stored_again_after_its_receipt(scene: Scene) -> None:
    found = [*MESSAGES[:3], MESSAGES[1]]
    scene.history.found(TOPIC, [Found(at(number), payload, number) for number, payload in enumerate(found)])


def stored_twice_with_deduplication(scene: Scene) -> None:
    scene.history.published.deduplicates = True
    scene.history.sending(scene.producer, b"first")
    found = [*MESSAGES[:3], b"first", b"first"]
    scene.history.found(TOPIC, [Found(at(number), payload, number) for number, payload in enumerate(found)])


def a_reported_duplicate_that_is_nowhere(scene: Scene) -> None:
    scene.history.published.deduplicates = True
    scene.sends(3)
    scene.history.stored(scene.producer, MESSAGES[3], MessageId(ledger_id=-1, entry_id=-1))
    scene.found(0, 1, 2)


def an_index_with_a_gap(scene: Scene) -> None:
    scene.found(0, 1, 2, indexes=(0, 1, 3))


def refused_and_found(scene: Scene) -> None:
    scene.sends(3)
    scene.history.send_failed(scene.producer, MESSAGES[3], MessageTooBig("it is"))
    scene.found(0, 1, 2, 3)


def two_writers(scene: Scene) -> None:
    """b1 has the topic, and stores in ledger 8; then something new is stored in ledger 7."""
    scene.owned(1, 7, 8)
    scene.sends(3)
    scene.history.stored(scene.producer, MESSAGES[3], at(0, 8))
    other = ProducerSeen("q", "t")
    scene.history.sending(other, b"new")
    scene.history.stored(other, b"new", at(3))


def back_after_its_successor(scene: Scene) -> None:
    former, leader = (ProducerSeen(name, "t", is_exclusive=True) for name in ("former", "leader"))
    sent = [(former, b"t|former|1|"), (leader, b"t|leader|1|"), (former, b"t|former|2|")]
    for producer, payload in sent:
        scene.history.sending(producer, payload)
    found = [*MESSAGES[:3], *(payload for _, payload in sent)]
    scene.history.found(TOPIC, [Found(at(number), payload, number) for number, payload in enumerate(found)])


def stored_in_another_incarnation(scene: Scene) -> None:
    scene.sends(3)
    scene.owned(0, incarnation="i", state=DELETING)
    scene.owned(1, 8, incarnation="j")
    scene.history.stored(scene.producer, MESSAGES[3], at(0, 8))


def a_list_changed_by_another(scene: Scene) -> None:
    scene.owned(1, 7, 8, owner_epoch=b"owner epoch 0")


# ── subscriptions ──


def never_comes(scene: Scene) -> None:
    scene.drains(0, 2)


def never_comes_after_a_seek(scene: Scene) -> None:
    scene.acknowledges(1, cumulative=True)
    scene.moves(MessageId.earliest)
    scene.found(0, 1, 2)
    scene.drains(2)


def a_reset_is_undone(scene: Scene) -> None:
    """By a consumer that had its messages before."""
    for number in range(3):
        scene.given(number)
    scene.moves(MessageId.earliest)
    scene.acknowledges(2, cumulative=True, receipt=False)
    scene.found(0, 1, 2)
    scene.drains()


def a_deleted_subscription_is_read_on(scene: Scene) -> None:
    scene.history.cursor_changed(TOPIC, "s", None, scene.b[0])
    scene.sends(3)
    scene.given(3)


def a_late_acknowledgement_has_its_receipt(scene: Scene) -> None:
    scene.given(1)
    scene.moves(MessageId.earliest)
    scene.acknowledges(1)


def acknowledgement_of_a_deleted_topic(scene: Scene) -> None:
    scene.given(1)
    scene.owned(0, state=DELETING)
    scene.owned(1, 8, incarnation="j")
    scene.acknowledges(1)


def another_message_than_the_one_that_is_there(scene: Scene) -> None:
    scene.given(1, where=2)


def a_reader_goes_back(scene: Scene) -> None:
    reader = ConsumerSeen("r", "t", "reader r", "EXCLUSIVE", durable=False, is_reader=True)
    scene.given(1, reader)
    scene.given(1, reader)


# ── streams ──


def comes_again_after_its_receipt(scene: Scene) -> None:
    scene.opens()
    scene.delivers(0)
    scene.asks_receipt(0)
    scene.gives_receipt()
    scene.owned(1)
    scene.opens(1, stream=2)
    scene.delivers(0, broker=1, stream=2)


def comes_again_on_the_same_stream(scene: Scene) -> None:
    scene.opens(kind=SHARED)
    scene.delivers(0)
    scene.asks_receipt(0)
    scene.gives_receipt()
    scene.delivers(0)


def a_zombie_gives_receipts(scene: Scene) -> None:
    scene.opens()
    scene.delivers(0)
    scene.owned(1)
    scene.opens(1, stream=2)
    scene.asks_receipt(0)
    scene.gives_receipt()


def a_receipt_in_an_old_epoch(scene: Scene) -> None:
    scene.opens()
    scene.delivers(0)
    scene.sends_answer(epochs=[EpochBegan(consumer_id=1, epoch=2, acknowledged_from=2)])
    scene.asks_receipt(0)
    scene.gives_receipt()


def a_receipt_for_one_that_is_not_served(scene: Scene) -> None:
    scene.opens(kind=FAILOVER)
    scene.delivers(0)
    scene.sends_answer(active=[ActiveChanged(consumer_id=1, active=False)])
    scene.asks_receipt(0)
    scene.gives_receipt()


def deliveries_go_back_within_an_epoch(scene: Scene) -> None:
    scene.opens()
    scene.delivers(1, 0)


def two_have_one_entry(scene: Scene) -> None:
    scene.opens(kind=SHARED)
    scene.opens(stream=2, name="l", kind=SHARED)
    scene.delivers(0)
    scene.asks(redeliver=[Redeliver(consumer_id=1, epoch=1)])
    scene.delivers(0, stream=2)
    scene.delivers(0)  # it was in flight when the redelivery was requested
    assert not scene.violations
    scene.delivers(0, epoch=2)


# ── Key_Shared: entries 0, 1 and 3 have one key ──


def two_consumers(scene: Scene) -> None:
    scene.opens(kind=KEY_SHARED)
    scene.opens(stream=2, name="l", kind=KEY_SHARED)


def a_key_at_two_consumers(scene: Scene) -> None:
    two_consumers(scene)
    scene.delivers(0)
    scene.delivers(2, stream=2)
    assert not scene.violations
    scene.delivers(1, stream=2)


def a_nacked_message_frees_its_key(scene: Scene) -> None:
    two_consumers(scene)
    scene.delivers(0)
    scene.asks(redeliver=[Redeliver(consumer_id=1, epoch=1)])
    scene.delivers(0, stream=2)


def a_key_is_free_before_its_last_message_is_acknowledged(scene: Scene) -> None:
    two_consumers(scene)
    scene.delivers(0, 1)
    scene.asks_receipt(0)
    scene.delivers(3, stream=2)


def a_message_of_a_consumer_that_left_is_overtaken(scene: Scene) -> None:
    two_consumers(scene)
    scene.delivers(0)
    scene.history.wire.ended(1)
    scene.delivers(1, stream=2)


def a_new_message_of_a_key_is_overtaken(scene: Scene) -> None:
    two_consumers(scene)
    scene.delivers(1)
    scene.delivers(0)


def test_a_key_goes_on_to_the_next_consumer_when_it_is_free() -> None:
    """SUB-6, CHK-35, CHK-53: acknowledged by any consumer, left behind by one, or void since a seek. Each broker's
    deliveries are judged alone.
    """
    scene = Scene()
    two_consumers(scene)
    scene.delivers(0, 1)
    scene.asks_receipt(0)
    scene.asks_receipt(1, stream=2)
    scene.delivers(3, stream=2)
    scene.history.wire.ended(2)
    scene.delivers(3)
    scene.owned(1)
    scene.opens(1, stream=3, name="m", kind=KEY_SHARED)
    scene.delivers(0, 1, broker=1, stream=3)
    scene.opens(1, stream=4, name="n", kind=KEY_SHARED)
    scene.moves(MessageId.earliest)
    scene.sends_answer(1, 3, epochs=[EpochBegan(consumer_id=1, epoch=2, acknowledged_from=2)])
    scene.delivers(0, broker=1, stream=4, epoch=3)
    assert not scene.violations


def test_a_batch_holds_its_key_until_all_of_its_messages_are_acknowledged() -> None:
    """CHK-53"""
    keys = HeldKeys(0, look=lambda _: None)
    keys.deliver(KeyedEntry((1, 0), "k", 0b111), 0, "A")
    keys.acknowledge(WireAck(1, parts={(1, 0): 0b011}))
    with pytest.raises(Violation, match=r"A holds \(1, 0\)"):
        keys.deliver(KeyedEntry((1, 1), "k", 1), 0, "B")
    keys.acknowledge(WireAck(2, parts={(1, 0): 0b100}))
    keys.deliver(KeyedEntry((1, 1), "k", 1), 0, "B")


def handed_out_from_an_old_epoch(scene: Scene) -> None:
    scene.opens()
    scene.delivers(0, 1)
    scene.given(0)
    scene.loop.now += 1
    scene.sends_answer(epochs=[EpochBegan(consumer_id=1, epoch=2, acknowledged_from=1)])
    scene.loop.now += 1
    scene.given(1)


def a_later_entry_of_its_key_is_handed_out(scene: Scene) -> None:
    scene.opens(kind=KEY_SHARED)
    scene.delivers(0, 1, 2)
    scene.given(0)
    scene.given(2)
    scene.sends_answer(epochs=[EpochBegan(consumer_id=1, epoch=2, acknowledged_from=1)])
    scene.delivers(0, 1, epoch=2)
    assert not scene.violations
    scene.given(1)


def served_without_a_session(scene: Scene) -> None:
    over = {scene.b[0]: scene.loop.time()}
    scene.history.sessions.metadata = cast("SimulatedMetadata", SimpleNamespace(over=over))
    answer = ProduceAnswer(receipts=[Receipt(producer_id=1, count=1)]).SerializeToString()
    for _ in range(2):
        assert not scene.violations
        scene.history.sessions.sent(1, scene.b[0], scene.client, "produce", answer, served=True)
        scene.loop.now += 2


def two_owners_of_one_hash(scene: Scene) -> None:
    check_bundles(["0x40000000_0x80000000", "0x00000000_0x40000000", "0x80000000_0xffffffff"], scene.history.look)
    check_bundles(["0x00000000_0x40000000", "0x20000000_0x40000000"], scene.history.look)


WRONG: list[tuple[str, Callable[[Scene], None]]] = [
    ("2", never_sent),
    ("2", lost_behind_the_beginning),
    ("2", trimmed_before_it_was_acknowledged),
    ("2", two_receipts_for_one_position),
    ("2", receipt_outside_of_the_topic),
    ("33", receipts_out_of_order),
    ("32", stored_twice_with_deduplication),
    ("32", a_reported_duplicate_that_is_nowhere),
    ("33", found_behind_what_was_sent_later),
    ("33", stored_again_after_its_receipt),
    ("MSG-5", an_index_with_a_gap),
    ("2", refused_and_found),
    ("OWN-2", two_writers),
    ("39", back_after_its_successor),
    ("57", stored_in_another_incarnation),
    ("30", a_list_changed_by_another),
    ("54", never_comes),
    ("52", never_comes_after_a_seek),
    ("69", a_reset_is_undone),
    ("69", a_deleted_subscription_is_read_on),
    ("52", a_late_acknowledgement_has_its_receipt),
    ("57", acknowledgement_of_a_deleted_topic),
    ("2", another_message_than_the_one_that_is_there),
    ("5", a_reader_goes_back),
    ("34", comes_again_after_its_receipt),
    ("34", comes_again_on_the_same_stream),
    ("OWN-2", a_zombie_gives_receipts),
    ("52", a_receipt_in_an_old_epoch),
    ("SUB-3", a_receipt_for_one_that_is_not_served),
    ("SUB-3", deliveries_go_back_within_an_epoch),
    ("SUB-4", two_have_one_entry),
    ("35", a_key_at_two_consumers),
    ("53", a_nacked_message_frees_its_key),
    ("53", a_key_is_free_before_its_last_message_is_acknowledged),
    ("SUB-6", a_message_of_a_consumer_that_left_is_overtaken),
    ("SUB-6", a_new_message_of_a_key_is_overtaken),
    ("52", handed_out_from_an_old_epoch),
    ("SUB-6", a_later_entry_of_its_key_is_handed_out),
    ("40", served_without_a_session),
    ("OWN-1", two_owners_of_one_hash),
]


def _first_violation(happens: Callable[[Scene], None]) -> Violation | None:
    scene = Scene()
    try:
        happens(scene)
    except Violation as violation:
        return violation
    return scene.violations[0] if scene.violations else None


def test_correct_history_has_no_violation() -> None:
    assert _first_violation(well) is None


@pytest.mark.parametrize(("item", "happens"), WRONG, ids=[happens.__name__ for _, happens in WRONG])
def test_a_check_can_fail(item: str, happens: Callable[[Scene], None]) -> None:
    violation = _first_violation(happens)
    assert violation is not None
    assert item in violation.item.split(", "), violation


def test_abandoned_opening_may_be_answered_late() -> None:
    """CHK-52: the client has left the first broker before that answered, and takes messages from the second."""
    scene = Scene()
    request = OpenConsumer(consumer_id=1, topic=TOPIC, subscription="s", consumer_name="k", durable=True)
    scene.asks(broker=1, open=[request])
    scene.opens(stream=2)
    scene.delivers(0, stream=2)
    scene.loop.now += 1
    scene.sends_answer(broker=1, opened=[ConsumerOpened(consumer_id=1, epoch=1, active=True)])
    scene.loop.now += 1
    scene.given(0)
    with pytest.raises(Violation, match="was not delivered in its epoch"):
        scene.given(1)


def test_seek_or_recreation_allows_redelivery() -> None:
    """A seek, and a subscription that is created again, void earlier acknowledgements; and of a message that waits for
    capacity when its topic is deleted nobody knows to which incarnation it goes.
    """
    scene = Scene()
    scene.opens()
    scene.delivers(0)
    scene.asks_receipt(0)
    scene.gives_receipt()
    scene.acknowledges(0)
    scene.moves(MessageId.earliest)
    scene.sends_answer(epochs=[EpochBegan(consumer_id=1, epoch=2, acknowledged_from=2)])
    scene.delivers(0, epoch=2)
    scene.given(0)
    scene.asks_receipt(0, epoch=2)
    scene.gives_receipt()
    scene.acknowledges(0)
    scene.history.cursor_changed(TOPIC, "s", None, scene.b[0])
    scene.subscribed()
    scene.opens(stream=2)
    scene.delivers(0, stream=2)
    assert not scene.violations
    scene.sends(3)
    scene.history.sending(scene.producer, b"waits")
    scene.owned(0, incarnation="i", state=DELETING)
    scene.history.send_failed(scene.producer, MESSAGES[3], IncarnationChanged("it is another one"))
    scene.owned(1, 8, incarnation="j")
    scene.history.stored(scene.producer, b"waits", at(0, 8))


@pytest.mark.parametrize("failed", [True, False])
def test_a_message_that_has_failed_is_not_sent_again_with_those_before_it(failed: bool) -> None:
    """CHK-33: first copies of both messages are trimmed, and the second message failed before the first was resent. One
    that has not failed is resent behind it.
    """
    scene = Scene()
    for number in range(3):
        scene.given(number)
    scene.acknowledges(0, 1, 2)
    for payload in (b"first", b"second"):
        scene.history.sending(scene.producer, payload)
    if failed:
        scene.history.send_failed(scene.producer, b"second", Timeout("nobody answers"))
    found = [Found(at(number), payload, number) for number, payload in ((4, b"second"), (5, b"first"))]
    with nullcontext() if failed else pytest.raises(Violation, match="only behind"):
        scene.history.found(TOPIC, found)
