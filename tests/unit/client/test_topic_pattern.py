"""Patterns of topics: their namespace, and what the broker and the client match."""

from __future__ import annotations

import re

import pytest

from magnetar import RegexSubscriptionMode
from magnetar._patterns.topic_pattern import TopicPattern
from magnetar.exceptions import InvalidConfiguration, InvalidTopicName, MagnetarException
from magnetar_broker.server.topic_list_rules import TopicPattern as BrokersPattern
from magnetar_wire.topic_name import TopicName

_PERSISTENT = RegexSubscriptionMode.PersistentOnly


@pytest.mark.parametrize(
    ("pattern", "names", "others"),
    [
        ("persistent://public/default/finance-.*", ["finance-eu", "finance-us-partition-3"], ["a", "finance"]),
        (re.compile("^persistent://public/default/a|b$"), ["a", "b"], ["ab", "c"]),
        ("x.y/z/.*", ["persistent://x.y/z/any"], ["persistent://xxy/z/any", "any"]),
        (re.compile("Orders-[a-z]+", re.IGNORECASE), ["ORDERS-x"], ["orders-1"]),
        (re.compile(r"(?i)public/default/A"), ["a"], ["b"]),
        (re.compile("a b # comment", re.VERBOSE), ["ab"], ["a b"]),
    ],
)
def test_broker_and_client_match_the_same_names(
    pattern: str | re.Pattern[str], names: list[str], others: list[str]
) -> None:
    """SUB-8."""
    made = TopicPattern(pattern, _PERSISTENT)
    request = made.make_request(by_broker=True)
    broker = BrokersPattern(request.pattern or ".*", 1_000)
    for name in map(TopicName.parse, [*names, *others]):
        is_named = str(name) in [str(TopicName.parse(one)) for one in names]
        assert made.matches(name) == is_named
        if request.pattern:
            assert broker.matches(str(name)) == is_named
    assert bool(request.pattern) == made.suits_broker
    assert not made.matches(TopicName.parse(str(TopicName.parse(names[0])).replace("persistent", "non-persistent")))


@pytest.mark.parametrize(
    ("pattern", "error", "text"),
    [
        ("(", InvalidTopicName, "no regular expression"),
        ("(" * 5_000 + ")" * 5_000, InvalidTopicName, "too complex"),
        ("a{1,99999999999}", InvalidTopicName, "too complex"),
        ("", InvalidTopicName, "no expression"),
        ("persistent://a/b/", InvalidTopicName, "no expression"),
        ("a" * 3_000_000, InvalidTopicName, "3,000,000 characters, and the maximum is 10,000"),
        ("a/b", InvalidTopicName, "not within one namespace"),
        ("public/.*/a", InvalidTopicName, "not within one namespace"),
        (".*://public/default/a", InvalidTopicName, "persistent://tenant"),
        (re.compile(b"a"), InvalidTopicName, "use a str"),
        ("non-persistent://public/default/a", InvalidConfiguration, "NonPersistentOnly"),
    ],
)
def test_a_pattern_that_can_not_be_is_refused(pattern: str, error: type[MagnetarException], text: str) -> None:
    """SUB-8: within one namespace."""
    with pytest.raises(error, match=text):
        TopicPattern(pattern, _PERSISTENT)
