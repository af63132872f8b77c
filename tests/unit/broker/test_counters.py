"""What a broker counts, and the rates that are made of it."""

from __future__ import annotations

import pytest

from magnetar_broker.counters import BrokerCounters, Deliveries, Traffic


def test_rate_is_the_increase_since_the_previous_sample() -> None:
    traffic = Traffic()
    traffic.count(10, 1, 1000)
    traffic.sample(100.0)
    assert (traffic.messages_per_s, traffic.bytes_per_s) == (0.0, 0.0)
    traffic.count(50, 5, 6000)
    traffic.sample(110.0)
    assert (traffic.messages_per_s, traffic.bytes_per_s) == (5.0, 600.0)
    traffic.sample(120.0)
    assert (traffic.messages_per_s, traffic.bytes_per_s) == (0.0, 0.0)
    assert (traffic.messages, traffic.entries, traffic.bytes) == (60, 6, 7000)


def test_samples_right_after_one_another_change_nothing() -> None:
    traffic = Traffic()
    traffic.sample(0.0)
    traffic.count(8, 1, 80)
    traffic.sample(4.0)
    traffic.count(1000, 1, 1000)
    traffic.sample(4.001)
    assert traffic.messages_per_s == 2.0
    traffic.sample(8.0)
    assert traffic.messages_per_s == 250.0


def test_entries_that_share_a_latency_are_observed_at_once() -> None:
    seconds = BrokerCounters().publish_seconds
    seconds.observe(0.003, 20)
    seconds.observe(100.0)
    assert seconds.count == 21
    assert seconds.total == pytest.approx(100.06)
    assert seconds.counts[-1] == 1


def test_delivery_totals_include_deleted_subscriptions() -> None:
    deliveries = Deliveries()
    durable, reader = deliveries.of_durable("s"), deliveries.of_transient()
    durable.deliver(10, 1, 100, 0, now_ms=1)
    reader.deliver(5, 2, 50, 3, now_ms=2)
    assert deliveries.of_durable("s") is durable
    assert deliveries.known_of("s").delivered.messages == 10
    assert (reader.delivered.messages, reader.redelivered_messages) == (5, 3)
    deliveries.forget("s")
    assert deliveries.known_of("s").delivered.messages == 0
    assert list(deliveries.durable()) == []
    total = deliveries.delivered
    assert (total.messages, total.entries, total.bytes) == (15, 3, 150)
