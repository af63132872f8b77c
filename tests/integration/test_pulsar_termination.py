"""pulsar-client on a topic that is terminated, on a real standalone.

With MAGNETAR_TEST_PULSAR_URL the same runs on another server (tests/stock_clients.py).
"""

from __future__ import annotations

import pulsar
import pytest

from tests.stock_clients import EARLIEST, LONG_MS, StockServer, topic

pytest_plugins = ["tests.stock_fixtures"]
pytestmark = pytest.mark.slow


def test_open_and_new_producers_of_a_terminated_topic_are_refused(server: StockServer, client: pulsar.Client) -> None:
    """WIRE-1: what is stored is still delivered."""
    name = topic("terminated")
    producer = client.create_producer(name, send_timeout_millis=LONG_MS)
    producer.send(b"stored")
    consumer = client.subscribe(name, "s", **EARLIEST)
    server.terminate(name)
    for _ in range(2):
        with pytest.raises(pulsar.TopicTerminated):
            producer.send(b"late")
    with pytest.raises(pulsar.TopicTerminated):
        client.create_producer(name)
    assert consumer.receive(LONG_MS).data() == b"stored"
