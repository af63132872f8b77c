"""The rate at which one consumer may subscribe."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar import exceptions
from magnetar.admin import NamespacePolicies, SubscribeRate, TopicPolicies
from magnetar_broker.settings import rates
from magnetar_broker.topics import policy_refresh, subscribe_counts
from magnetar_broker.topics.subscribe_counts import SubscribeCounts
from magnetar_protos.pulsar_pb2 import BaseCommand, ServerError
from tests.running import until
from tests.unit.broker.pulsar.pulsar_scene import PulsarScene, running_pulsar_broker

# Multiples of 1/8, whose sums are exact.
_PAUSES = st.integers(0, 160).map(lambda eighths: eighths / 8)


@given(st.lists(st.tuples(_PAUSES, st.integers(1, 3))), st.integers(1, 4), st.integers(1, 30))
def test_each_consumer_has_its_number_in_each_period(
    requests: list[tuple[float, int]], per_consumer: int, period_seconds: int
) -> None:
    """RET-4: at most its number in a period, and one that waits for a period is allowed again."""
    counts, now, rate = SubscribeCounts(), 7.0, rates.SubscribeRate(per_consumer, period_seconds)
    allowed: dict[int, list[float]] = {1: [], 2: [], 3: []}
    for pause, consumer_id in requests:
        now += pause
        if counts.count("host", "s", consumer_id, rate, now):
            allowed[consumer_id].append(now)
        else:
            assert len([at for at in allowed[consumer_id] if at > now - period_seconds]) >= per_consumer
            now += period_seconds
            assert counts.count("host", "s", consumer_id, rate, now)
            allowed[consumer_id].append(now)
    for times in allowed.values():
        for at in times:  # the end of one period and the begin of the next
            assert len([one for one in times if at <= one < at + period_seconds]) <= 2 * per_consumer
    assert counts.count("host", "s", 1, rates.SubscribeRate(0, 1), now)


def test_the_number_of_counted_consumers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscribe_counts, "MAX_CONSUMERS", 2)
    counts, rate = SubscribeCounts(), rates.SubscribeRate(1, 30)
    assert [counts.count("host", "s", name, rate, 0.0) for name in "abcb"] == [True, True, True, False]
    assert counts.count("host", "s", "a", rate, 0.0)


async def _subscribe(scene: PulsarScene, listener: str, times: int) -> None:
    """Subscribe and close repeatedly, as one consumer."""
    if listener == "pulsar":
        client = await scene.pulsar_client()
        for _ in range(times):
            answer = await client.try_subscribe(7, consumer_name="c")
            if answer.type != BaseCommand.SUCCESS:
                assert answer.error.error == ServerError.TOO_MANY_REQUESTS, answer
                raise exceptions.TooManyLookupRequestException(answer.error.message)
            await client.close_consumer(7)
        return
    async with scene.client(operation_timeout_seconds=1) as sdk:
        consumer = await sdk.subscribe("t", "s", consumer_name="c")
        for _ in range(times - 1):
            await consumer.close()
            consumer = await sdk.subscribe("t", "s", consumer_name="c")


@pytest.mark.parametrize("listener", ["grpc", "pulsar"])
async def test_policies_limit_how_often_a_consumer_subscribes(listener: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """RET-4, TOP-4: broker, namespace and topic, on a live topic; the error lets clients retry."""
    monkeypatch.setattr(policy_refresh, "MIN_INTERVAL_S", 0.02)
    settings = {"subscribe_throttling_rate_per_consumer": 2, "subscribe_rate_period_per_consumer_in_second": 600}
    async with running_pulsar_broker(metadata_cache_ttl_seconds=0.02, **settings) as scene:
        with pytest.raises(exceptions.MagnetarException, match="2 times in 600 s, the maximum"):
            await _subscribe(scene, listener, 3)
        (topic,) = scene.broker_session.topics.loaded()

        async def apply(policies: NamespacePolicies | TopicPolicies, expected: int) -> None:
            if isinstance(policies, NamespacePolicies):
                await scene.admin.namespaces.change_policies("public/default", policies)
            else:
                await scene.admin.topics.change_policies("t", policies)
            current = topic.live_settings.current
            await until(lambda: current.subscribe_rate.per_consumer == expected, "the policy applies")

        await apply(NamespacePolicies(subscribe_rate=SubscribeRate(3, 600)), 3)
        with pytest.raises(exceptions.MagnetarException, match="3 times in 600 s"):
            await _subscribe(scene, listener, 4)
        await apply(TopicPolicies(subscribe_rate=SubscribeRate(0, 600)), 0)
        await _subscribe(scene, listener, 6)
