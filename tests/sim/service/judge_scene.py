"""A small constructed world for tests of the checks of messages."""

from __future__ import annotations

from collections.abc import Sequence

from magnetar_protos.broker_pb2 import (
    Acknowledge,
    ConsumeAnswer,
    ConsumeRequest,
    ConsumerOpened,
    Delivery,
    Done,
    EntryRange,
    OpenConsumer,
    Problem,
    SubscriptionType,
)
from magnetar_protos.cursor_pb2 import CursorNode
from magnetar_protos.entry_pb2 import MessageMetadata
from magnetar_protos.frame_pb2 import Frame, Run
from magnetar_protos.managed_ledger_pb2 import LIVE, ListedLedger, ManagedLedgerNode, TopicState
from magnetar_wire.batch import encode_message
from magnetar_wire.message_id import MessageId
from magnetar_wire.messages import Messages
from tests.sim.invariants.history import Violation
from tests.sim.loop import new_loop
from tests.sim.service.history import ConsumerSeen, Found, MessageHistory, ProducerSeen

__all__ = ["MESSAGES", "TOPIC", "Scene", "at"]

TOPIC = "persistent://public/default/t"
MESSAGES = [f"t|p|{number}|".encode() for number in range(4)]
# Of the entries that hold them.
KEYS = ("k", "k", "other", "k")


def at(entry_id: int, ledger_id: int = 7) -> MessageId:
    return MessageId(ledger_id=ledger_id, entry_id=entry_id)


def stored_entry(key: str | None) -> bytes:
    return encode_message(
        Messages([b""], keys=[key]), MessageMetadata(producer_name="p", sequence_id=0, publish_time=1)
    )


class Scene:
    """Topic t, owned by b0: ledger 7 with three messages for which p has receipts; subscription s, which has got none
    of them yet; and stream 1 from client c to b0 with its consumer 1.
    """

    def __init__(self) -> None:
        self.loop = new_loop()
        self.b = [self.loop.process(f"b{number}") for number in range(2)]
        self.client = self.loop.process("c")
        self.history = MessageHistory(self.loop.time)
        self.violations: list[Violation] = []
        self.history.wire.on_violation = self.history.sessions.on_violation = self.violations.append
        self.producer = ProducerSeen("p", "t")
        self.consumer = ConsumerSeen("k", "t", "s", "EXCLUSIVE")
        self.owned(0)
        self.subscribed()
        self.history.producer_opened(self.producer)
        for number in range(3):
            self.sends(number)
            self.history.stored(self.producer, MESSAGES[number], at(number))

    # ── what stands in the metadata store ──

    def owned(
        self, by: int, *ledgers: int, incarnation: str = "i", state: TopicState = LIVE, owner_epoch: bytes = b""
    ) -> None:
        listed = [ListedLedger(ledger_id=ledger_id) for ledger_id in ledgers or (7,)]
        node = ManagedLedgerNode(
            incarnation=incarnation, owner_epoch=owner_epoch or b"owner epoch %d" % by, ledgers=listed, state=state
        )
        self.history.topic_changed(TOPIC, node, self.b[by])

    def subscribed(self, incarnation: str = "i") -> None:
        self.history.cursor_changed(TOPIC, "s", CursorNode(incarnation=incarnation), self.b[0])

    # ── what applications do ──

    def sends(self, number: int) -> None:
        self.history.sending(self.producer, MESSAGES[number])

    def given(self, number: int, consumer: ConsumerSeen | None = None, where: int | None = None) -> None:
        position = at(number if where is None else where)
        self.history.delivered(consumer or self.consumer, MESSAGES[number], position)

    def acknowledges(self, *entries: int, cumulative: bool = False, receipt: bool = True) -> None:
        positions = [at(entry_id) for entry_id in entries]
        self.history.acknowledging(self.consumer, positions, cumulative=cumulative, receipt=True)
        if receipt:
            self.history.acknowledged(self.consumer, positions, cumulative=cumulative)

    def moves(self, to: MessageId) -> None:
        self.history.moved(self.history.moving("t", "s", to))

    def found(self, *numbers: int, indexes: Sequence[int] = ()) -> None:
        messages = [
            Found(at(number), MESSAGES[number], index)
            for number, index in zip(numbers, indexes or numbers, strict=True)
        ]
        self.history.found(TOPIC, messages)

    def drains(self, *numbers: int) -> None:
        last = ConsumerSeen("last", "t", "s", "EXCLUSIVE")
        for number in numbers:
            self.given(number, last)
        self.history.drained(last, TOPIC)

    # ── what goes over streams ──

    def asks(self, broker: int = 0, stream: int = 1, **parts: object) -> None:
        message = ConsumeRequest(**parts).SerializeToString()  # type: ignore[arg-type]
        self.history.wire.sent(stream, self.client, self.b[broker], "consume", message, served=False)
        self.history.wire.arrived(stream, self.client, self.b[broker], "consume", message, served=False)

    def sends_answer(self, broker: int = 0, stream: int = 1, **parts: object) -> None:
        message = ConsumeAnswer(**parts).SerializeToString()  # type: ignore[arg-type]
        self.history.wire.sent(stream, self.b[broker], self.client, "consume", message, served=True)
        self.history.wire.taken(stream, self.client, "consume", message, served=True)

    def opens(
        self, broker: int = 0, stream: int = 1, name: str = "k", kind: SubscriptionType = SubscriptionType.EXCLUSIVE
    ) -> None:
        request = OpenConsumer(
            consumer_id=1, topic=TOPIC, subscription="s", type=kind, consumer_name=name, durable=True
        )
        self.asks(broker, stream, open=[request])
        self.sends_answer(broker, stream, opened=[ConsumerOpened(consumer_id=1, epoch=1, active=True)])

    def delivers(self, *entries: int, broker: int = 0, stream: int = 1, epoch: int = 1) -> None:
        runs = [Run(channel=1, first=0, count=1) for _ in entries]
        deliveries = [Delivery(ledger_id=7, first_entry_id=entry_id, epoch=epoch) for entry_id in entries]
        stored = [stored_entry(KEYS[entry_id]) for entry_id in entries]
        self.sends_answer(broker, stream, frame=Frame(runs=runs, entries=stored), deliveries=deliveries)

    def asks_receipt(self, entry_id: int, broker: int = 0, stream: int = 1, epoch: int = 1, request: int = 1) -> None:
        run = EntryRange(ledger_id=7, first_entry_id=entry_id, last_entry_id=entry_id)
        ack = Acknowledge(consumer_id=1, request_id=request, epoch=epoch, entries=[run])
        self.asks(broker, stream, acknowledge=[ack])

    def gives_receipt(self, broker: int = 0, stream: int = 1, request: int = 1, problem: Problem | None = None) -> None:
        self.sends_answer(broker, stream, done=[Done(consumer_id=1, request_id=request, problem=problem)])
