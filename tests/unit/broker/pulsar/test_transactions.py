"""Transactions, of which there are none."""

from __future__ import annotations

from magnetar_protos.pulsar_pb2 import BaseCommand, ServerError, TransactionRequest
from tests.unit.broker.pulsar.pulsar_scene import running_pulsar_broker


async def test_transaction_commands_are_refused_without_closing_connection() -> None:
    """WIRE-1."""

    async with running_pulsar_broker() as scene:
        client = await scene.pulsar_client()
        names = [name for name, _ in BaseCommand.Type.items() if "TXN" in name or name.startswith("TC_")]
        assert len(names) == 7
        for name in names:
            request = TransactionRequest(request_id=client.request_id())
            answer = await client.ask(getattr(BaseCommand, name), **{name.lower(): request})
            assert answer.type == BaseCommand.ERROR
            assert answer.error.error == ServerError.NOT_ALLOWED_ERROR
            assert "transactions" in answer.error.message
        await client.open_producer()
        assert not client.is_disconnected
