"""What an application acknowledges or refuses: messages, and places that it names by their ids.

A message knows whose it is. An id says it by its topic's name, or by its partition where there is one partitioned
topic; one that says neither is understood where there is one part only. An id that came out of bytes may lack the
topic: `MessageId.deserialize(data, topic=…)`. A message that was pickled is acknowledged by its id.
"""

from __future__ import annotations

from dataclasses import dataclass

from magnetar._consumer_part import ConsumerPart
from magnetar._message import DetachedOrigin, Era, Message
from magnetar.exceptions import InvalidMessage
from magnetar_wire.message_id import MessageId

__all__ = ["PlaceTarget", "Target", "Targets"]


@dataclass(slots=True, frozen=True)
class PlaceTarget:
    """A place, or with `cumulative` everything up to and with it."""

    part: ConsumerPart
    era: Era
    ledger_id: int
    entry_id: int
    # -1: the whole entry.
    batch_index: int
    batch_size: int
    cumulative: bool

    def give(self) -> None:
        """On the loop."""
        add = self.part.acks.add_cumulative if self.cumulative else self.part.acks.add_place
        add(self.era, self.ledger_id, self.entry_id, self.batch_index, self.batch_size)


Target = Message | PlaceTarget


class Targets:
    """Whose each is. Asked from any thread; changed on the loop."""

    def __init__(self) -> None:
        self._by_topic: dict[str, ConsumerPart] = {}

    def add(self, part: ConsumerPart) -> None:
        self._by_topic = {**self._by_topic, part.topic: part}

    def remove(self, part: ConsumerPart) -> None:
        self._by_topic = {topic: one for topic, one in self._by_topic.items() if one is not part}

    def of(self, what: object, *, cumulative: bool = False) -> Target:
        """Raises InvalidMessage for what this consumer can't have received."""
        if isinstance(what, Message) and isinstance(what._delivered.era.origin, DetachedOrigin):
            what = what.message_id()
        if isinstance(what, Message):
            one = what._delivered
            part: ConsumerPart = one.era.origin
            if self._by_topic.get(part.topic) is not part:
                raise InvalidMessage(f"{what!r} is another consumer's: acknowledge it there")
            if not cumulative:
                return what
            index = one.batch_index(what._at)
            return PlaceTarget(part, one.era, one.ledger_id, one.entry_id, index, one.batch_size, True)
        if isinstance(what, MessageId):
            part = self._part_of(what)
            index, size = what.batch_index(), what.batch_size()
            if index >= 0 and not size:
                raise InvalidMessage(
                    f"{what!r} names one message of a batch and not how many the batch has: "
                    "take the id that the message came with"
                )
            if not 0 <= index < size and index >= 0:
                raise InvalidMessage(f"{what!r} names a message that its batch does not have")
            if what.ledger_id() < 0 or what.entry_id() < 0 or what == MessageId.latest:
                raise InvalidMessage(f"{what!r} names no message")
            # One that came with a message counts as that does. Others are meant as things are now.
            era = getattr(what, "_delivery", None)
            if not isinstance(era, Era) or era.origin is not part:
                era = part.era
            return PlaceTarget(part, era, what.ledger_id(), what.entry_id(), index, size, cumulative)
        raise TypeError(f"a message or a message's id is acknowledged, not {type(what).__name__}")

    def _part_of(self, message_id: MessageId) -> ConsumerPart:
        parts = self._by_topic
        if message_id.topic_name():
            part = parts.get(message_id.topic_name())
            if part is None:
                raise InvalidMessage(f"{message_id!r} is of a topic that this consumer does not read")
            return part
        found = list(parts.values())
        if len(found) > 1:
            found = [part for part in found if part.partition == message_id.partition() >= 0]
        if len(found) != 1:
            raise InvalidMessage(
                f"{message_id!r} does not say of which topic it is, and this consumer reads {len(parts)}: "
                "MessageId.deserialize takes the topic"
            )
        return found[0]
