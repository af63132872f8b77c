"""Rules of retry and dead letter topics, which are those of Pulsar's Java client: names, properties, due times.

A *letter* is a message in one of these topics, made from a message that was consumed. It has the payload, keys, event
time and properties of that message, and more properties, which name its origin. A consumer of any client finds there
how often the message was retried, and where it was published first.

A message becomes a dead letter after `max_redeliver_count` + 1 deliveries: the first one, and those that consumers
have requested, or from the retry topic. The broker counts the redeliveries of an entry, so all messages of a batch that
are not acknowledged have the same count. It doesn't count those to other consumers when one has left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from magnetar.exceptions import InvalidConfiguration, InvalidTopicName
from magnetar_wire import errors
from magnetar_wire.topic_name import TopicDomain, TopicName

__all__ = ["ConsumerDeadLetterPolicy", "LetterRules", "Origin", "find_due_ms", "make_letter_rules"]

REAL_TOPIC: Final = "REAL_TOPIC"
REAL_SUBSCRIPTION: Final = "REAL_SUBSCRIPTION"
ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
# Pulsar's clients write the same id under this name too, which consumers of old versions read.
OLD_ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_IDY_TIME"
RECONSUMETIMES: Final = "RECONSUMETIMES"
DELAY_TIME: Final = "DELAY_TIME"

# Without a dead letter policy, a message is retried this often.
_DEFAULT_MAX_REDELIVER_COUNT: Final = 16
# Numbers in properties, which any client may write, are read up to this. Larger ones count as this.
_MAX_NUMBER: Final = 10**18 - 1
# 100 years, which Pulsar's clients can add to a time as well. A longer delay counts as this.
_MAX_DELAY_MS: Final = 36_525 * 24 * 3_600_000


class ConsumerDeadLetterPolicy:
    """When a message that is not acknowledged goes to a dead letter topic, and to which.

    - `max_redeliver_count`: how often it is redelivered before.
    - `dead_letter_topic`: by default the consumer's topic, with `-<subscription>-DLQ` appended.
    - `initial_subscription_name`: a subscription that the dead letter topic has from its first message on. By default
      there is none, so its messages are retained only if someone else has subscribed.
    - `retry_letter_topic`: used by `reconsume_later`, so it needs `enable_retry`. By default the consumer's topic, with
      `-<subscription>-RETRY` appended.
    """

    def __init__(
        self,
        max_redeliver_count: int,
        dead_letter_topic: str | None = None,
        initial_subscription_name: str | None = None,
        *,
        retry_letter_topic: str | None = None,
    ) -> None:
        if not isinstance(max_redeliver_count, int) or isinstance(max_redeliver_count, bool) or max_redeliver_count < 1:
            raise InvalidConfiguration(
                f"max_redeliver_count must be greater than 0, and an int, not {max_redeliver_count!r}"
            )
        self.max_redeliver_count = max_redeliver_count
        self.dead_letter_topic = _check_text("dead_letter_topic", dead_letter_topic)
        self.initial_subscription_name = _check_text("initial_subscription_name", initial_subscription_name)
        self.retry_letter_topic = _check_text("retry_letter_topic", retry_letter_topic)

    def __repr__(self) -> str:
        return (
            f"ConsumerDeadLetterPolicy({self.max_redeliver_count}, {self.dead_letter_topic!r}, "
            f"{self.initial_subscription_name!r}, retry_letter_topic={self.retry_letter_topic!r})"
        )


def _check_text(option: str, value: object) -> str | None:
    if value is not None and not isinstance(value, str):
        raise InvalidConfiguration(f"{option} = {value!r}: use a str, or leave it out")
    return value or None


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a message was consumed."""

    # For a partition, the name of the partitioned topic.
    topic: str
    # `ledger:entry:partition`, and `:batch index` for a message of a batch.
    message_id: str

    @classmethod
    def make(cls, topic: str, ledger_id: int, entry_id: int, partition: int, batch_index: int) -> Origin:
        text = f"{ledger_id}:{entry_id}:{partition}" + (f":{batch_index}" if batch_index >= 0 else "")
        return cls(str(TopicName.parse(topic).base), text)


@dataclass(frozen=True, slots=True)
class LetterRules:
    """The letters of one consumer."""

    subscription: str
    max_redeliver_count: int
    # None: each topic has its own.
    dead_letter_topic: str | None
    # None: there is none.
    initial_subscription: str | None
    # None: messages are not retried.
    retry_letter_topic: TopicName | None

    def find_dead_letter_topic(self, topic: str) -> str:
        """Return the dead letter topic of a topic, or partition, that is consumed."""
        return self.dead_letter_topic or _default_name(TopicName.parse(topic), self.subscription, "DLQ")

    def is_last_delivery(self, redelivery_count: int) -> bool:
        """Whether a message that was redelivered this often is not delivered again."""
        return redelivery_count >= self.max_redeliver_count

    def is_dead(self, redelivery_count: int) -> bool:
        """Whether a message was delivered too often to be handed out."""
        return redelivery_count > self.max_redeliver_count

    def is_retry_letter_topic(self, topic: str) -> bool:
        """Whether this is the retry letter topic, or a partition of it."""
        return self.retry_letter_topic is not None and TopicName.parse(topic).base == self.retry_letter_topic

    def is_own_letter_topic(self, topic: TopicName) -> bool:
        """Whether letters of this consumer may go to this topic. A consumer of a pattern that matches it, too, must not
        get its own dead letters."""
        base = topic.base
        if self.dead_letter_topic is not None:
            return str(base) == self.dead_letter_topic or base == self.retry_letter_topic
        return base.local_name.endswith(f"-{self.subscription}-DLQ")

    def add_origin(self, properties: Mapping[str, str], origin: Origin) -> dict[str, str]:
        """Return the properties of a dead letter. A message that was a letter before retains its origin."""
        named = {
            REAL_TOPIC: origin.topic,
            OLD_ORIGIN_MESSAGE_ID: origin.message_id,
            ORIGIN_MESSAGE_ID: origin.message_id,
            REAL_SUBSCRIPTION: self.subscription,
        }
        return named | dict(properties)

    def retry(
        self, properties: Mapping[str, str], origin: Origin, added: Mapping[str, str] | None, delay_ms: int
    ) -> tuple[dict[str, str], bool]:
        """Return the properties of a message that is retried, with those that the application added, and whether it
        goes to the dead letter topic, because it was retried too often."""
        result = self.add_origin(properties, origin) | dict(added or {})
        times = _read_number(result.get(RECONSUMETIMES)) + 1
        result[RECONSUMETIMES] = str(times)
        result[DELAY_TIME] = str(min(max(delay_ms, 0), _MAX_DELAY_MS))
        return result, times > self.max_redeliver_count


def find_due_ms(properties: Mapping[str, str], deliver_at_ms: int, stored_at_ms: int, now_ms: int) -> int:
    """Return when a retry letter is due.

    A letter whose sender left the delay to the broker has `deliver_at_ms`. Otherwise the delay counts from when the
    letter was stored. No letter waits longer than its delay from now on: clocks may differ.
    """
    if deliver_at_ms > 0:
        return deliver_at_ms
    delay_ms = min(_read_number(properties.get(DELAY_TIME)), _MAX_DELAY_MS)
    return min(stored_at_ms, now_ms) + delay_ms


def make_letter_rules(
    subscription: str, policy: ConsumerDeadLetterPolicy | None, enable_retry: bool, names: Sequence[TopicName]
) -> LetterRules | None:
    """Return the rules of a consumer of these topics; None: it has no letters.

    With `enable_retry`, one retry letter topic and one dead letter topic serve all topics: they are named after the
    first. Raises InvalidTopicName and InvalidConfiguration.
    """
    if policy is None and not enable_retry:
        return None
    maximum = _DEFAULT_MAX_REDELIVER_COUNT if policy is None else policy.max_redeliver_count
    dead = _parse("dead_letter_topic", None if policy is None else policy.dead_letter_topic)
    initial = policy.initial_subscription_name if policy is not None else None
    if not enable_retry:
        for name in names if dead is None else ():
            _parse("dead_letter_topic", _default_name(name, subscription, "DLQ"))
        _check_dead_letter_topic(dead, names)
        return LetterRules(subscription, maximum, None if dead is None else str(dead), initial, None)
    retry = _parse("retry_letter_topic", None if policy is None else policy.retry_letter_topic)
    if not names and (retry is None or dead is None):
        raise InvalidConfiguration(
            "enable_retry = True, and there is no first topic after which the retry and the dead letter topic are "
            "named: name both, dead_letter_policy=ConsumerDeadLetterPolicy(…, retry_letter_topic=…)"
        )
    retry = retry or _parse("retry_letter_topic", _default_name(names[0], subscription, "RETRY"))
    dead = dead or _parse("dead_letter_topic", _default_name(names[0], subscription, "DLQ"))
    if retry is not None and retry.base in [name.base for name in names]:
        raise InvalidConfiguration(
            f"the retry letter topic {retry} is one of the consumer's topics: leave it out of these, as enable_retry "
            "subscribes to it, or use another retry_letter_topic in dead_letter_policy"
        )
    _check_dead_letter_topic(dead, [*names, retry] if retry is not None else names)
    return LetterRules(subscription, maximum, str(dead), initial, retry)


def _check_dead_letter_topic(dead: TopicName | None, consumed: Sequence[TopicName]) -> None:
    """Refuse a dead letter topic that the consumer reads: each dead letter would come back, without end."""
    if dead is not None and dead.base in [name.base for name in consumed]:
        raise InvalidConfiguration(
            f"dead_letter_topic = {str(dead)!r} is consumed by the same consumer, so dead letters would come back to "
            "it: use another topic in dead_letter_policy"
        )


def _default_name(topic: TopicName, subscription: str, suffix: str) -> str:
    """Return a default name. It is persistent also for a topic that is not, because letters are stored."""
    local_name = f"{topic.base.local_name}-{subscription}-{suffix}"
    return f"{TopicDomain.PERSISTENT}://{topic.tenant}/{topic.namespace}/{local_name}"


def _parse(option: str, text: str | None) -> TopicName | None:
    if text is None:
        return None
    try:
        name = TopicName.parse(text)
    except errors.InvalidTopicName as error:
        raise InvalidTopicName(f"{option} = {text!r}: use another name in dead_letter_policy: {error}") from None
    if not name.is_persistent:
        raise InvalidConfiguration(f"{option} = {text!r} is not persistent, so messages would get lost there")
    return name


def _read_number(text: str | None) -> int:
    """Read a number of 0 or more. 0: there is none."""
    if not text or not (text.isascii() and text.isdigit()):
        return 0
    return int(text) if len(text) <= len(str(_MAX_NUMBER)) else _MAX_NUMBER
