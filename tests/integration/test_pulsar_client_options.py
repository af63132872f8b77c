"""Options of a whole pulsar-client: credentials, keys, other addresses; on a real standalone.

With MAGNETAR_TEST_PULSAR_URL the same runs on another server (tests/stock_clients.py).
"""

from __future__ import annotations

import logging
import shutil
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pulsar
import pytest
from pulsar import ConsumerCryptoFailureAction, CryptoKeyReader, MessageId

from magnetar_broker.server.pulsar.frames import MAX_COMMAND_BYTES, FrameReader
from magnetar_broker.server.pulsar.replies import frame
from magnetar_protos.pulsar_pb2 import BaseCommand, CommandConnect, CommandLookupTopic
from tests.running import GENEROUS_S
from tests.stock_clients import (
    EARLIEST,
    LONG_MS,
    OURS_ALONE,
    SHORT_MS,
    StockServer,
    payloads,
    send_batch,
    stock_server,
    topic,
    until,
)

pytest_plugins = ["tests.stock_fixtures"]
pytestmark = pytest.mark.slow


def works(client: pulsar.Client, name: str = "") -> None:
    name = name or topic("works")
    client.create_producer(name).send(b"x")
    assert payloads(client.subscribe(name, "s", **EARLIEST), 1) == [b"x"]


@pytest.mark.parametrize(
    "authentication",
    [
        lambda: pulsar.AuthenticationToken("nobody reads it"),
        lambda: pulsar.AuthenticationToken(lambda: "nor this"),
        lambda: pulsar.AuthenticationBasic("user", "password"),
    ],
    ids=["token", "supplier", "basic"],
)
def test_credentials_are_ignored_without_authentication(
    server: StockServer, authentication: Callable[[], pulsar.Authentication]
) -> None:
    """WIRE-1."""
    with server.client(authentication=authentication()) as client:
        works(client)


def test_clients_find_a_server_among_addresses(server: StockServer) -> None:
    """WIRE-1: one of which nobody listens at."""
    with server.client(url=f"pulsar://127.0.0.1:1,{server.url.removeprefix('pulsar://')}") as client:
        works(client)


@OURS_ALONE
def test_lookup_returns_the_address_the_client_connected_to(tmp_path: Path) -> None:
    """WIRE-1, OWN-1: of a server at all addresses, as one that is used from other machines has to be."""
    with stock_server(tmp_path / "data", host="0.0.0.0") as server:
        elsewhere = server.url.replace("127.0.0.1", "127.0.0.2")
        with server.client(url=elsewhere) as client:
            works(client)
        assert looked_up(elsewhere) == elsewhere
        assert looked_up(server.url) == server.url


def looked_up(url: str) -> str:
    """The address in the answer to a lookup at this address."""
    host, _, port = url.removeprefix("pulsar://").rpartition(":")
    connect = CommandConnect(client_version="test", protocol_version=21)
    lookup = CommandLookupTopic(topic="t", request_id=1)
    reader = FrameReader(MAX_COMMAND_BYTES)
    with socket.create_connection((host, int(port)), timeout=GENEROUS_S) as connection:
        connection.sendall(frame(BaseCommand(type=BaseCommand.CONNECT, connect=connect)))
        connection.sendall(frame(BaseCommand(type=BaseCommand.LOOKUP, lookup_topic=lookup)))
        while True:
            reader.feed(connection.recv(65_536))
            while (parts := reader.next_frame()) is not None:
                command = BaseCommand.FromString(parts[0])
                if command.type == BaseCommand.LOOKUP_RESPONSE:
                    return command.lookup_topic_response.broker_service_url


def test_clients_of_many_threads_and_connections(server: StockServer) -> None:
    """WIRE-1: with a logger of Python's, statistics and look-ups one at a time."""
    log = logging.getLogger("tests.pulsar_client_options")
    log.setLevel(logging.CRITICAL)
    options: dict[str, Any] = {"io_threads": 3, "message_listener_threads": 3, "concurrent_lookup_requests": 1}
    with server.client(logger=log, stats_interval_in_seconds=1, connection_timeout_ms=5_000, **options) as client:
        names = [topic("threads") for _ in range(4)]
        for name in names:
            works(client, name)
        assert client.get_service_info().service_url == server.url


def test_client_fails_over_to_the_secondary_cluster(server: StockServer) -> None:
    """WIRE-1: where the first one does not answer."""
    nobody, somebody = pulsar.ServiceInfo("pulsar://127.0.0.1:1"), pulsar.ServiceInfo(server.url)
    with server.client(url=pulsar.AutoClusterFailover(nobody, [somebody], check_interval_ms=50)) as client:
        until(lambda: client.get_service_info().service_url == server.url, "the client has changed over")
        works(client)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> CryptoKeyReader:
    if (openssl := shutil.which("openssl")) is None:
        pytest.skip("needs openssl, which makes keys")
    folder: Path = tmp_path_factory.mktemp("keys")
    private, public = folder / "private.pem", folder / "public.pem"
    for arguments in (
        ["genrsa", "-traditional", "-out", private, "2048"],
        ["rsa", "-in", private, "-pubout", "-out", public],
    ):
        subprocess.run([openssl, *map(str, arguments)], check=True, capture_output=True)
    return CryptoKeyReader(str(public), str(private))


@pytest.mark.parametrize("batching", [False, True], ids=["singles", "batches"])
def test_encrypted_messages_pass_through_unchanged(
    server: StockServer, keys: CryptoKeyReader, *, batching: bool
) -> None:
    """WIRE-1: who has the key reads it; who has not is given it as it is, passes over it, or is not given it at all."""
    name, contents = topic("secret"), [b"secret %d" % number * 50 for number in range(3)]
    with server.client() as client:
        producer = client.create_producer(
            name,
            encryption_key="key",
            crypto_key_reader=keys,
            compression_type=pulsar.CompressionType.ZLib if batching else pulsar.CompressionType.NONE,
            batching_enabled=batching,
            batching_max_publish_delay_ms=60_000,
        )
        send_batch(producer, *contents)
        knowing = client.create_reader(name, MessageId.earliest, crypto_key_reader=keys)
        assert [knowing.read_next(LONG_MS).data() for _ in contents] == contents
        assert not knowing.has_message_available()
        discarding = client.subscribe(
            name, "discarding", crypto_failure_action=ConsumerCryptoFailureAction.DISCARD, **EARLIEST
        )
        failing = client.subscribe(name, "failing", **EARLIEST)
        for consumer in (discarding, failing):
            with pytest.raises(pulsar.Timeout):
                consumer.receive(SHORT_MS)
        failing.close()
        taking = client.subscribe(name, "taking", crypto_failure_action=ConsumerCryptoFailureAction.CONSUME, **EARLIEST)
        raw = taking.receive(LONG_MS)
        assert raw.data() not in contents
        assert raw.encryption_context().keys()[0].key == "key"
        with_key = client.subscribe(name, "failing", crypto_key_reader=keys)
        assert payloads(with_key, 3) == contents
