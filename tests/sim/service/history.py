"""The history of what applications sent, received and acknowledged, and the checks of it.

The hosts of the simulated world report here, at the boundary of the SDK: what an application knows. No rules of the
production code are used. Each call may raise `Violation`; the world ends the run then. The checks are described at the
heads of `published.py` (messages), `subscribed.py` (subscriptions), `letters.py` (retry and dead letters),
`topic_incarnations.py` (owners of a topic), `wire.py` (streams; it is a tap of the network) and `sessions.py` (brokers
without a session).

**A message** is known by its payload, which is unique in a run: `topic|producer|number|filling`, where the topic is the
name that the application used (a partitioned topic's without the partition), the producer is unique to one producer
object, and the numbers of one producer grow by one in the order of sending. Its position is its MessageId: its ledger
id leads to the topic, or partition, and its incarnation, by the topics' nodes, whose changes are reported here, too.

**A call without an answer**, or that failed, may have been done or not, then or later: each call that changes something
is reported before it is made, and again with its outcome, if it had one. A killed host reports no more.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from magnetar_protos import cursor_pb2, managed_ledger_pb2
from magnetar_wire.message_id import MessageId
from tests.sim.process import Process
from tests.sim.service.letters import Letters, is_letter_topic
from tests.sim.service.published import Published, position_of
from tests.sim.service.sessions import Sessions
from tests.sim.service.subscribed import Subscribed
from tests.sim.service.topic_incarnations import TopicIncarnations
from tests.sim.service.wire import Wire

__all__ = ["ConsumerSeen", "Found", "MessageHistory", "ProducerSeen"]


@dataclass(frozen=True, slots=True)
class ProducerSeen:
    """One producer object of an application. It survives reconnects, not its process."""

    # Unique in the run, what its payloads say.
    name: str
    # As the application named it: of a partitioned topic without the partition.
    topic: str
    partitioned: bool = False
    # Its sends may wait for capacity: such a send belongs to no topic yet.
    may_wait: bool = False
    # No other producer may publish to the topic, or partition, after its first message and before its last one.
    is_exclusive: bool = False


@dataclass(frozen=True, slots=True)
class ConsumerSeen:
    """One consumer or reader object of an application. It survives reconnects, not its process."""

    # Unique in the run.
    name: str
    topic: str
    # Of a reader: its own name, not durable.
    subscription: str
    # EXCLUSIVE, FAILOVER, SHARED or KEY_SHARED.
    kind: str
    durable: bool = True
    # Where the subscription begins if this consumer makes it.
    earliest: bool = True
    partitioned: bool = False
    is_reader: bool = False
    # It acknowledges parts of batches (`batch_index_ack_enabled`).
    by_message: bool = True


@dataclass(frozen=True, slots=True)
class Found:
    """A message as a reader found it."""

    message_id: MessageId
    payload: bytes
    # The topic's index of the message; None: it was not requested.
    index: int | None = None


class MessageHistory:
    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        # How often which check looked at something: a check that never looks proves nothing.
        self.looked: dict[str, int] = {}
        # Reports, by which all is in order.
        self._ticks = 0
        self.incarnations = TopicIncarnations(self.tick, self.look)
        self.published = Published(self.incarnations, self.tick, self.look)
        self.letters = Letters(self.published, self.look)
        self.subscribed = Subscribed(self.incarnations, self.published, self.letters, self.tick, self.look)
        subscribed = self.subscribed
        self.wire = Wire(
            self.incarnations,
            subscribed.is_unchanged,
            subscribed.keeps_backlog,
            subscribed.may_be_skipped,
            self.tick,
            self.look,
            now,
        )
        self.sessions = Sessions(self.look, now)

    def tick(self) -> int:
        self._ticks += 1
        return self._ticks

    def look(self, item: str) -> None:
        self.looked[item] = self.looked.get(item, 0) + 1

    # ── the metadata store: what stands there now, None: nothing ──

    def topic_changed(self, topic: str, node: managed_ledger_pb2.ManagedLedgerNode | None, by: Process) -> None:
        """A topic's or partition's node has changed; `by` is the process whose session did it."""
        self.incarnations.changed(topic, node, by)

    def cursor_changed(self, topic: str, subscription: str, node: cursor_pb2.CursorNode | None, by: Process) -> None:
        """A cursor's node has changed; `by` is the process whose session did it."""
        self.subscribed.cursor_changed(topic, subscription, node)

    # ── producers ──

    def producer_opened(self, producer: ProducerSeen) -> None:
        self.published.opened(producer)

    def sending(self, producer: ProducerSeen, payload: bytes, key: str = "") -> None:
        """The producer is about to pass it to the SDK, behind all that it sent before."""
        self.published.sending(producer, payload, key)

    def stored(self, producer: ProducerSeen, payload: bytes, message_id: MessageId) -> None:
        """The message is durable there: the producer has its receipt."""
        self.published.stored(producer, payload, message_id)

    def send_failed(self, producer: ProducerSeen, payload: bytes, error: Exception) -> None:
        """It is stored, or is stored later, or never, unless the error excludes that."""
        self.published.failed(payload, error)

    # ── consumers and readers ──

    def consumer_opened(self, consumer: ConsumerSeen) -> None: ...

    def consumer_ended(self, consumer: ConsumerSeen) -> None:
        """It was closed, or its process was killed: it gets no message any more, but its requests may still arrive."""

    def delivered(
        self,
        consumer: ConsumerSeen,
        payload: bytes,
        message_id: MessageId,
        properties: Mapping[str, str] | None = None,
        key: str = "",
    ) -> None:
        """The application gets the message at this moment."""
        incarnation = self.incarnations.of_ledger(message_id.ledger_id())
        if incarnation is not None and is_letter_topic(incarnation.topic):
            position = position_of(message_id)
            self.letters.delivered(consumer, incarnation.topic, payload, position, properties or {}, key)
        else:
            self.subscribed.delivered(consumer, payload, message_id)
        if incarnation is not None:
            has_letters = self.letters.has(consumer.topic, consumer.subscription)
            self.wire.handed_out(consumer, incarnation.topic, position_of(message_id), has_letters=has_letters)

    def acknowledging(
        self, consumer: ConsumerSeen, message_ids: Sequence[MessageId], *, cumulative: bool, receipt: bool
    ) -> None:
        """It is about to call acknowledge."""
        self.subscribed.acknowledging(consumer, message_ids, cumulative=cumulative, receipt=receipt)
        self.letters.acknowledging(consumer, message_ids)

    def acknowledged(self, consumer: ConsumerSeen, message_ids: Sequence[MessageId], *, cumulative: bool) -> None:
        """The receipt has come: the acknowledgement is durable."""
        self.subscribed.acknowledged(consumer, message_ids, cumulative=cumulative)

    def acknowledge_failed(
        self, consumer: ConsumerSeen, message_ids: Sequence[MessageId], error: Exception, *, cumulative: bool
    ) -> None:
        self.subscribed.acknowledge_failed(consumer, message_ids, cumulative=cumulative)

    def refused(self, consumer: ConsumerSeen, message_id: MessageId, *, alone: bool = False) -> None:
        """It is about to call negative_acknowledge; `alone`: reconsume_later, which is about no other message of its
        batch."""
        self.letters.refused(consumer, message_id, alone=alone)

    # ── what moves a subscription: of `topic` as the application names it, with all its partitions ──

    def moving(
        self, topic: str, subscription: str, to: MessageId | int, *, inclusive: bool = False, voids: bool = True
    ) -> int:
        """A seek, reset, skip or clear begins; `to`: an id (earliest and latest, too), behind which it will go on, with
        `inclusive` with it, or a time in ms. `voids`: messages that were delivered before may not be acknowledged after
        it. Return the number for the report of its outcome.
        """
        return self.subscribed.moving(topic, subscription, to, inclusive=inclusive, voids=voids)

    def moved(self, number: int) -> None:
        """It was done."""
        self.subscribed.moved(number)

    def move_failed(self, number: int, error: Exception) -> None:
        """It may have been done, or be done later."""

    # ── administrators ──

    def subscription_made(self, topic: str, subscription: str, *, earliest: bool) -> None:
        """It was created, and is durable, or existed before."""

    def unsubscribing(self, topic: str, subscription: str) -> None: ...

    def unsubscribed(self, topic: str, subscription: str) -> None: ...

    def truncating(self, topic: str) -> None:
        """From now on messages of this topic may vanish, those that are sent from now on, too: a request may take its
        time on the way."""
        self.subscribed.truncating(topic)

    def truncated(self, topic: str) -> None:
        """Messages sent before this moment may have vanished, and no others will."""
        self.subscribed.truncated(topic)

    def deleting(self, topic: str) -> None:
        """From now on this topic, as it is now, may vanish, with its subscriptions and all of its messages."""
        self.incarnations.deleting(topic)

    def deleted(self, topic: str) -> None:
        """It has vanished: from now on this name is another topic."""

    # ── the end: all has healed, nobody sends, moves or deletes any more ──

    def found(self, topic: str, messages: Sequence[Found], destroyed: Collection[tuple[int, int]] = ()) -> None:
        """A reader has read a topic or partition, by its full name, from earliest to its end. `destroyed`: its entries
        that no bookie has any more.
        """
        if is_letter_topic(topic):
            self.letters.found(topic, [one.payload for one in messages])
            return
        self.subscribed.found(topic, [position_of(one.message_id) for one in messages])
        self.published.found(topic, messages, self.subscribed.may_be_trimmed, destroyed)

    def drained(self, consumer: ConsumerSeen, topic: str) -> None:
        """The last consumer of a durable subscription, alone on it, has drained it without acknowledging: it got
        everything that is unacknowledged in this topic or partition (its full name).
        """
        self.subscribed.drained(consumer, topic)

    def check_end(self) -> None:
        """The checks that need the whole history."""
        self.letters.check_end()
