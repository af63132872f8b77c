"""What a connection's producers are told, in which order and by which error, as libraries need it."""

from __future__ import annotations

import pytest

from magnetar_protos.pulsar_pb2 import BaseCommand, ServerError
from tests.produce_client import entry
from tests.unit.broker.pulsar.pulsar_client import sent
from tests.unit.broker.pulsar.pulsar_scene import PulsarScene, in_pulsar


@pytest.mark.parametrize(
    ("library", "error"),
    [
        ("Pulsar-CPP-v4.0.0-Python-3.13", ServerError.CHECKSUM_ERROR),
        ("Pulsar-Java-v4.0.7", ServerError.NOT_ALLOWED_ERROR),
    ],
)
def test_what_may_not_be_stored_is_told_in_its_turn(library: str, error: ServerError) -> None:
    """WIRE-1: whatever is about another message than the oldest pending one has libraries connect again, for ever."""

    async def test(scene: PulsarScene) -> None:
        client = scene.raw_client()
        await client.connect(client_version=library)
        name = (await client.open_producer()).producer_name
        later = {"deliver_at_time": 2**40}
        odd = (0, 3, 4, 9)
        client.send_bytes(
            b"".join(
                sent(1, number, entry(number, b"x", name, **(later if number in odd else {}))) for number in range(10)
            )
        )
        await client.receipts(1, 6)
        await client.wait_told(BaseCommand.SEND_ERROR, len(odd))
        told = [
            (one.send_receipt.sequence_id, None)
            if one.type == BaseCommand.SEND_RECEIPT
            else (one.send_error.sequence_id, one.send_error.error)
            for one in client.answers
            if one.type in (BaseCommand.SEND_RECEIPT, BaseCommand.SEND_ERROR)
        ]
        assert told == [(number, error if number in odd else None) for number in range(10)]
        assert not client.gone

    in_pulsar(test)
