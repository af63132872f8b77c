"""Retry and dead letters of subscriptions, and the checks of them.

- **Nothing is lost on its way** (CON-9, CON-10). A message that no application acknowledged, and that its subscription
  does not deliver at the end, has a letter: one that the retry letter topic's subscription still delivers, one that an
  application acknowledged, or one in the dead letter topic. The SDK acknowledges behind the application's back, so a
  letter that it acknowledged proves nothing.
- A letter has the payload and the key of the message that it names as its origin.
- A message is no dead letter before applications refused it 1 + `max_redeliver_count` times: by negative
  acknowledgements of any message of its entry, or by retries of itself. Those of its letters count, each of which is an
  entry. A retry that failed counts as a negative acknowledgement.

Several letters of one message are right: a client died before it acknowledged. Only applications and the last drain
acknowledge letters here; nobody resets, truncates or deletes letter topics, or destroys their entries.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from magnetar_wire.message_id import MessageId
from tests.sim.invariants.history import Violation
from tests.sim.service.published import Position, Published, position_of
from tests.sim.service.topic_incarnations import short

if TYPE_CHECKING:
    from tests.sim.service.history import ConsumerSeen

__all__ = ["DEAD_LETTERS", "IN_EACH_LETTER", "LETTER_TOPICS", "Letters", "is_letter_topic"]

# The subscription that dead letter topics have from the beginning.
DEAD_LETTERS: Final = "dead"
_RETRY, _DEAD = "-RETRY", "-DLQ"
# What is in the name of each topic of letters, and in each letter, as they are sent.
LETTER_TOPICS: Final = (_RETRY.encode(), _DEAD.encode())
_ORIGIN: Final = "ORIGIN_MESSAGE_ID"
IN_EACH_LETTER: Final = _ORIGIN.encode()


def is_letter_topic(topic: str) -> bool:
    """Whether a topic of the world is one of letters, by its name or its path."""
    return topic.endswith((_RETRY, _DEAD))


@dataclass(slots=True)
class _Subscription:
    """One that has letters."""

    topic: str
    name: str
    max_redeliver_count: int
    # Origins of the letters that are there at the end, or were acknowledged by an application.
    arrived: set[Position] = field(default_factory=set)
    # How often messages of an entry were negatively acknowledged, by ledger and entry.
    refused: Counter[tuple[int, int]] = field(default_factory=Counter)
    # How often messages were retried, or their letters refused, by origin.
    refused_alone: Counter[Position] = field(default_factory=Counter)
    # Position, item and text of what is a violation unless there is a letter of the message.
    missing: list[tuple[Position, str, str]] = field(default_factory=list)


class Letters:
    def __init__(self, published: Published, look: Callable[[str], None]) -> None:
        self._published = published
        self._look = look
        self._subscriptions: dict[tuple[str, str], _Subscription] = {}
        # By the names of their letter topics.
        self._of_letter_topic: dict[str, _Subscription] = {}
        # The letters that were delivered: their origins.
        self._origins: dict[Position, Position] = {}

    def expect(self, topic: str, name: str, max_redeliver_count: int) -> None:
        """The subscription's consumers have letters, in topics with default names."""
        subscription = _Subscription(topic, name, max_redeliver_count)
        self._subscriptions[topic, name] = subscription
        for suffix in (_RETRY, _DEAD):
            self._of_letter_topic[f"{topic}-{name}{suffix}"] = subscription

    def has(self, topic: str, name: str) -> bool:
        return (topic, name) in self._subscriptions

    def found(self, topic: str, payloads: Sequence[bytes]) -> None:
        """A reader has read a letter topic."""
        for payload in payloads:
            self._find_sent_key(short(topic), payload)

    def delivered(
        self, consumer: ConsumerSeen, topic: str, payload: bytes, at: Position, properties: Mapping[str, str], key: str
    ) -> None:
        """A letter of this topic was delivered: to an application, or to the last drain of the topic itself."""
        subscription = self._of_letter_topic[topic]
        origin = _find_origin(properties)
        sent_key = self._find_sent_key(topic, payload)
        self._look("CON-9, CON-10")
        sent = self._published.at(origin)
        if sent is not None and sent.payload != payload:
            raise Violation("CON-9, CON-10", f"{topic} has {payload!r} with origin {origin}, where {sent} is")
        if key != sent_key:
            raise Violation("CON-9, CON-10", f"{topic} has {payload!r} with key {key!r}, sent with {sent_key!r}")
        self._origins[at] = origin
        if is_letter_topic(consumer.topic):
            subscription.arrived.add(origin)
            if topic.endswith(_DEAD):
                self._was_refused_often_enough(subscription, payload, origin)

    def _find_sent_key(self, topic: str, payload: bytes) -> str:
        sent = self._published.sent(payload)
        if sent is None or sent.producer.topic != self._of_letter_topic[topic].topic:
            raise Violation("2", f"{topic} has a letter {payload!r}, which nobody sent to the topic of its origin")
        return sent.key

    def _was_refused_often_enough(self, subscription: _Subscription, payload: bytes, origin: Position) -> None:
        refused = subscription.refused[origin[:2]] + subscription.refused_alone[origin]
        most = subscription.max_redeliver_count
        if refused <= most:
            raise Violation(
                "CON-10",
                f"{payload!r} of {subscription.topic} at {origin} is a dead letter of {subscription.name}: it was "
                f"refused {refused} times, and is to be redelivered {most} times",
            )

    def acknowledging(self, consumer: ConsumerSeen, message_ids: Sequence[MessageId]) -> None:
        subscription = self._subscriptions.get((consumer.topic, consumer.subscription))
        if subscription is not None:
            letters = [self._origins.get(position_of(one)) for one in message_ids]
            subscription.arrived.update(origin for origin in letters if origin is not None)

    def refused(self, consumer: ConsumerSeen, message_id: MessageId, *, alone: bool) -> None:
        subscription = self._subscriptions.get((consumer.topic, consumer.subscription))
        if subscription is None:
            return
        position = position_of(message_id)
        if alone or position in self._origins:
            subscription.refused_alone[self._origins.get(position, position)] += 1
        else:
            subscription.refused[position[:2]] += 1

    # ── the end ──

    def missing(self, topic: str, name: str, position: Position, item: str, text: str) -> None:
        """The subscription does not deliver this message, and no application has acknowledged it."""
        self._subscriptions[topic, name].missing.append((position, item, text))

    def check_end(self) -> None:
        """All letter topics were drained."""
        for subscription in self._subscriptions.values():
            for position, item, text in subscription.missing:
                self._look("CON-9, CON-10")
                if position not in subscription.arrived:
                    raise Violation(f"{item}, CON-9, CON-10", f"{text}; nor is there a letter of it")


def _find_origin(properties: Mapping[str, str]) -> Position:
    """Return the origin's position: `ledger:entry:partition`, and `:batch index` if it was in a batch."""
    text = properties.get(_ORIGIN, "")
    numbers = text.split(":")
    if len(numbers) not in (3, 4):
        raise Violation("CON-9, CON-10", f"a letter names its origin {text!r}")
    return int(numbers[0]), int(numbers[1]), int(numbers[3]) if len(numbers) == 4 else 0
