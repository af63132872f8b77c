"""Finds what a consumer acknowledges when the application passes a message, or a message id."""

from __future__ import annotations

from magnetar._acknowledging.ack_targets import AckTarget, MessageIdTarget
from magnetar._consuming.consumer_partitions import ConsumerPartitions
from magnetar._consuming.partition_consumer import PartitionConsumer
from magnetar._message import DeliveryEpoch, Message, PickledOrigin
from magnetar.exceptions import InvalidMessage
from magnetar_wire.message_id import MessageId

__all__ = ["AckTargetLookup"]


class AckTargetLookup:
    __slots__ = ("_partitions",)

    def __init__(self, partitions: ConsumerPartitions) -> None:
        self._partitions = partitions

    def find(self, what: object, *, cumulative: bool = False) -> AckTarget:
        """Return what a message or message id stands for. From any thread.

        A message knows its partition. An id names it by its topic, or by the number of the partition if the consumer
        has one partitioned topic, and needs neither if there is one partition. An id that was deserialized may lack the
        topic: `MessageId.deserialize(data, topic=…)`. A pickled message stands for its id.

        A message of a topic that was deleted, and left the consumer, is accepted: its acknowledgement has no effect.
        Raises InvalidMessage if this consumer can't have received it.
        """
        if isinstance(what, Message) and isinstance(what._entry.epoch.origin, PickledOrigin):
            what = what.message_id()
        if isinstance(what, Message):
            entry = what._entry
            origin: PartitionConsumer = entry.epoch.origin
            if self._partitions.by_topic.get(origin.topic) is not origin and origin not in self._partitions.dropped:
                raise InvalidMessage(f"{what!r} was received by another consumer: acknowledge it there")
            if not cumulative:
                return what
            index = entry.batch_index(what._row)
            return MessageIdTarget(entry.epoch, entry.ledger_id, entry.entry_id, index, entry.batch_size, True)
        if isinstance(what, MessageId):
            epoch = getattr(what, "_delivery", None)
            if isinstance(epoch, DeliveryEpoch) and epoch.origin in self._partitions.dropped:
                partition: PartitionConsumer = epoch.origin
            else:
                partition = self.find_partition(what)
            index, size = what.batch_index(), what.batch_size()
            if index >= 0 and not size:
                raise InvalidMessage(
                    f"{what!r} has a batch index and no batch size: use the id that the message was received with"
                )
            if not 0 <= index < size and index >= 0:
                raise InvalidMessage(f"{what!r} has a batch index outside of its batch")
            if what.ledger_id() < 0 or what.entry_id() < 0 or what == MessageId.latest:
                raise InvalidMessage(f"{what!r} is not the id of a message")
            # The id of a received message belongs to the epoch of its delivery, any other to the current epoch.
            if not isinstance(epoch, DeliveryEpoch) or epoch.origin is not partition:
                epoch = partition.epoch
            return MessageIdTarget(epoch, what.ledger_id(), what.entry_id(), index, size, cumulative)
        if callable(message_id := getattr(what, "message_id", None)):  # an interceptor has replaced the message
            return self.find(message_id(), cumulative=cumulative)
        raise TypeError(f"a Message or MessageId can be acknowledged, not {type(what).__name__}")

    def find_partition(self, message_id: MessageId) -> PartitionConsumer:
        """Raises InvalidMessage if the id doesn't say which partition it belongs to."""
        by_topic = self._partitions.by_topic
        if message_id.topic_name():
            partition = by_topic.get(message_id.topic_name())
            if partition is None:
                raise InvalidMessage(f"{message_id!r} is of a topic that this consumer does not read")
            return partition
        found = list(by_topic.values())
        if len(found) > 1:
            found = [partition for partition in found if partition.partition == message_id.partition() >= 0]
        if len(found) != 1:
            raise InvalidMessage(
                f"{message_id!r} does not say of which topic it is, and this consumer reads {len(by_topic)}: "
                "pass the topic to MessageId.deserialize"
            )
        return found[0]
