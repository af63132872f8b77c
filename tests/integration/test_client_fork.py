"""Clients whose process forks, over real gRPC to a real standalone."""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from multiprocessing.connection import Connection

import pytest

import magnetar
from magnetar import exceptions
from magnetar_testing.standalone_process import StandaloneProcess
from tests.running import GENEROUS_S

pytestmark = pytest.mark.slow

ROUNDS = 5


@pytest.fixture(scope="module")
def server(magnetar_standalone: StandaloneProcess) -> StandaloneProcess:
    return magnetar_standalone


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
    with magnetar.Client(server.service_url) as client:
        producer = client.create_producer(
            "parent", max_pending_messages=100_000, block_if_queue_full=True, batching_max_publish_delay_ms=1_000
        )
        producer.send(b"0")
        results: list[magnetar.Result] = []
        ids: list[magnetar.MessageId | None] = []
        sent = 0

        def on_sent(result: magnetar.Result, message_id: magnetar.MessageId | None) -> None:
            results.append(result)
            ids.append(message_id)

        for _ in range(ROUNDS):
            for _ in range(5_010):  # and an open batch
                producer.send_async(b"x" * 100, on_sent)
                sent += 1
            answers, their_end = context.Pipe(duplex=False)
            process = context.Process(target=_child, args=(client, producer, their_end))
            process.start()
            their_end.close()
            assert answers.poll(GENEROUS_S), "the child hangs"
            assert answers.recv() == "fine"
            process.join(GENEROUS_S)
            assert process.exitcode == 0
            producer.send_async(b"behind the fork", on_sent)
            sent += 1
        producer.flush()
        assert len(results) == sent
        assert set(results) == {magnetar.Result.Ok}
        assert ids == sorted(ids, key=lambda each: each or magnetar.MessageId.earliest)


def test_a_send_that_another_thread_waits_for_survives_a_fork(server: StandaloneProcess) -> None:
    """CHK-60"""
    with magnetar.Client(server.service_url) as client:
        producer = client.create_producer("waiting")
        stop = threading.Event()
        sent = [0]
        errors: list[Exception] = []

        def keep_sending() -> None:
            try:
                while not stop.is_set():
                    producer.send(b"%d" % sent[0])
                    sent[0] += 1
            except Exception as error:  # noqa: BLE001 (reported below)
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


def test_consumer_survives_fork_in_parent_and_is_closed_in_child(server: StandaloneProcess) -> None:
    """CHK-60"""
    with magnetar.Client(server.service_url) as client:
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


def test_child_can_create_client_after_parent_closed_its_own(server: StandaloneProcess) -> None:
    """CHK-60"""
    client = magnetar.Client(server.service_url)
    client.create_producer("closed").send(b"x")
    client.close()
    pid = os.fork()
    if pid == 0:
        try:
            with magnetar.Client(server.service_url) as own:
                own.create_producer("closed").send(b"y")
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0


def test_child_can_create_client_after_gc_freeze_in_parent(server: StandaloneProcess) -> None:
    """CHK-60: `gc.freeze`, which servers that fork use, keeps a client's channels from the collector."""
    client = magnetar.Client(server.service_url)
    client.create_producer("frozen").send(b"x")
    gc.freeze()
    try:
        client.close()
        del client
        pid = os.fork()
        if pid == 0:
            try:
                with magnetar.Client(server.service_url) as own:
                    own.create_producer("frozen").send(b"y")
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitpid(pid, 0)[1] == 0
    finally:
        gc.unfreeze()


FORKS = 100


@pytest.mark.soak
def test_a_hundred_forks_under_load(server: StandaloneProcess) -> None:
    """CHK-60: a process that sends and receives all the time forks a hundred times, from several threads, children that
    use its client, one of their own, or none, end in every way, and fork themselves: nobody hangs or crashes, and the
    parent's messages keep their order, each callback is called once, and all of them are read."""
    command = [sys.executable, "-W", "error", "-m", "tests.integration.forking_client", server.service_url, str(FORKS)]
    found = subprocess.run(command, capture_output=True, text=True, timeout=5 * GENEROUS_S, check=False)
    assert (found.returncode, found.stderr) == (0, ""), found
    result = json.loads(found.stdout)
    assert not result["wrong"]
    assert result["read"] == result["sent"] > FORKS


def _worker(client: magnetar.Client, number: int) -> int:
    """In a child: what a worker does that was forked off a process whose client was used."""
    producer = client.create_producer("workers")
    for each in range(5):
        producer.send_async(b"%d" % each)
    producer.flush()
    reader = client.create_reader("workers", magnetar.MessageId.earliest)
    assert reader.has_message_available()
    assert reader.read_next(10_000).data()
    return number


def test_workers_are_forked_killed_and_forked_again(server: StandaloneProcess) -> None:
    """CHK-60, as gunicorn does it: the master has used its client and goes on using it; workers that are killed in the
    middle of things leave nothing behind that hinders the next ones."""
    with magnetar.Client(server.service_url) as client:
        own = client.create_producer("workers", "the master's")
        for generation in range(2):
            own.send(b"generation %d" % generation)
            workers = []
            for number in range(3):
                answer, theirs = os.pipe()
                pid = os.fork()
                if pid == 0:
                    try:
                        os.write(theirs, b"%d" % _worker(client, number))
                        signal.pause()
                    finally:
                        os._exit(1)
                os.close(theirs)
                workers.append((pid, answer))
            own.send(b"while workers begin")
            for number, (pid, answer) in enumerate(workers):
                assert os.read(answer, 10) == b"%d" % number
                os.close(answer)
                os.kill(pid, signal.SIGKILL)
                assert os.waitpid(pid, 0)[1] == signal.SIGKILL
        own.send(b"the last")


_pool_client: magnetar.Client | None = None


def _in_pool(arguments: tuple[str, int]) -> int:
    """In a pool's process, which has its parent's client if it was forked, and else none."""
    global _pool_client
    url, number = arguments
    if _pool_client is None:
        _pool_client = magnetar.Client(url)
    return _worker(_pool_client, number)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_pool_of_processes(server: StandaloneProcess, method: str) -> None:
    """CHK-60"""
    global _pool_client
    _pool_client = magnetar.Client(server.service_url)
    try:
        _pool_client.create_producer("workers").send(b"before the pool")
        with multiprocessing.get_context(method).Pool(2) as pool:
            results = pool.map_async(_in_pool, [(server.service_url, number) for number in range(4)])
            _pool_client.create_producer("workers").send(b"while the pool works")
            assert results.get(GENEROUS_S) == list(range(4))
    finally:
        _pool_client.close()
        _pool_client = None
