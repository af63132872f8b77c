"""The rules about access modes, against the order of events that a test draws."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar_broker.errors import BrokerError
from magnetar_broker.topics.producer_access_rules import AccessRequest, ProducerAccess, StoredEpoch
from magnetar_protos.broker_pb2 import ErrorCode, ProducerAccessMode

_SHARED = ProducerAccessMode.ACCESS_SHARED
_MODES = [
    ProducerAccessMode.ACCESS_SHARED,
    ProducerAccessMode.ACCESS_EXCLUSIVE,
    ProducerAccessMode.ACCESS_WAIT_FOR_EXCLUSIVE,
    ProducerAccessMode.ACCESS_EXCLUSIVE_WITH_FENCING,
]


@dataclass(eq=False)
class _Producer:
    name: str
    mode: ProducerAccessMode
    # What it knows: the epoch with which it was open.
    epoch: int | None = None
    is_open: bool = False


@dataclass
class _Topic:
    """A topic's producers, as its broker would keep them; the node has the last stored epoch also after a restart."""

    node: StoredEpoch | None = None
    rules: ProducerAccess[_Producer] = field(init=False)
    # Connected or being opened, in the order of their requests.
    here: list[_Producer] = field(default_factory=list)
    # Exclusive producers that were open, and the number of producers that were opened after them.
    opened: list[_Producer] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rules = ProducerAccess(self.node)

    def request(self, producer: _Producer, replaced: _Producer | None = None) -> None:
        was_open = producer.epoch is not None
        try:
            admission = self.rules.request(
                producer, AccessRequest(producer.mode, producer.name, producer.epoch, was_open), replaced
            )
        except BrokerError as error:
            if was_open and error.code == ErrorCode.PRODUCER_FENCED:
                assert self.opened[-1] is not producer, "nobody was admitted since"
        else:
            self.here.append(producer)
            for one in admission.fenced:
                self.drop(one)
            if was_open and not admission.is_queued:
                assert self.opened[-1] is producer, "nobody else was open since"
        if replaced is not None and replaced is not producer and replaced in self.here:
            self.drop(replaced)
        self.rules.next_admitted()

    def drop(self, producer: _Producer) -> None:
        self.here.remove(producer)
        producer.is_open = False

    def leave(self, producer: _Producer) -> None:
        self.drop(producer)
        self.rules.leave(producer)
        self.rules.next_admitted()

    def store(self, producer: _Producer) -> None:
        """Do what the broker does when a producer is admitted."""
        if producer in self.rules.waiting_producers() or producer.is_open:
            return
        if self.rules.must_store(producer):
            epoch = self.rules.assign_epoch(producer)
            assert self.node is None or epoch.number >= self.node.number, "epochs never fall"
            assert producer.mode == _SHARED or self.node is None or epoch.number > self.node.number
            self.node = epoch
            self.rules.record_stored(producer, epoch)
        producer.is_open = True
        if producer.mode != _SHARED:
            assert self.node is not None
            producer.epoch = self.node.number
        self.opened.append(producer)

    def restart(self) -> None:
        for producer in self.here:
            producer.is_open = False
        self.here.clear()
        self.rules = ProducerAccess(self.node)

    def check(self) -> None:
        is_open = [one for one in self.here if one.is_open]
        exclusive = [one for one in is_open if one.mode != _SHARED]
        assert not exclusive or len(is_open) == 1
        waiting = self.rules.waiting_producers()
        assert not waiting or set(self.here) - set(waiting), "nobody waits for nobody"


_EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("open"), st.integers(0, 3)),
        st.tuples(st.sampled_from(["store", "leave", "reconnect"]), st.integers(0, 7)),
        st.tuples(st.just("restart"), st.just(0)),
    ),
    max_size=40,
)


@given(_EVENTS)
def test_one_exclusive_producer_at_a_time(events: list[tuple[str, int]]) -> None:
    """PRD-2, CHK-39: an exclusive producer is alone while it is open, comes back only if nobody else was open, no epoch
    is lower than one before, and a producer that waits gets its turn."""
    topic = _Topic()
    names = 0
    for event, number in events:
        if event == "open":
            names += 1
            topic.request(_Producer(f"p{names}", _MODES[number]))
        elif event == "restart":
            topic.restart()
        elif event == "reconnect" and topic.opened:
            known = [one for one in topic.opened if one.mode != _SHARED and not one.is_open and one not in topic.here]
            if known:
                topic.request(known[number % len(known)])
        elif topic.here and event != "reconnect":
            producer = topic.here[number % len(topic.here)]
            (topic.store if event == "store" else topic.leave)(producer)
        topic.check()
    # All leave, and everyone that waits is open in turn, in the order of the requests.
    queue = topic.rules.waiting_producers()
    for waiting in queue:
        for other in [one for one in topic.here if one not in topic.rules.waiting_producers()]:
            topic.leave(other)
        topic.store(waiting)
        assert waiting.is_open
        topic.check()


def test_a_shared_producer_ends_the_epoch_of_one_that_was_cut_off() -> None:
    """PRD-2: nobody else has opened the topic exclusively, but somebody has published."""
    topic = _Topic()
    leader, shared = _Producer("leader", ProducerAccessMode.ACCESS_EXCLUSIVE), _Producer("shared", _SHARED)
    topic.request(leader)
    topic.store(leader)
    topic.leave(leader)
    topic.request(leader)
    assert leader in topic.here, "it comes back while nobody was there"
    topic.store(leader)
    topic.leave(leader)
    topic.request(shared)
    topic.store(shared)
    topic.leave(shared)
    topic.restart()
    topic.request(leader)
    assert leader not in topic.here
    assert topic.node == StoredEpoch(0, "")


def test_a_topic_that_forgets_its_epoch_believes_the_highest() -> None:
    """PRD-2, TOP-5: a non-persistent topic was unloaded while its exclusive producer was connected."""
    access: ProducerAccess[str] = ProducerAccess(None, are_epochs_durable=False)
    exclusive = ProducerAccessMode.ACCESS_EXCLUSIVE

    def reopen(name: str, epoch: int) -> list[str]:
        admission = access.request(name, AccessRequest(exclusive, name, epoch, was_open=True))
        if access.must_store(name):
            access.record_stored(name, access.assign_epoch(name))
        return list(admission.fenced)

    assert reopen("former", 3) == []
    assert reopen("leader", 4) == ["former"]
    with pytest.raises(BrokerError) as refused:
        reopen("former", 3)
    assert refused.value.code == ErrorCode.PRODUCER_FENCED
    access.leave("leader")
    assert reopen("leader", 4) == []
    assert access.stored == StoredEpoch(4, "leader")


def test_epochs_of_the_first_partition_at_another_one() -> None:
    """PRD-2: a lower one is refused, and a higher one has superseded the one that is connected. The same one may try
    again, also after somebody has opened the partition alone, which does not count, or after a restart."""
    access: ProducerAccess[str] = ProducerAccess(StoredEpoch(14, "before"))
    exclusive = ProducerAccessMode.ACCESS_EXCLUSIVE

    def present(name: str, epoch: int | None) -> list[str] | int:
        try:
            admission = access.request(name, AccessRequest(exclusive, name, epoch))
        except BrokerError as error:
            return error.code
        if access.must_store(name):
            access.record_stored(name, access.assign_epoch(name))
        return list(admission.fenced)

    assert present("a", 6) == []
    assert present("low", 4) == ErrorCode.PRODUCER_FENCED
    assert present("a again", 6) == ErrorCode.PRODUCER_FENCED
    assert present("alone", None) == ErrorCode.PRODUCER_FENCED
    assert present("b", 9) == ["a"]
    assert present("far", 2**63) == ErrorCode.INVALID_ARGUMENT
    access.leave("b")
    assert present("b", 9) == []
    access.leave("b")
    assert present("alone", None) == []
    assert access.stored == StoredEpoch(18, "alone", first_partition_number=9)
    assert present("c", 11) == ErrorCode.PRODUCER_FENCED  # the one that is connected has not lost the first partition
    access = ProducerAccess(access.stored)
    assert present("low", 8) == ErrorCode.PRODUCER_FENCED
    assert present("b", 9) == []
    assert access.stored == StoredEpoch(19, "b", 9, from_first_partition=True)
