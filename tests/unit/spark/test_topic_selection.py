"""The prefix of the names of a stream's topics, for leases on namespaces."""

from __future__ import annotations

import re

import pytest

from magnetar_spark.options.topic_selection import select_by_pattern, select_topics


@pytest.mark.parametrize(
    ("pattern", "prefix", "matched"),
    [
        ("orders-.*", "orders-", "orders-eu"),
        ("orders-eu", "orders-eu", "orders-eu"),
        ("orders*", "order", "order"),
        ("orders?-x", "order", "order-x"),
        ("orders+", "order", "orderss"),
        ("ab{0,2}c", "a", "ac"),
        ("orders-a|sales", "", "sales"),
        ("(orders|sales)-.*", "", "sales-1"),
        ("(?i)orders", "", "ORDERS"),
        (r"a\|b", "", "a|b"),
        (r"orders\.eu", "orders", "orders.eu"),
        ("[ab]c", "", "bc"),
        (".*", "", "anything"),
        ("x" * 70, "x" * 64, "x" * 70),
    ],
)
def test_each_name_that_a_pattern_matches_begins_with_its_prefix(pattern: str, prefix: str, matched: str) -> None:
    """SPK-5: else a topic that comes later would not be retained"""
    assert select_by_pattern(f"tenant/space/{pattern}").find_name_prefixes() == {"tenant/space": prefix}
    assert re.fullmatch(pattern, matched)
    assert matched.startswith(prefix)


def test_topics_that_are_named_have_a_prefix_in_each_namespace() -> None:
    """SPK-5, TOP-3: for the partitions that they get"""
    assert select_topics(["orders"]).find_name_prefixes() == {"public/default": "orders"}
    topics = ["orders-eu", "orders-us", "order", "tenant/space/a", "tenant/space/b"]
    assert select_topics(topics).find_name_prefixes() == {"public/default": "order", "tenant/space": ""}
