"""The answers to a connection's producers, their order and their errors, as client libraries need them."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from magnetar_protos.pulsar_pb2 import BaseCommand, CommandCloseProducer, CommandPong, CommandProducer, ServerError
from tests.produce_client import entry
from tests.unit.broker.pulsar.pulsar_client import sent
from tests.unit.broker.pulsar.pulsar_scene import running_pulsar_broker


@pytest.mark.parametrize(
    ("library", "error"),
    [
        ("Pulsar-CPP-v4.0.0-Python-3.13", ServerError.CHECKSUM_ERROR),
        ("Pulsar-Java-v4.0.7", ServerError.NOT_ALLOWED_ERROR),
    ],
)
async def test_refused_messages_are_answered_in_publish_order(library: str, error: ServerError) -> None:
    """WIRE-1: a library reconnects for ever if an answer is for another message than the oldest pending one."""

    async with running_pulsar_broker() as scene:
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
        await client.wait_for_answers(BaseCommand.SEND_ERROR, len(odd))
        answers = [
            (one.send_receipt.sequence_id, None)
            if one.type == BaseCommand.SEND_RECEIPT
            else (one.send_error.sequence_id, one.send_error.error)
            for one in client.answers
            if one.type in (BaseCommand.SEND_RECEIPT, BaseCommand.SEND_ERROR)
        ]
        assert answers == [(number, error if number in odd else None) for number in range(10)]
        assert not client.is_disconnected


async def test_an_initial_subscription_is_refused_where_subscriptions_are_not_created_on_first_use() -> None:
    """CON-10: a dead letter would have no subscription. The error names the setting, and no producer is open."""

    async with running_pulsar_broker(allow_auto_subscription_creation=False) as scene:
        client = await scene.pulsar_client()
        command = CommandProducer(topic="t-s-DLQ", producer_id=1, request_id=9, initial_subscription_name="first")
        answer = await client.ask(BaseCommand.PRODUCER, producer=command)
        assert answer.type == BaseCommand.ERROR
        assert answer.error.error == ServerError.NOT_ALLOWED_ERROR
        assert "allow_auto_subscription_creation" in answer.error.message
        assert not client.producers
        await scene.admin.subscriptions.create("t-s-DLQ", "first")
        await client.open_producer(topic="t-s-DLQ", initial_subscription_name="first")


@pytest.mark.parametrize("alive", [True, False])
@pytest.mark.parametrize("epoch", [0, 1, 2, 2**64 - 1])
async def test_generated_name_is_busy_while_connection_is_alive(epoch: int, alive: bool) -> None:
    """WIRE-1, PRD-11: a newcomer is told to retry, never that it is fenced; once the name is not in use, any epoch will
    do."""

    async with running_pulsar_broker(connection_liveness_check_timeout_millis=60000 if alive else 50) as scene:
        first, second = await scene.pulsar_client(), await scene.pulsar_client()
        name = (await first.open_producer(epoch=1)).producer_name
        again: Any = {"producer_name": name, "user_provided_producer_name": False}
        command = CommandProducer(topic="t", producer_id=7, request_id=second.request_id(), epoch=epoch, **again)
        second.send(BaseCommand(type=BaseCommand.PRODUCER, producer=command))
        if alive:
            await first.wait_for_answers(BaseCommand.PING)
            first.send(BaseCommand(type=BaseCommand.PONG, pong=CommandPong()))
            assert (await second.answer(command.request_id)).error.error == ServerError.PRODUCER_BUSY
            first.cut()
            await second.open_producer(7, epoch=epoch, **again)
        else:
            assert (await second.answer(command.request_id)).type == BaseCommand.PRODUCER_SUCCESS
        assert first.is_disconnected
        assert not first.answers_of(BaseCommand.CLOSE_PRODUCER)
        second.cut()
        third = await scene.pulsar_client()
        await third.open_producer(1, epoch=0, **again)


async def test_user_provided_name_is_busy_while_connection_is_alive() -> None:
    """WIRE-1, PRD-11: in no epoch; where it is silent, its connection is closed, and the name is free."""

    async with running_pulsar_broker(connection_liveness_check_timeout_millis=500) as scene:
        first, second = await scene.pulsar_client(), await scene.pulsar_client()
        mine: Any = {"producer_name": "mine", "user_provided_producer_name": True}
        await first.open_producer(**mine)
        command = CommandProducer(topic="t", producer_id=1, request_id=second.request_id(), epoch=5, **mine)
        second.send(BaseCommand(type=BaseCommand.PRODUCER, producer=command))
        await first.wait_for_answers(BaseCommand.PING)
        first.send(BaseCommand(type=BaseCommand.PONG, pong=CommandPong()))
        assert (await second.answer(command.request_id)).error.error == ServerError.PRODUCER_BUSY
        await second.open_producer(2, epoch=5, **mine)
        assert first.is_disconnected


async def test_go_producer_is_closed_at_the_first_refused_message() -> None:
    """WIRE-1: its library hears nothing more of a producer after a SEND_ERROR."""

    closed_kind = BaseCommand.CLOSE_PRODUCER
    async with running_pulsar_broker() as scene:
        client = scene.raw_client()
        await client.connect(client_version="Pulsar-Go-v0.19.0")
        name = (await client.open_producer(1)).producer_name
        await client.open_producer(2)
        entries = [
            entry(number, b"x", name, **({"deliver_at_time": 2**40} if number == 2 else {})) for number in range(5)
        ]
        client.send_bytes(b"".join(sent(1, number, stored) for number, stored in enumerate(entries)))
        closed = (await client.wait_for_answers(BaseCommand.CLOSE_PRODUCER)).close_producer
        assert closed.producer_id == 1
        kinds = [one.type for one in client.answers if one.type in (BaseCommand.SEND_RECEIPT, closed_kind)]
        assert kinds == [BaseCommand.SEND_RECEIPT] * 2 + [closed_kind]
        again = (
            await client.open_producer(1, producer_name=name, user_provided_producer_name=False, epoch=1)
        ).producer_name
        assert again == name
        client.send_bytes(b"".join(sent(1, number, entries[number]) for number in (3, 4)))
        receipts = await client.receipts(1, 4)
        assert [one.sequence_id for one in receipts] == [0, 1, 3, 4]
        assert not client.answers_of(BaseCommand.SEND_ERROR)
        [topic] = scene.broker_session.topics.loaded()
        assert topic.counters.received.entries == 4
        assert len(topic.producers.connected()) == 2


async def test_refused_entries_are_logged_once_per_producer_and_error(caplog: pytest.LogCaptureFixture) -> None:
    """MSG-2, WIRE-1: several libraries do not report the reason to their application."""

    with caplog.at_level(logging.WARNING):
        async with running_pulsar_broker() as scene:
            client = await scene.pulsar_client()
            for producer_id in (1, 2):
                name = (await client.open_producer(producer_id)).producer_name
                for number in range(3):
                    client.send_bytes(sent(producer_id, number, entry(number, b"x", name, deliver_at_time=2**40)))
                client.send_bytes(sent(producer_id, 3, entry(3, b"x", "another")))
            await client.wait_for_answers(BaseCommand.SEND_ERROR, 8)
    logged = [record.getMessage() for record in caplog.records if "is refused" in record.getMessage()]
    assert len([text for text in logged if "deliver" in text]) == 2
    assert len([text for text in logged if "another" in text]) == 2
    assert len(logged) == 4
    assert all("public/default/" in text for text in logged)


async def test_producer_reopens_only_after_its_pending_close() -> None:
    """WIRE-1: libraries close what was not answered in time, and open it again without waiting."""

    async with running_pulsar_broker() as scene:
        client = await scene.pulsar_client()
        await client.open_producer()
        close = CommandCloseProducer(producer_id=1, request_id=100)
        again = CommandProducer(topic="t", producer_id=1, request_id=101)
        client.send(
            BaseCommand(type=BaseCommand.CLOSE_PRODUCER, close_producer=close),
            BaseCommand(type=BaseCommand.PRODUCER, producer=again),
        )
        assert (await client.answer(101)).error.error == ServerError.SERVICE_NOT_READY
        assert (await client.answer(100)).type == BaseCommand.SUCCESS
        name = (await client.open_producer()).producer_name
        client.publish(1, 0, name=name)
        await client.receipts(1, 1)


async def test_a_producer_that_is_closed_before_it_is_open_answers_both() -> None:
    """WIRE-1: every request is answered."""

    async with running_pulsar_broker() as scene:
        client = await scene.pulsar_client()
        client.send(
            BaseCommand(type=BaseCommand.PRODUCER, producer=CommandProducer(topic="t", producer_id=1, request_id=100)),
            BaseCommand(
                type=BaseCommand.CLOSE_PRODUCER, close_producer=CommandCloseProducer(producer_id=1, request_id=101)
            ),
        )
        assert (await client.answer(101)).type == BaseCommand.SUCCESS
        assert (await client.answer(100)).error.error == ServerError.SERVICE_NOT_READY
