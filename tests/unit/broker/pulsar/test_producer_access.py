"""Access modes of producers of Pulsar's protocol, with the answers after which libraries do the right thing."""

from __future__ import annotations

from typing import Any

import pytest

from magnetar_broker.errors import TopicUnloaded
from magnetar_protos.broker_pb2 import ErrorCode, OpenProducer
from magnetar_protos.pulsar_pb2 import (
    BaseCommand,
    CommandCloseProducer,
    CommandProducer,
    ProducerAccessMode,
    ServerError,
)
from magnetar_wire.topic_name import TopicName
from tests.produce_client import ProduceClient
from tests.running import until
from tests.unit.broker.pulsar.pulsar_client import PulsarClient
from tests.unit.broker.pulsar.pulsar_scene import PulsarScene, running_pulsar_broker

_SHARED = ProducerAccessMode.ACCESS_SHARED
_EXCLUSIVE = ProducerAccessMode.ACCESS_EXCLUSIVE
_WAITS = ProducerAccessMode.ACCESS_WAIT_FOR_EXCLUSIVE
_FENCES = ProducerAccessMode.ACCESS_EXCLUSIVE_WITH_FENCING


async def _clients(scene: PulsarScene, count: int) -> list[PulsarClient]:
    clients = [await scene.pulsar_client() for _ in range(count)]
    for client in clients:
        client.answers_pings = True
    return clients


async def _refused(client: PulsarClient, mode: ProducerAccessMode, **fields: Any) -> ServerError:
    command = CommandProducer(
        topic="t", producer_id=9, request_id=client.request_id(), producer_access_mode=mode, **fields
    )
    answer = await client.ask(BaseCommand.PRODUCER, producer=command)
    assert answer.type == BaseCommand.ERROR, answer
    return answer.error.error


def _request(client: PulsarClient, producer_id: int) -> int:
    """Request a producer that waits. Return the id of the request."""
    command = CommandProducer(
        topic="t", producer_id=producer_id, request_id=client.request_id(), producer_access_mode=_WAITS
    )
    client.send(BaseCommand(type=BaseCommand.PRODUCER, producer=command))
    return command.request_id


async def test_an_exclusive_producer_keeps_others_out() -> None:
    """PRD-2: a shared one gets ProducerBusy, an exclusive one ProducerFenced, as from Pulsar."""
    async with running_pulsar_broker() as scene:
        first, second = await _clients(scene, 2)
        opened = await first.open_producer(producer_access_mode=_EXCLUSIVE)
        assert (opened.topic_epoch, opened.producer_ready) == (0, True)
        assert await _refused(second, _SHARED) == ServerError.PRODUCER_BUSY
        assert await _refused(second, _EXCLUSIVE) == ServerError.PRODUCER_FENCED
        first.cut()
        shared = await second.open_producer(1)
        assert shared.topic_epoch == 0
        assert await _refused(second, _EXCLUSIVE) == ServerError.PRODUCER_FENCED


async def test_a_waiting_producer_is_answered_twice() -> None:
    """PRD-2: at once that it is not ready, and when it is its turn. Closing it before ends its wait."""
    async with running_pulsar_broker(max_waiting_requests_per_connection=1) as scene:
        first, second = await _clients(scene, 2)
        await first.open_producer(producer_access_mode=_EXCLUSIVE)
        requests = [_request(second, number) for number in range(4)]
        await second.wait_for_answers(BaseCommand.PRODUCER_SUCCESS, 4)
        assert not any(one.producer_success.producer_ready for one in second.answers_of(BaseCommand.PRODUCER_SUCCESS))
        close = CommandCloseProducer(producer_id=0, request_id=second.request_id())
        assert (await second.ask(BaseCommand.CLOSE_PRODUCER, close_producer=close)).type == BaseCommand.SUCCESS
        await second.wait_for_answers(BaseCommand.ERROR)
        first.cut()
        ready = (await second.wait_for_answers(BaseCommand.PRODUCER_SUCCESS, 5)).producer_success
        assert (ready.request_id, ready.producer_ready, ready.topic_epoch) == (requests[1], True, 1)
        second.publish(1, 0, name=ready.producer_name)
        await second.receipts(1, 1)
        second.cut()
        [third] = await _clients(scene, 1)
        assert (await third.open_producer(producer_access_mode=_EXCLUSIVE)).topic_epoch == 2, "nobody waits any more"


async def test_a_connection_holds_few_producers_that_wait() -> None:
    """LIM-1"""
    async with running_pulsar_broker(max_waiting_producers_per_stream=1) as scene:
        first, second = await _clients(scene, 2)
        await first.open_producer(producer_access_mode=_EXCLUSIVE)
        waits = _request(second, 1)
        await second.wait_for_answers(BaseCommand.PRODUCER_SUCCESS)
        assert await _refused(second, _WAITS) == ServerError.TOO_MANY_REQUESTS
        first.cut()
        opened = (await second.wait_for_answers(BaseCommand.PRODUCER_SUCCESS, 2)).producer_success
        assert (opened.request_id, opened.producer_ready) == (waits, True)
        [third] = await _clients(scene, 1)
        for client, count in ((third, 1), (second, 3)):
            _request(client, 2)
            answer = (await client.wait_for_answers(BaseCommand.PRODUCER_SUCCESS, count)).producer_success
            assert not answer.producer_ready


async def test_a_fenced_producer_finds_out_when_it_reconnects() -> None:
    """PRD-2, CHK-39: also one that waited is fenced; the one that was open is closed, and never comes back."""
    async with running_pulsar_broker() as scene:
        first, second, third = await _clients(scene, 3)
        mine = (await first.open_producer(producer_access_mode=_EXCLUSIVE)).producer_name
        waits = _request(second, 1)
        await second.wait_for_answers(BaseCommand.PRODUCER_SUCCESS)
        assert (await third.open_producer(producer_access_mode=_FENCES)).topic_epoch == 1
        await first.wait_for_answers(BaseCommand.CLOSE_PRODUCER)
        fenced = (await second.wait_for_answers(BaseCommand.ERROR)).error
        assert (fenced.request_id, fenced.error) == (waits, ServerError.PRODUCER_FENCED)
        again: Any = {"producer_name": mine, "topic_epoch": 0, "epoch": 1}
        for mode in (_EXCLUSIVE, _WAITS, _FENCES):
            assert await _refused(first, mode, **again) == ServerError.PRODUCER_FENCED
        third.cut()
        assert await _refused(first, _EXCLUSIVE, **again) == ServerError.PRODUCER_FENCED


@pytest.mark.parametrize("listener", ["grpc", "pulsar"])
async def test_a_stale_epoch_is_refused_after_a_crash(listener: str) -> None:
    """CHK-39: the epoch is in the topic's node; the next opening refuses the producer of a former one, and admits that
    of the last one."""
    async with running_pulsar_broker() as scene:
        connection = scene.transport.connect(scene.address)

        async def open_producer(name: str, epoch: int | None = None, mode: ProducerAccessMode = _EXCLUSIVE) -> int:
            """Return the epoch, or -1 if it is fenced."""
            if listener == "grpc":
                client = ProduceClient(connection.open_stream("produce"))
                fields: Any = {} if epoch is None else {"topic_epoch": epoch, "incarnation": incarnations[-1]}
                request = OpenProducer(producer_id=1, topic="t", producer_name=name, access_mode=int(mode), **fields)  # type: ignore[arg-type]
                await client.send(request)
                await until(lambda: bool(client.opened or client.ended), "it is answered")
                if client.ended:
                    assert client.ended[1].problem.code == ErrorCode.PRODUCER_FENCED
                    return -1
                incarnations.append(client.opened[1].incarnation)
                return client.opened[1].topic_epoch
            [stock] = await _clients(scene, 1)
            fields = {"producer_name": name} | ({} if epoch is None else {"topic_epoch": epoch, "epoch": 1})
            command = CommandProducer(
                topic="t", producer_id=1, request_id=stock.request_id(), producer_access_mode=mode, **fields
            )
            answer = await stock.ask(BaseCommand.PRODUCER, producer=command)
            if answer.type == BaseCommand.ERROR:
                assert answer.error.error == ServerError.PRODUCER_FENCED
                return -1
            return answer.producer_success.topic_epoch

        incarnations: list[str] = []
        assert await open_producer("first") == 0
        assert await open_producer("second", mode=_FENCES) == 1
        topic = scene.broker_session.topics.get_loaded(TopicName.parse("t"))
        assert topic is not None
        topic.abort(TopicUnloaded("crashed"))
        await until(lambda: topic not in scene.broker_session.topics.loaded(), "the topic is closed")
        assert await open_producer("first", 0) == -1
        assert await open_producer("second", 1) == 1
        await connection.close()


@pytest.mark.parametrize("is_silent", [True, False])
async def test_an_exclusive_producer_that_reconnects_gets_in_without_a_new_epoch(is_silent: bool) -> None:
    """PRD-2: also while the broker has not noticed that the former connection is dead."""
    async with running_pulsar_broker(connection_liveness_check_timeout_millis=50) as scene:
        first, second = await _clients(scene, 2)
        first.answers_pings = False
        name = (await first.open_producer(producer_access_mode=_EXCLUSIVE)).producer_name
        if not is_silent:
            first.cut()
        again: Any = {"producer_access_mode": _EXCLUSIVE, "producer_name": name, "topic_epoch": 0, "epoch": 1}
        assert (await second.open_producer(**again)).topic_epoch == 0
        await until(lambda: first.is_disconnected, "the former connection is closed")


async def test_a_silent_exclusive_producer_is_evicted_by_the_next() -> None:
    """PRD-2: the network has cut it off, and its late messages are not stored."""
    async with running_pulsar_broker(connection_liveness_check_timeout_millis=50) as scene:
        first, second = await _clients(scene, 2)
        first.answers_pings = False
        name = (await first.open_producer(producer_access_mode=_EXCLUSIVE)).producer_name
        assert (await second.open_producer(producer_access_mode=_EXCLUSIVE)).topic_epoch == 1
        assert first.is_disconnected
        first.publish(1, 0, name=name)
        await until(lambda: not first.tasks, "its message is dropped")
        assert (await scene.admin.topics.stats("t")).received.messages == 0
        [again] = await _clients(scene, 1)
        code = await _refused(again, _EXCLUSIVE, producer_name=name, topic_epoch=0, epoch=1)
        assert code == ServerError.PRODUCER_FENCED


async def test_a_topic_that_is_created_again_refuses_epochs_of_the_former() -> None:
    """TOP-7"""
    async with running_pulsar_broker() as scene:
        [client] = await _clients(scene, 1)
        name = (await client.open_producer(producer_access_mode=_EXCLUSIVE)).producer_name
        await scene.admin.topics.delete("t", force=True)
        await client.wait_for_answers(BaseCommand.CLOSE_PRODUCER)
        code = await _refused(client, _EXCLUSIVE, producer_name=name, topic_epoch=0, epoch=1)
        assert code == ServerError.PRODUCER_FENCED
        assert (await client.open_producer(producer_access_mode=_EXCLUSIVE)).topic_epoch == 0
        client.cut()
        [client] = await _clients(scene, 1)
        # The number of another producer is not its own, though it is the same.
        code = await _refused(client, _EXCLUSIVE, producer_name=name, topic_epoch=0, epoch=2)
        assert code == ServerError.PRODUCER_FENCED
