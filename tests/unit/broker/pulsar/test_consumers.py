"""What a connection's consumers do with commands that cross each other, or come at once."""

from __future__ import annotations

import asyncio

import pytest

from magnetar_protos.entry_pb2 import MessageIdData
from magnetar_protos.pulsar_pb2 import (
    BaseCommand,
    CommandAck,
    CommandCloseConsumer,
    CommandFlow,
    CommandRedeliverUnacknowledgedMessages,
    CommandUnsubscribe,
)
from tests.produce_client import entry
from tests.running import until
from tests.unit.broker.pulsar.pulsar_client import Delivered, PulsarClient, sent
from tests.unit.broker.pulsar.pulsar_scene import running_pulsar_broker

EXCLUSIVE, SHARED, FAILOVER = 0, 1, 2
REDELIVER = BaseCommand(
    type=BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES,
    redeliver_unacknowledged_messages=CommandRedeliverUnacknowledgedMessages(consumer_id=1),
)


def flow(permits: int) -> BaseCommand:
    return BaseCommand(type=BaseCommand.FLOW, flow=CommandFlow(consumer_id=1, message_permits=permits))


def id_of(delivered: Delivered, *open_messages: int) -> MessageIdData:
    return MessageIdData(ledgerId=delivered.ledger_id, entryId=delivered.entry_id, ack_set=open_messages)


async def published(client: PulsarClient, *entries: int) -> None:
    """Publish one entry per number, with that number of messages; more than one are a batch."""
    name = (await client.open_producer()).producer_name
    for number, messages in enumerate(entries):
        batch = {} if messages == 1 else {"num_messages_in_batch": messages}
        client.send_bytes(sent(1, number, entry(number, b"x" * 6 * messages, name, **batch)))
    await client.receipts(1, len(entries))
    await client.close_producer()


@pytest.mark.parametrize("kind", [EXCLUSIVE, SHARED])
async def test_permits_sent_with_a_redelivery_count_once(kind: int) -> None:
    """WIRE-1, CON-1: what is delivered is never more than was granted, however commands are cut into pieces."""

    async with running_pulsar_broker(managed_ledger_cache_size_mb=0) as scene:
        client = await scene.pulsar_client()
        await published(client, *[1] * 50)
        await client.subscribe(permits=5, sub_type=kind)
        await client.wait_delivered(5)
        client.send(REDELIVER, flow(3))
        await client.wait_delivered(8)
        client.send(flow(2), REDELIVER, REDELIVER, flow(4))
        await client.wait_delivered(14)
        other = await scene.pulsar_client()
        await other.subscribe(2, subscription="other")
        await other.wait_delivered(50, consumer_id=2)  # time enough for what would be too much
        assert len(client.delivered) == 14


async def test_a_consumer_that_leaves_at_once_has_acknowledged_parts_of_batches() -> None:
    """WIRE-1, CON-3, CON-4: also where the broker has to look up how large a batch is."""

    async with running_pulsar_broker(managed_ledger_cache_size_mb=0) as scene:
        client = await scene.pulsar_client()
        await published(client, 4, 4)
        await client.subscribe(sub_type=SHARED)
        delivered = await client.wait_delivered(2)
        acknowledged = CommandAck(
            consumer_id=1,
            ack_type=CommandAck.INDIVIDUAL,
            message_id=[id_of(delivered[0], 0b1001), id_of(delivered[1], 0b0001)],
        )
        closing = CommandCloseConsumer(consumer_id=1, request_id=client.request_id())
        client.send(
            BaseCommand(type=BaseCommand.ACK, ack=acknowledged),
            BaseCommand(type=BaseCommand.CLOSE_CONSUMER, close_consumer=closing),
        )
        await client.answer(closing.request_id)
        await client.subscribe(2, sub_type=SHARED)
        again = await client.wait_delivered(2, consumer_id=2)
        assert [one.open_messages for one in again] == [(0b1001,), (0b0001,)]


async def test_receipts_of_acknowledgements_are_sent_when_durable() -> None:
    """ACK-1, CON-3: then no crash of the broker loses them, nor the messages of a batch."""

    async with running_pulsar_broker() as scene:
        client = await scene.pulsar_client()
        await published(client, 1, 1, 1, 1, 4)
        await client.subscribe(sub_type=SHARED)
        delivered = await client.wait_delivered(5)
        for bookie in scene.bookies:
            bookie.hold()
        adds = len(scene.bookies[0].calls)
        ids = [id_of(delivered[1]), id_of(delivered[3]), id_of(delivered[4], 0b0101)]
        acknowledging = asyncio.create_task(client.acknowledge(1, ids))
        await until(lambda: any(method == "add" for method, _ in scene.bookies[0].calls[adds:]), "it is being stored")
        assert not client.answers_of(BaseCommand.ACK_RESPONSE)
        for bookie in scene.bookies:
            bookie.resume()
        assert not (await acknowledging).HasField("error")
        before = scene.broker.session
        assert scene.store is not None
        scene.metadata.expire(scene.store)  # as after a crash, nothing more is saved
        await client.wait_for_answers(BaseCommand.CLOSE_CONSUMER)
        await until(lambda: scene.broker.session not in (None, before), "the broker has another session")
        await client.subscribe(2, sub_type=SHARED)
        again = await client.wait_delivered(3, consumer_id=2)
        left = [(one.entry_id, one.open_messages) for one in again]
        assert left == [(delivered[0].entry_id, ()), (delivered[2].entry_id, ()), (delivered[4].entry_id, (0b0101,))]


@pytest.mark.parametrize("kind", [EXCLUSIVE, SHARED])
async def test_late_acks_from_before_a_redelivery_count(kind: int) -> None:
    """WIRE-1, CHK-52: what was processed would be processed again; the commands of this protocol have no epoch."""

    async with running_pulsar_broker() as scene:
        client = await scene.pulsar_client()
        await published(client, *[1] * 4)
        await client.subscribe(sub_type=kind)
        delivered = await client.wait_delivered(4)
        late = CommandAck(consumer_id=1, ack_type=CommandAck.INDIVIDUAL, message_id=[id_of(delivered[2])])
        client.send(REDELIVER, BaseCommand(type=BaseCommand.ACK, ack=late))
        await client.close_consumer()
        await client.subscribe(2, sub_type=kind)
        again = await client.wait_delivered(3, consumer_id=2)
        assert [one.entry_id for one in again] == [delivered[at].entry_id for at in (0, 1, 3)]


async def test_cumulative_ack_before_first_entry_covers_earlier_ledgers() -> None:
    """WIRE-1, CON-3: as a client that counts entries acknowledges a message of a ledger's first batch."""

    async with running_pulsar_broker(
        managed_ledger_max_entries_per_ledger=3, managed_ledger_min_ledger_rollover_time_minutes=0
    ) as scene:
        client = await scene.pulsar_client()
        await client.subscribe()  # before ledgers without a subscription could be trimmed
        await published(client, *[1] * 10)
        delivered = await client.wait_delivered(10)
        ledgers = sorted({one.ledger_id for one in delivered})
        assert len(ledgers) > 2
        before = MessageIdData(ledgerId=ledgers[2], entryId=2**64 - 1)
        assert not (await client.acknowledge(1, [before], cumulative=True)).HasField("error")
        await client.close_consumer()
        await client.subscribe(2)
        left = [(one.ledger_id, one.entry_id) for one in delivered if one.ledger_id >= ledgers[2]]
        again = await client.wait_delivered(len(left), consumer_id=2)
        assert [(one.ledger_id, one.entry_id) for one in again] == left
        nothing = MessageIdData(ledgerId=ledgers[0], entryId=2**64 - 1)
        assert not (await client.acknowledge(2, [nothing], cumulative=True)).HasField("error")


async def test_forced_unsubscribe_sends_close_consumer_to_others_only() -> None:
    """WIRE-1: it would recreate the subscription. Other consumers are closed."""

    async with running_pulsar_broker() as scene:
        client, other = await scene.pulsar_client(), await scene.pulsar_client()
        await client.subscribe(sub_type=SHARED)
        await other.subscribe(sub_type=SHARED)
        command = CommandUnsubscribe(consumer_id=1, request_id=client.request_id(), force=True)
        answer = await client.ask(BaseCommand.UNSUBSCRIBE, unsubscribe=command)
        assert answer.type == BaseCommand.SUCCESS
        await other.wait_for_answers(BaseCommand.CLOSE_CONSUMER)
        assert not client.answers_of(BaseCommand.CLOSE_CONSUMER)


async def test_seek_sends_close_consumer_once_to_each_consumer() -> None:
    """WIRE-1: a library that is notified twice closes the consumer that it has just reopened."""

    async with running_pulsar_broker() as scene:
        clients = [await scene.pulsar_client() for _ in range(3)]
        for client in clients:
            await client.subscribe(sub_type=FAILOVER)
        assert (await clients[1].seek(1, message_publish_time=1)).type == BaseCommand.SUCCESS
        for client in clients:
            await client.lookup("t")  # later notifications have arrived by then
        for client in clients:
            [closed] = client.answers_of(BaseCommand.CLOSE_CONSUMER)
            behind = client.answers[client.answers.index(closed) + 1 :]
            assert all(one.type != BaseCommand.ACTIVE_CONSUMER_CHANGE for one in behind)


async def test_cumulative_ack_counts_after_failover_to_another_consumer() -> None:
    """WIRE-1, ACK-1: the libraries send it once, and drop what they have acknowledged when it is delivered again."""

    async with running_pulsar_broker() as scene:
        former, active = await scene.pulsar_client(), await scene.pulsar_client()
        await published(former, *[1] * 5)
        await former.subscribe(sub_type=FAILOVER, priority_level=1)
        last = (await former.wait_delivered(5))[-1]
        await active.subscribe(sub_type=FAILOVER, priority_level=0)
        await active.wait_delivered(5)
        answer = await former.acknowledge(1, [id_of(last)], cumulative=True)
        assert not answer.HasField("error"), answer
        await active.close_consumer()
        await published(former, 1)
        positions = [(one.ledger_id, one.entry_id) for one in await former.wait_delivered(6)]
        assert positions == sorted({*positions}), "acknowledged messages were redelivered"


@pytest.mark.parametrize("kind", [EXCLUSIVE, SHARED])
async def test_partly_acked_batch_uses_permits_for_unacked_messages_only(kind: int) -> None:
    """WIRE-1, MSG-4, CON-1: no matter which consumer acknowledged the others, and how often they are redelivered."""

    async with running_pulsar_broker() as scene:
        client = await scene.pulsar_client()
        await published(client, *[4] * 20)
        await client.subscribe(sub_type=kind)
        delivered = await client.wait_delivered(20)
        await client.acknowledge(1, [id_of(one, 0b0100) for one in delivered])
        await client.close_consumer()
        for consumer_id in (2, 3):
            await client.subscribe(consumer_id, sub_type=kind, permits=0)
            for granted in range(1, 21):
                client.flow(consumer_id, 1)
                again = await client.wait_delivered(granted, consumer_id=consumer_id)
                assert len(again) == granted
            assert {one.open_messages for one in again} == {(0b0100,)}
            await client.close_consumer(consumer_id)
