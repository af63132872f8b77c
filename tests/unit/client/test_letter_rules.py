"""Rules of retry and dead letter topics."""

from __future__ import annotations

import sys

import pytest

from magnetar import ConsumerDeadLetterPolicy, ConsumerType, exceptions
from magnetar._consuming.consumer_options import consumer_options
from magnetar._letters.letter_rules import LetterRules, Origin, find_due_ms, make_letter_rules
from magnetar_wire.topic_name import TopicName

_CENTURY_MS = 36_525 * 24 * 3_600_000
_ORIGIN = Origin.make("persistent://public/default/t-partition-3", 1, 0, 3, 0)


def _rules(*topics: str, policy: ConsumerDeadLetterPolicy | None = None, retry: bool = True) -> LetterRules:
    rules = make_letter_rules("s", policy, retry, [TopicName.parse(topic) for topic in topics or ["t", "u"]])
    assert rules is not None
    return rules


def test_the_policy_is_checked_as_pulsar_does() -> None:
    """CON-10"""
    policy = ConsumerDeadLetterPolicy(3, "dead", "first")
    assert (policy.max_redeliver_count, policy.dead_letter_topic, policy.initial_subscription_name) == (
        3,
        "dead",
        "first",
    )
    for wrong in (0, -1, None, True, "3"):
        with pytest.raises(ValueError, match="max_redeliver_count must be greater than 0"):
            ConsumerDeadLetterPolicy(wrong)  # type: ignore[arg-type]
    for options in ({"dead_letter_policy": policy}, {"enable_retry": True}):
        for kind in (ConsumerType.Exclusive, ConsumerType.Failover):
            with pytest.raises(exceptions.InvalidConfiguration, match=r"use consumer_type = ConsumerType\.Shared"):
                consumer_options({"subscription_name": "s", "consumer_type": kind, **options})


def test_topics_are_named_after_the_consumer_s() -> None:
    """CON-9, CON-10: with retries all topics share those of the first, otherwise each has its own."""
    rules = _rules("t", "u")
    assert str(rules.retry_letter_topic) == "persistent://public/default/t-s-RETRY"
    assert rules.find_dead_letter_topic("persistent://public/default/u") == "persistent://public/default/t-s-DLQ"
    assert rules.is_retry_letter_topic("persistent://public/default/t-s-RETRY-partition-7")
    assert not rules.is_retry_letter_topic("persistent://public/default/t")
    own = _rules("t", "u", policy=ConsumerDeadLetterPolicy(1), retry=False)
    assert own.retry_letter_topic is None
    assert own.find_dead_letter_topic("non-persistent://a/b/u-partition-0") == "persistent://a/b/u-s-DLQ"
    named = _rules(policy=ConsumerDeadLetterPolicy(1, "dead", retry_letter_topic="a/b/again"))
    assert str(named.retry_letter_topic) == "persistent://a/b/again"
    assert named.find_dead_letter_topic("persistent://a/b/u") == "persistent://public/default/dead"
    with pytest.raises(exceptions.InvalidConfiguration, match="not persistent"):
        _rules(policy=ConsumerDeadLetterPolicy(1, "non-persistent://a/b/c"))
    with pytest.raises(exceptions.InvalidTopicName, match="use another name in dead_letter_policy"):
        make_letter_rules("a/b", ConsumerDeadLetterPolicy(1), False, [TopicName.parse("t")])
    with pytest.raises(exceptions.InvalidConfiguration, match="name both"):
        make_letter_rules("s", None, True, [])


def test_dead_letters_do_not_come_back_to_their_consumer() -> None:
    """CON-10: a dead letter topic that the consumer reads, its retry letter topic included, is refused."""
    refused = pytest.raises(exceptions.InvalidConfiguration, match="consumed by the same consumer")
    with refused:
        _rules("t", "u-partition-0", policy=ConsumerDeadLetterPolicy(1, "u"), retry=False)
    with refused:
        _rules("t", policy=ConsumerDeadLetterPolicy(1, "persistent://public/default/t"))
    with refused:
        _rules("t", policy=ConsumerDeadLetterPolicy(1, "again", retry_letter_topic="again"))


def test_a_retry_letter_topic_is_none_of_the_consumer_s_topics() -> None:
    """CON-9: it would be read twice, or other subscriptions of the topic would get the letters."""
    named = ConsumerDeadLetterPolicy(1, retry_letter_topic="r")
    for topics, policy in ((["r-partition-0"], named), (["t", "t-s-RETRY"], None)):
        with pytest.raises(exceptions.InvalidConfiguration, match="is one of the consumer's topics"):
            _rules(*topics, policy=policy)


def test_letters_have_the_properties_of_pulsar_s_java_client() -> None:
    """CON-9: the origin is that of the first letter, and each retry counts."""
    rules = _rules(policy=ConsumerDeadLetterPolicy(2))
    first, is_dead = rules.retry({"own": "1"}, _ORIGIN, {"added": "2"}, 1_500)
    assert first == {
        "own": "1",
        "added": "2",
        "REAL_TOPIC": "persistent://public/default/t",
        "REAL_SUBSCRIPTION": "s",
        "ORIGIN_MESSAGE_ID": "1:0:3:0",
        "ORIGIN_MESSAGE_IDY_TIME": "1:0:3:0",
        "RECONSUMETIMES": "1",
        "DELAY_TIME": "1500",
    }
    assert not is_dead
    later = Origin.make("persistent://public/default/t-s-RETRY", 9, 9, -1, -1)
    assert later.message_id == "9:9:-1"
    second, is_dead = rules.retry(first, later, None, -5)
    assert second == first | {"RECONSUMETIMES": "2", "DELAY_TIME": "0"}
    assert not is_dead
    third, is_dead = rules.retry(second, later, None, 0)
    assert third["RECONSUMETIMES"] == "3"
    assert is_dead
    for garbage in ("", "x", "-4", "٣"):
        assert rules.retry({"RECONSUMETIMES": garbage}, later, None, 0)[0]["RECONSUMETIMES"] == "1"
    endless, is_dead = rules.retry({"RECONSUMETIMES": "9" * 5_000}, later, None, 2**70)
    assert is_dead
    assert endless["DELAY_TIME"] == str(_CENTURY_MS)


def test_a_message_is_dead_after_its_deliveries() -> None:
    """CON-10: after the first one, and `max_redeliver_count` others; 16 without a policy, as in Pulsar."""
    rules = _rules(policy=ConsumerDeadLetterPolicy(2))
    assert [rules.is_last_delivery(count) for count in range(4)] == [False, False, True, True]
    assert [rules.is_dead(count) for count in range(4)] == [False, False, False, True]
    assert _rules().max_redeliver_count == 16


def test_a_letter_is_due_after_its_delay() -> None:
    """CON-9: from when it was stored; clocks that differ, and garbage, make no letter wait longer than its delay."""
    assert find_due_ms({"DELAY_TIME": "500"}, 0, 1_000, 1_200) == 1_500
    assert find_due_ms({"DELAY_TIME": "500"}, 1_300, 1_000, 1_200) == 1_300, "the sender has left it to the broker"
    assert find_due_ms({"DELAY_TIME": "500"}, 0, 9_000, 1_200) == 1_700
    for garbage in ({}, {"DELAY_TIME": "x"}, {"DELAY_TIME": "-1"}):
        assert find_due_ms(garbage, 0, 1_000, 1_200) == 1_000
    for endless in (str(sys.maxsize), "9" * 5_000):
        assert find_due_ms({"DELAY_TIME": endless}, 0, 1_000, 1_200) == 1_000 + _CENTURY_MS
