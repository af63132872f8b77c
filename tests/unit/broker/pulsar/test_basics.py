"""One client of Pulsar's protocol publishes messages, receives them, and acknowledges them."""

from __future__ import annotations

from magnetar_protos.entry_pb2 import MessageIdData
from magnetar_protos.pulsar_pb2 import BaseCommand
from magnetar_wire.entry import decode_entry
from tests.unit.broker.pulsar.pulsar_scene import PULSAR_ADDRESS, running_pulsar_broker


async def test_a_client_publishes_and_consumes() -> None:
    """WIRE-1, MSG-4."""

    async with running_pulsar_broker() as scene:
        client = await scene.pulsar_client()
        found = await client.lookup("t")
        assert found.lookup_topic_response.broker_service_url == f"pulsar://{PULSAR_ADDRESS}"
        opened = await client.open_producer()
        client.publish(1, *range(100), name=opened.producer_name)
        receipts = await client.receipts(1, 100)
        assert [one.sequence_id for one in receipts] == list(range(100))
        await client.subscribe()
        delivered = await client.wait_delivered(100)
        assert [decode_entry(one.entry).metadata.sequence_id for one in delivered] == list(range(100))
        ids = [MessageIdData(ledgerId=one.ledger_id, entryId=one.entry_id) for one in delivered]
        assert [(one.message_id.ledgerId, one.message_id.entryId) for one in receipts] == [
            (one.ledgerId, one.entryId) for one in ids
        ]
        assert not (await client.acknowledge(1, ids)).HasField("error")
        assert (await client.close_consumer()).type == BaseCommand.SUCCESS
        assert (await client.close_producer()).type == BaseCommand.SUCCESS
        await client.subscribe(2)
        client.publish(1, 100, name=opened.producer_name)  # its producer is closed: passed over
        await client.open_producer()
        assert not client.is_disconnected
