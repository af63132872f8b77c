"""What `magnetar topics stats` shows of a topic that has lost something."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, Final

import pytest

from magnetar import MessageId
from magnetar.admin import ConsumerStats, InternalStats, SlotRange, SubscriptionStats, TopicStats, Traffic
from magnetar_cli.administration.stats_views import print_internal_stats, print_subscription, print_topic_stats

IDLE: Final = Traffic(messages=0, entries=0, bytes=0, messages_per_s=0, bytes_per_s=0)
TOPIC: Final = TopicStats(
    topic="persistent://public/default/t",
    incarnation="i",
    partitions=0,
    received=IDLE,
    delivered=IDLE,
    refused_entries=0,
    failed_entries=0,
    storage_bytes=0,
    stored_entries=0,
    messages_ever=0,
    pending_bytes=0,
    waiting_for="",
    producers=(),
    subscriptions=(),
    owner_broker="b",
    lost_entries=0,
    lost=(),
)
SUBSCRIPTION: Final = SubscriptionStats(
    subscription="good",
    type="",
    durable=True,
    backlog_entries=0,
    backlog_messages=0,
    unacknowledged_messages=0,
    to_be_redelivered=0,
    blocked_by="",
    active_consumer="",
    delivered=IDLE,
    redelivered_messages=0,
    acknowledged_entries=0,
    expired_entries=0,
    consumers=(),
    properties={},
    damaged=False,
)
INTERNAL: Final = InternalStats(
    incarnation="i", state="open", last=MessageId(1, 2), ledgers=(), more_ledgers=0, cursors=(), leases=()
)


def rows(shown: str) -> dict[str, str]:
    """Return the facts by their names."""
    split = (re.split(r"\s{2,}", line.strip(), maxsplit=1) for line in shown.splitlines())
    return {parts[0]: parts[1] for parts in split if len(parts) == 2}


def test_lost_entries_and_damaged_subscriptions_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    damaged = [replace(SUBSCRIPTION, subscription=name, damaged=True) for name in ("bad", "worse")]
    print_topic_stats(replace(TOPIC, lost_entries=1234, subscriptions=(SUBSCRIPTION, *damaged)))
    shown = rows(capsys.readouterr().out)
    assert shown["lost"] == "1,234 entries that no bookie stores"
    assert shown["damaged"] == "bad, worse: reset or delete these subscriptions"


def test_lapsed_leases_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    print_internal_stats("t", replace(INTERNAL, lapsed_leases=3))
    assert rows(capsys.readouterr().out)["lapsed leases"] == "3, not renewed in time"


def test_stats_omit_loss_rows_for_a_topic_without_losses(capsys: pytest.CaptureFixture[str]) -> None:
    print_topic_stats(replace(TOPIC, subscriptions=(SUBSCRIPTION,)))
    print_internal_stats("t", INTERNAL)
    assert not rows(capsys.readouterr().out).keys() & {"lost", "damaged", "lapsed leases"}


def test_policies_that_act_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    acting = replace(TOPIC, deduplication_status="Enabled", publish_limited_times=3, evictions_by_age=2)
    print_topic_stats(acting)
    shown = rows(capsys.readouterr().out)
    assert (shown["deduplication"], shown["publish rate reached"]) == ("enabled", "3 times")
    assert shown["evictions by quotas"] == "0 by size, 2 by age"
    print_topic_stats(TOPIC)
    assert not {"deduplication", "publish rate reached", "evictions by quotas"} & set(rows(capsys.readouterr().out))


def test_the_topic_epoch_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """PRD-2"""
    print_topic_stats(replace(TOPIC, topic_epoch=0))
    assert rows(capsys.readouterr().out)["topic epoch"] == "0"
    print_topic_stats(TOPIC)
    assert "topic epoch" not in rows(capsys.readouterr().out)


def test_key_shared_shows_who_has_which_keys_and_what_is_drained(capsys: pytest.CaptureFixture[str]) -> None:
    """ADM-3, SUB-6"""
    traffic = {"delivered": IDLE, "redelivered_messages": 0, "acknowledged_entries": 0, "properties": {}}
    plain: Any = {
        "consumer_id": 1,
        "address": "a",
        "connected_since_ms": 0,
        "priority_level": 0,
        "permits": 0,
    } | traffic
    one = ConsumerStats(
        "one",
        **plain,
        unacknowledged_messages=2,
        blocked_by="",
        key_ranges=(SlotRange(0, 1_234),),
        draining_slots=3,
        draining_entries=7,
    )
    ring = replace(one, consumer_name="ring", key_ranges=[SlotRange(2 * at, 2 * at) for at in range(1_000, 1_005)])
    print_subscription(
        "t", replace(SUBSCRIPTION, key_shared_mode="AUTO_SPLIT", consumers=(one, ring), to_be_redelivered=9)
    )
    shown = capsys.readouterr().out
    assert rows(shown)["keys"] == "AUTO_SPLIT"
    assert rows(shown)["wait for consumers"] == "9 entries"
    assert re.search(r"one +0 … 1,234 +3 +7", shown)
    assert "2,000 … 2,000, 2,002 … 2,002, 2,004 … 2,004 and 2 more" in shown


def test_a_non_persistent_topic_shows_what_it_drops(capsys: pytest.CaptureFixture[str]) -> None:
    """TOP-5: and its subscriptions, none of which is durable, are not those of readers."""
    subscription = replace(SUBSCRIPTION, type="Exclusive", durable=False, dropped_messages=7)
    name = "non-persistent://public/default/t"
    print_topic_stats(replace(TOPIC, topic=name, subscriptions=(subscription,), dropped_per_s=2.0))
    shown = capsys.readouterr().out
    assert rows(shown)["dropped"] == "2 messages/s; 7 messages"
    assert "a reader" not in shown
    print_subscription(name, subscription)
    header, row = capsys.readouterr().out.splitlines()
    assert (header.split()[-1], row.split()[-1]) == ("dropped", "7")
    print_topic_stats(replace(TOPIC, subscriptions=(replace(subscription, dropped_messages=0),), chunks=1234))
    shown = capsys.readouterr().out
    assert "Exclusive, a reader" in shown
    assert rows(shown)["chunks"] == "1,234"
    assert "dropped" not in shown
