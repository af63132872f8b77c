"""Clients with a service URL of HTTP: pulsar-client looks topics and partitions up over HTTP."""

from __future__ import annotations

from collections.abc import Iterator

import pulsar
import pytest

from tests.stock_clients import EARLIEST, StockServer, numbers, payloads, received, send_singles, stock_server, topic

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StockServer]:
    with stock_server(tmp_path_factory.mktemp("http") / "data") as running:
        yield running


def test_a_topic_is_found_over_http(server: StockServer) -> None:
    """WIRE-1"""
    name = topic("http-lookup")
    with server.client(server.http_url) as client:
        consumer = client.subscribe(name, "s", **EARLIEST)
        send_singles(client, name, 3)
        assert payloads(consumer, 3, acknowledge=True) == numbers(0, 1, 2)


def test_partitions_are_found_over_http(server: StockServer) -> None:
    """WIRE-1"""
    name = server.make_partitioned(topic("http-partitions"), 3)
    with server.client(server.http_url) as client:
        assert client.get_topic_partitions(name) == [f"{name}-partition-{number}" for number in range(3)]
        consumer = client.subscribe(name, "s", **EARLIEST)
        send_singles(client, name, 6)
        messages = received(consumer, 6)
        assert sorted(message.data() for message in messages) == numbers(*range(6))
        assert {message.message_id().partition() for message in messages} == {0, 1, 2}


def test_a_topic_of_a_missing_namespace_is_not_found_over_http(server: StockServer) -> None:
    with server.client(server.http_url) as client, pytest.raises(pulsar.PulsarException):
        client.create_producer("persistent://public/missing/t")


def test_a_reader_over_http(server: StockServer) -> None:
    """WIRE-1"""
    name = topic("http-reader")
    with server.client(server.http_url) as client:
        send_singles(client, name, 2)
        reader = client.create_reader(name, pulsar.MessageId.earliest)
        assert [reader.read_next(60_000).data() for _ in range(2)] == numbers(0, 1)
