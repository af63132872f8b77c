"""A stock client of another language, Pulsar's own of Java, on a real standalone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pulsar
import pytest

from magnetar.admin import Admin
from magnetar.exceptions import NotFound
from tests.java_client import run_java_checks
from tests.peers import PeerUnavailable
from tests.running_standalone import standalone

pytestmark = pytest.mark.slow

LONG_MS = 40_000


class Acts:
    """What the program asks for."""

    def __init__(self, admin: Admin, url: str) -> None:
        self._topics, self._subscriptions = admin.topics, admin.subscriptions
        self._url = url

    def partitions(self, topic: str, partitions: str) -> str:
        self._topics.create_partitioned(topic, int(partitions))
        return ""

    def more_partitions(self, topic: str, partitions: str) -> str:
        self._topics.update_partitioned(topic, int(partitions))
        return ""

    def unload(self, topic: str) -> str:
        self._topics.unload(topic)
        return ""

    def subscriptions(self, topic: str) -> str:
        try:
            return " ".join(self._subscriptions.list(topic))
        except NotFound:
            return "no topic"

    def backlog(self, topic: str, subscription: str) -> str:
        [stats] = [one for one in self._topics.stats(topic).subscriptions if one.subscription == subscription]
        return str(stats.backlog_entries)

    def exists(self, topic: str) -> str:
        return "yes" if topic in self._topics.list("public/default") else "no"

    def pulsar_client(self, topic: str) -> str:
        """Sends 10 messages behind those that are there, and tells of all."""
        client = pulsar.Client(self._url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        producer = client.create_producer(topic, batching_enabled=True, batching_max_messages=3)
        for number in range(10, 20):
            producer.send_async(b"%d" % number, None, partition_key=f"p{number}", properties={"of": "Python"})
        producer.flush()
        consumer = client.subscribe(topic, "of Python", initial_position=pulsar.InitialPosition.Earliest)
        told = []
        for _ in range(20):
            message = consumer.receive(LONG_MS)
            told.append(f"{message.data().decode()}/{message.partition_key()}/{message.properties()['of']}")
        client.close()
        return " ".join(told)

    def by_name(self) -> dict[str, object]:
        return {}


@pytest.fixture(scope="module")
def problems(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Of all checks, by their names."""
    folder = tmp_path_factory.mktemp("java")
    with standalone(folder / "data") as server:
        admin = Admin(server.grpc)
        acts = Acts(admin, server.pulsar)
        try:
            yield run_java_checks(
                folder,
                server.pulsar,
                {
                    "partitions": acts.partitions,
                    "more partitions": acts.more_partitions,
                    "unload": acts.unload,
                    "subscriptions": acts.subscriptions,
                    "backlog": acts.backlog,
                    "exists": acts.exists,
                    "pulsar-client": acts.pulsar_client,
                },
            )
        except PeerUnavailable as error:
            pytest.skip(str(error))
        finally:
            admin.close()
