"""A broker's process is killed: other brokers see that its address refuses connections, and wait for no session."""

from __future__ import annotations

import pytest

import magnetar
from magnetar.admin import Admin
from magnetar_cli.cluster import LocalCluster
from magnetar_testing.pytest_plugin import StartCluster
from tests.topic_owner import owner_of

pytestmark = pytest.mark.slow

_NAMESPACE = "public/default"
# As long as ZooKeeper allows: nothing here waits for it.
_SESSION_TIMEOUT_S = 60.0


def test_topic_moves_before_session_of_killed_broker_expires(
    magnetar_start_cluster: StartCluster,
) -> None:
    """OWN-2: publishing goes on at the other broker, though nodes of the killed one's session are still there."""
    cluster = magnetar_start_cluster(brokers=2, session_timeout_s=_SESSION_TIMEOUT_S)
    with magnetar.Client(cluster.service_url, operation_timeout_seconds=60) as client:
        topics = [f"topic-{number}" for number in range(16)]
        producers = {topic: client.create_producer(topic) for topic in topics}
        for producer in producers.values():
            producer.send(b"before")
        owner = owner_of(cluster, topics[0])
        with Admin(cluster.service_url) as admin:
            bundle = admin.topics.lookup(topics[0]).bundle
            others = [one.bundle for one in admin.namespaces.bundles(_NAMESPACE) if one.broker_id == owner]
            others.remove(bundle)
            # A client looks up what it uses: these topics have no client any more.
            for topic, producer in producers.items():
                if admin.topics.lookup(topic).bundle != bundle:
                    producer.close()
            cluster.kill(owner)
            producers[topics[0]].send(b"after")
            assert owner_of(cluster, topics[0]) != owner
            still = [one.bundle for one in admin.namespaces.bundles(_NAMESPACE) if one.broker_id == owner]
        if others:
            assert still == others, "the session of the killed broker has ended"
        consumer = client.subscribe(topics[0], "s", initial_position=magnetar.InitialPosition.Earliest)
        assert [consumer.receive(timeout_millis=60_000).data() for _ in range(2)] == [b"before", b"after"]
        assert _take_overs(cluster, owner)


def _take_overs(cluster: LocalCluster, killed: str) -> list[str]:
    """What the other brokers' logs say."""
    logs = [cluster.log(name).read_text() for name in cluster.broker_names() if name != killed]
    return [
        line for log in logs for line in log.splitlines() if f"from broker {killed}" in line and "Took over" in line
    ]
