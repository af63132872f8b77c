"""Clients whose process forks, over real gRPC to a real standalone."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

import magnetar
from magnetar import exceptions
from tests.running import GENEROUS_S
from tests.running_standalone import StandaloneProcess, standalone

pytestmark = pytest.mark.slow

ROUNDS = 5


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    folder: Path = tmp_path_factory.mktemp("fork")
    with standalone(folder / "data") as started:
        yield started


def _child(client: magnetar.Client, producer: magnetar.Producer, answers: Connection) -> None:
    try:
        with pytest.raises(exceptions.AlreadyClosed, match="before the process forked"):
            producer.send_async(b"the parent's producer")
        with client.create_producer("forked") as own:
            own.send(b"from the child")
        client.close()
        answers.send("fine")
    except BaseException as error:
        answers.send(repr(error))
        raise


def test_parent_and_child_go_on_after_a_fork(server: StandaloneProcess) -> None:
    """CHK-60: channels that were used before a fork don't hang or kill the child, and the parent loses nothing that
    was pending when it forked, and keeps its order."""
    context = multiprocessing.get_context("fork")
    with magnetar.Client(server.grpc) as client:
        producer = client.create_producer(
            "parent", max_pending_messages=100_000, block_if_queue_full=True, batching_max_publish_delay_ms=1_000
        )
        producer.send(b"0")
        results: list[magnetar.Result] = []
        ids: list[magnetar.MessageId | None] = []
        sent = 0

        def told(result: magnetar.Result, message_id: magnetar.MessageId | None) -> None:
            results.append(result)
            ids.append(message_id)

        for _ in range(ROUNDS):
            for _ in range(5_010):  # and an open batch
                producer.send_async(b"x" * 100, told)
                sent += 1
            answers, their_end = context.Pipe(duplex=False)
            process = context.Process(target=_child, args=(client, producer, their_end))
            process.start()
            their_end.close()
            assert answers.poll(GENEROUS_S), "the child hangs"
            assert answers.recv() == "fine"
            process.join(GENEROUS_S)
            assert process.exitcode == 0
            producer.send_async(b"behind the fork", told)
            sent += 1
        producer.flush()
        assert len(results) == sent
        assert set(results) == {magnetar.Result.Ok}
        assert ids == sorted(ids, key=lambda each: each or magnetar.MessageId.earliest)


def test_a_send_that_another_thread_waits_for_survives_a_fork(server: StandaloneProcess) -> None:
    """CHK-60"""
    with magnetar.Client(server.grpc) as client:
        producer = client.create_producer("waiting")
        stop = threading.Event()
        sent = [0]
        errors: list[Exception] = []

        def keep_sending() -> None:
            try:
                while not stop.is_set():
                    producer.send(b"%d" % sent[0])
                    sent[0] += 1
            except Exception as error:  # noqa: BLE001 (told below)
                errors.append(error)

        thread = threading.Thread(target=keep_sending)
        thread.start()
        try:
            for _ in range(ROUNDS):
                before = sent[0]
                pid = os.fork()
                if pid == 0:
                    os._exit(0)
                assert os.waitpid(pid, 0)[1] == 0
                while sent[0] < before + 3 and not errors:
                    stop.wait(0.01)
        finally:
            stop.set()
            thread.join(GENEROUS_S)
        assert not errors
        assert not thread.is_alive()


def test_a_consumer_goes_on_in_the_parent_and_is_closed_in_the_child(server: StandaloneProcess) -> None:
    """CHK-60"""
    with magnetar.Client(server.grpc) as client:
        consumer = client.subscribe("consumed", "s", initial_position=magnetar.InitialPosition.Earliest)
        producer = client.create_producer("consumed")
        for number in range(ROUNDS):
            producer.send(b"%d" % number)
            pid = os.fork()
            if pid == 0:
                try:
                    with pytest.raises(exceptions.AlreadyClosed):
                        consumer.receive(1_000)
                    os._exit(0)
                finally:
                    os._exit(1)
            assert os.waitpid(pid, 0)[1] == 0
        read: dict[bytes, None] = {}
        while len(read) < ROUNDS:
            message = consumer.receive(10_000)
            read[message.data()] = None
            consumer.acknowledge(message)
        assert list(read) == [b"%d" % number for number in range(ROUNDS)]


def test_a_child_of_a_process_whose_client_is_closed(server: StandaloneProcess) -> None:
    """CHK-60"""
    client = magnetar.Client(server.grpc)
    client.create_producer("closed").send(b"x")
    client.close()
    pid = os.fork()
    if pid == 0:
        try:
            with magnetar.Client(server.grpc) as own:
                own.create_producer("closed").send(b"y")
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
