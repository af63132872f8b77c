"""What the broker knows of a consumer, for the client that has it."""

from __future__ import annotations

from magnetar_broker.broker_session import sample_topic
from magnetar_protos.pulsar_pb2 import (
    BaseCommand,
    CommandConsumerStats,
    CommandConsumerStatsResponse,
    ServerError,
)
from magnetar_wire.topic_name import TopicName
from tests.unit.broker.pulsar.pulsar_client import PulsarClient
from tests.unit.broker.pulsar.pulsar_scene import running_pulsar_broker


async def _stats(client: PulsarClient, consumer_id: int = 1) -> CommandConsumerStatsResponse:
    command = CommandConsumerStats(consumer_id=consumer_id, request_id=client.request_id())
    answer = await client.ask(BaseCommand.CONSUMER_STATS, consumer_stats=command)
    assert answer.type == BaseCommand.CONSUMER_STATS_RESPONSE, answer
    return answer.consumer_stats_response


async def test_consumer_stats_report_permits_unacked_messages_and_backlog() -> None:
    """WIRE-1."""

    async with running_pulsar_broker(max_unacked_messages_per_consumer=7) as scene:
        client = await scene.pulsar_client()
        opened = await client.open_producer()
        await client.subscribe(sub_type=1, permits=7, consumer_name="me")
        topic = scene.broker_session.topics.get_loaded(TopicName.parse("t"))
        assert topic is not None
        sample_topic(topic, scene.clock.monotonic())
        client.publish(1, *range(10), name=opened.producer_name)
        await client.wait_delivered(7)
        sample_topic(topic, scene.clock.monotonic() + 2)
        stats = await _stats(client)
        assert not stats.HasField("error_code")
        assert (stats.consumer_name, stats.type, stats.address) == ("me", "Shared", "10.0.0.1:1")
        assert (stats.available_permits, stats.unacked_messages, stats.msg_backlog) == (0, 7, 10)
        assert stats.blocked_consumer_on_unacked_msgs
        assert 0 < stats.msg_rate_out <= 3.5
        assert stats.msg_throughput_out > stats.msg_rate_out
        assert stats.connected_since.endswith("Z")
        await client.subscribe(2, subscription="alone", permits=5)
        await client.wait_delivered(5, 2)
        other = await _stats(client, 2)
        assert (other.type, other.msg_backlog) == ("Exclusive", 10)
        assert not other.blocked_consumer_on_unacked_msgs


async def test_stats_of_unknown_consumer_return_consumer_not_found() -> None:
    async with running_pulsar_broker() as scene:
        client = await scene.pulsar_client()
        assert (await _stats(client, 9)).error_code == ServerError.CONSUMER_NOT_FOUND
        assert not client.is_disconnected
