"""What a client's SUBSCRIBE asks for that few clients ask."""

from __future__ import annotations

from typing import Any

import pytest

from magnetar.admin import MessagePosition
from magnetar_broker.errors import BrokerError
from magnetar_broker.server.pulsar.subscribe_request import make_open_consumer
from magnetar_broker.topics.dispatch.key_shared_policy import KeySharedPolicy, read_key_shared_options
from magnetar_protos.broker_pb2 import ErrorCode, StartAt, SubscriptionType
from magnetar_protos.pulsar_pb2 import (
    BaseCommand,
    CommandRedeliverUnacknowledgedMessages,
    CommandSubscribe,
    ServerError,
)
from tests.unit.broker.pulsar.pulsar_scene import running_pulsar_broker


@pytest.mark.parametrize(
    ("fields", "start"),
    [
        ({"start_message_rollback_duration_sec": 60}, StartAt(time_ms=40_000)),
        ({"start_message_rollback_duration_sec": 101, "initial_position": 1}, StartAt(time_ms=0)),
        ({"initial_position": 1}, StartAt(earliest=True)),
        ({}, StartAt(latest=True)),
    ],
)
def test_subscription_starts_at_the_requested_position(fields: dict[str, Any], start: StartAt) -> None:
    """WIRE-1: so long ago, too, which readers ask for; no further back than all there is."""
    command = CommandSubscribe(topic="t", subscription="s", sub_type=0, consumer_id=1, request_id=1, **fields)
    assert make_open_consumer(command, 100_000).start == start


def test_only_the_protocols_own_subscription_types_are_admitted() -> None:
    """WIRE-1: a type that only Magnetar's client knows has a number that a stock client could send, too."""

    def opened(number: int) -> str:
        command = CommandSubscribe(topic="t", subscription="s", sub_type=number, consumer_id=1, request_id=1)
        return SubscriptionType.Name(make_open_consumer(command, 0).type)

    assert [opened(number) for number in range(4)] == ["EXCLUSIVE", "SHARED", "FAILOVER", "KEY_SHARED"]
    for number in (-1, *range(4, 100)):
        with pytest.raises(BrokerError, match=f"type {number} is not supported"):
            opened(number)


@pytest.mark.parametrize(
    ("mode", "ranges", "expected"),
    [
        (0, [], KeySharedPolicy()),
        (0, [(5, 2)], KeySharedPolicy()),
        (1, [(7, 9), (0, 5), (6, 6)], KeySharedPolicy(is_sticky=True, ranges=((0, 5), (6, 6), (7, 9)))),
        (1, [(0, 65_535)], KeySharedPolicy(is_sticky=True, ranges=((0, 65_535),))),
        (1, [], "at least one range"),
        (1, [(5, 4)], "5 … 4 is not valid"),
        (1, [(0, 65_536)], "0 … 65536 is not valid"),
        (1, [(0, 7), (7, 9)], "0 … 7 and 7 … 9 of one consumer overlap"),
        (1, [(0, 0)] * 65_537, "requests 65,537 ranges of slots, and there are 65,536 slots"),
        (1, [(-1, 7)], "no mode or slot -1"),
        (1, [(0, -7)], "no mode or slot -7"),
        (-2, [], "no mode or slot -2"),
        (2, [], "the mode 2 of a Key_Shared"),
    ],
)
def test_the_key_shared_policy_of_a_request_is_checked(
    mode: int, ranges: list[tuple[int, int]], expected: KeySharedPolicy | str
) -> None:
    """(SUB-5, SUB-12) Ranges of slots are for the mode STICKY; other ranges are ignored, as in Pulsar."""
    command = CommandSubscribe(topic="t", subscription="s", sub_type=3, consumer_id=1, request_id=1)
    meta = command.key_shared_meta
    meta.key_shared_mode = mode
    for start, end in ranges:
        meta.hash_ranges.add(start=start, end=end)
    if isinstance(expected, str):
        with pytest.raises(BrokerError, match=expected) as refused:
            read_key_shared_options(make_open_consumer(command, 0).key_shared)
        assert refused.value.code == ErrorCode.INVALID_ARGUMENT
    else:
        assert read_key_shared_options(make_open_consumer(command, 0).key_shared) == expected


@pytest.mark.parametrize("durable", [True, False])
async def test_a_subscription_of_any_kind_has_a_name_of_at_most_255_bytes(durable: bool) -> None:
    async with running_pulsar_broker() as scene:
        client = await scene.pulsar_client()
        await client.subscribe(1, subscription="ä" * 127 + "x", durable=durable)
        refused = await client.try_subscribe(2, subscription="ä" * 128, durable=durable)
        assert refused.error.message == "a subscription's name can't have 256 bytes: use 1 … 255"
        assert not client.is_disconnected


async def test_a_progress_subscription_refuses_consumers() -> None:
    """SPK-1, WIRE-1: with an error that client libraries do not retry, and the connection goes on. A reader's
    subscription of the same name is another one."""

    async with running_pulsar_broker() as scene:
        client = await scene.pulsar_client()
        opened = await client.open_producer()
        client.publish(1, 0, 1, name=opened.producer_name)
        await scene.admin.reading.advance_progress("t", "", "p", MessagePosition(0, 0, 0), only_make=True)
        for kind in (0, 1, 2):
            refused = await client.try_subscribe(1, subscription="p", sub_type=kind)
            assert refused.error.error == ServerError.NOT_ALLOWED_ERROR
            assert "subscription p stores the progress" in refused.error.message
        await client.subscribe(2, subscription="p", durable=False)
        assert len(await client.wait_delivered(2, 2)) == 2


async def test_deliveries_carry_the_consumer_epoch_of_the_client() -> None:
    """WIRE-1: it drops what is of an earlier one; without a redelivery it is the one that it subscribed with."""

    async with running_pulsar_broker() as scene:
        client = await scene.pulsar_client()
        opened = await client.open_producer()
        client.publish(1, 0, 1, name=opened.producer_name)
        await client.subscribe(consumer_epoch=4)
        assert [one.consumer_epoch for one in await client.wait_delivered(2)] == [4, 4]
        again = CommandRedeliverUnacknowledgedMessages(consumer_id=1, consumer_epoch=5)
        command = BaseCommand(
            type=BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES, redeliver_unacknowledged_messages=again
        )
        client.send(command)
        assert [one.consumer_epoch for one in await client.wait_delivered(4)] == [4, 4, 5, 5]
        await client.subscribe(2, subscription="other")
        assert [one.consumer_epoch for one in await client.wait_delivered(2, 2)] == [None, None]
