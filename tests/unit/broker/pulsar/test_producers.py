"""What a connection's producers are told, in which order and by which error, as libraries need it."""

from __future__ import annotations

from typing import Any

import pytest

from magnetar_protos.pulsar_pb2 import BaseCommand, CommandPong, CommandProducer, ServerError
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


@pytest.mark.parametrize("alive", [True, False])
@pytest.mark.parametrize("epoch", [0, 1, 2])
def test_a_name_that_the_broker_made_up_goes_to_the_later_epoch(epoch: int, alive: bool) -> None:
    """WIRE-1, PRD-11: any other is told to come again, never that all is over; unless nobody has the name any more."""

    async def test(scene: PulsarScene) -> None:
        first, second = await scene.pulsar_client(), await scene.pulsar_client()
        name = (await first.open_producer(epoch=1)).producer_name
        again: Any = {"producer_name": name, "user_provided_producer_name": False}
        asked = CommandProducer(topic="t", producer_id=7, request_id=second.request_id(), epoch=epoch, **again)
        second.send(BaseCommand(type=BaseCommand.PRODUCER, producer=asked))
        if alive and epoch < 2:
            await first.wait_told(BaseCommand.PING)
            first.send(BaseCommand(type=BaseCommand.PONG, pong=CommandPong()))
        answer = await second.answer(asked.request_id)
        if epoch == 2 or (epoch == 1 and not alive):
            assert answer.type == BaseCommand.PRODUCER_SUCCESS, answer
        else:
            assert answer.error.error == ServerError.PRODUCER_BUSY
        assert first.gone == (not alive and epoch < 2)
        assert bool(first.told(BaseCommand.CLOSE_PRODUCER)) == (epoch == 2)
        first.cut()
        await second.open_producer(8, epoch=3, **again)

    in_pulsar(test, connection_liveness_check_timeout_millis=60_000 if alive else 50)


def test_a_name_that_the_application_chose_goes_to_nobody_else_while_its_connection_lives() -> None:
    """WIRE-1, PRD-11: in no epoch; where it is silent, its connection is closed, and the name is free."""

    async def test(scene: PulsarScene) -> None:
        first, second = await scene.pulsar_client(), await scene.pulsar_client()
        mine: Any = {"producer_name": "mine", "user_provided_producer_name": True}
        await first.open_producer(**mine)
        asked = CommandProducer(topic="t", producer_id=1, request_id=second.request_id(), epoch=5, **mine)
        second.send(BaseCommand(type=BaseCommand.PRODUCER, producer=asked))
        await first.wait_told(BaseCommand.PING)
        first.send(BaseCommand(type=BaseCommand.PONG, pong=CommandPong()))
        assert (await second.answer(asked.request_id)).error.error == ServerError.PRODUCER_BUSY
        await second.open_producer(2, epoch=5, **mine)
        assert first.gone

    in_pulsar(test, connection_liveness_check_timeout_millis=500)
