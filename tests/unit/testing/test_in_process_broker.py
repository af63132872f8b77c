"""InProcessBroker: started, stopped and started again in the test's own process."""

from __future__ import annotations

import tempfile
import threading
import time
import types
import urllib.request
from pathlib import Path

import pytest

import magnetar
from magnetar_testing import in_process_broker
from magnetar_testing.in_process_broker import InProcessBroker
from magnetar_wire.configuration import InvalidConfiguration

_LONG_MS = 60_000


def _contents(client: magnetar.Client, topic: str, count: int) -> list[bytes | None]:
    with client.create_reader(topic, magnetar.MessageId.earliest) as reader:
        return [reader.read_next(_LONG_MS).data() for _ in range(count)]


def test_clients_go_on_after_a_restart(magnetar_empty_broker: InProcessBroker, magnetar_topic: str) -> None:
    broker = magnetar_empty_broker
    urls = (broker.service_url, broker.pulsar_url, broker.http_url)
    with broker.client() as client:
        producer = client.create_producer(magnetar_topic)
        producer.send(b"before")
        broker.stop()
        assert not broker.is_running
        sent = threading.Event()
        producer.send_async(b"between", lambda result, _: sent.set() if result == magnetar.Result.Ok else None)
        broker.start()
        assert sent.wait(60)
        broker.restart()
        producer.send(b"after")
        assert _contents(client, magnetar_topic, 3) == [b"before", b"between", b"after"]
    assert (broker.service_url, broker.pulsar_url, broker.http_url) == urls


def test_its_folder_is_deleted_unless_it_is_the_callers(tmp_path: Path) -> None:
    with InProcessBroker() as broker:
        temporary = broker.folder
        assert temporary is not None
        assert temporary.is_dir()
    assert not temporary.exists()
    with InProcessBroker(tmp_path / "data") as broker, broker.client() as client:
        client.create_producer("t").send(b"stored")
    with InProcessBroker(tmp_path / "data") as broker, broker.client() as client:
        assert _contents(client, "t", 1) == [b"stored"]


def test_folders_that_dead_processes_left_are_deleted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    left = tmp_path / "magnetar-test-left"
    left.mkdir()
    with InProcessBroker() as used:
        assert left.exists(), "it is perhaps in the making"
        later = types.SimpleNamespace(time=lambda: time.time() + 3600)
        monkeypatch.setattr(in_process_broker, "time", later)
        with InProcessBroker():
            assert not left.exists()
            assert used.folder is not None
            assert used.folder.exists()


def test_wrong_settings_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(InvalidConfiguration, match="no setting 'max_mesage_size': did you mean 'max_message_size'"):
        InProcessBroker(max_mesage_size=1).start()
    with pytest.raises(
        InvalidConfiguration, match="max_message_size = -1 is out of range: set a whole number from 1 to"
    ):
        InProcessBroker(max_message_size=-1).start()
    with pytest.raises(TypeError, match="has no setting data_folder: pass `folder` instead"):
        InProcessBroker(data_folder=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_setting_counts(magnetar_topic: str) -> None:
    with (
        InProcessBroker(max_message_size=10_000) as broker,
        broker.client() as client,
        pytest.raises(magnetar.exceptions.MessageTooBig),
    ):
        client.create_producer(magnetar_topic).send(bytes(20_000))


def test_one_that_does_not_start_leaves_nothing(
    magnetar_empty_broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    taken = int(magnetar_empty_broker.service_url.rpartition(":")[2])
    with pytest.raises(Exception, match=str(taken)):
        InProcessBroker(grpc_port=taken).start()
    assert list(tmp_path.iterdir()) == []


def test_it_is_started_once(magnetar_empty_broker: InProcessBroker) -> None:
    with pytest.raises(RuntimeError, match=f"the broker at {magnetar_empty_broker.service_url} is running already"):
        magnetar_empty_broker.start()
    assert repr(magnetar_empty_broker) == f"<InProcessBroker {magnetar_empty_broker.service_url}>"


def test_it_serves_health_over_http(magnetar_empty_broker: InProcessBroker) -> None:
    with urllib.request.urlopen(f"{magnetar_empty_broker.http_url}/ready", timeout=60) as answer:
        assert answer.status == 200


def test_close_is_idempotent() -> None:
    broker = InProcessBroker()
    broker.close()
    broker.start()
    broker.close()
    broker.close()
    assert broker.folder is None


@pytest.mark.asyncio(loop_scope="session")
async def test_tests_with_asyncio_use_it(magnetar_empty_broker: InProcessBroker, magnetar_topic: str) -> None:
    async with magnetar_empty_broker.aio_client() as client:
        consumer = await client.subscribe(magnetar_topic, "s")
        producer = await client.create_producer(magnetar_topic)
        await producer.send(b"one")
        assert (await consumer.receive()).data() == b"one"
