"""Brokers as real processes, on a real ZooKeeper and real bookies: what clients notice of what happens to them."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Iterator

import pytest

import magnetar
from magnetar.admin import Admin
from magnetar.schema import AvroSchema
from magnetar_bookie.errors import LedgerError
from magnetar_cli.cluster import LocalCluster
from tests.running import run, until
from tests.topic_owner import looked_up, owner_of

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("cluster")]


class Traffic:
    """A producer and a consumer of one topic, which go on while something happens to the brokers."""

    def __init__(self, client: magnetar.Client, topic: str) -> None:
        self.topic = topic
        self.consumer = client.subscribe(topic, "s", initial_position=magnetar.InitialPosition.Earliest)
        self.producer = client.create_producer(topic)
        self.receipted = 0

    def send(self, messages: int = 1) -> None:
        """Returns when they have their receipts."""
        for _ in range(messages):
            self.producer.send(b"%d" % self.receipted)
            self.receipted += 1

    def whole(self) -> None:
        """All that had a receipt comes, in order; what comes again came before."""
        seen: dict[int, None] = {}
        while len(seen) < self.receipted:
            message = self.consumer.receive(timeout_millis=60_000)
            number = int(message.data())
            assert number in seen or number == len(seen), (number, len(seen))
            seen[number] = None
            self.consumer.acknowledge(message)


@contextlib.contextmanager
def traffic(cluster: LocalCluster, topic: str) -> Iterator[Traffic]:
    with magnetar.Client(cluster.service_url, operation_timeout_seconds=60) as client:
        yield Traffic(client, topic)


def ready(cluster: LocalCluster, name: str) -> None:
    run(until(lambda: cluster.broker(name).ask("/ready")[0] == 200, f"{name} is ready"))


def test_kill_of_the_owner(cluster: LocalCluster) -> None:
    """OWN-2: another broker takes over, and clients find it by themselves; nothing acknowledged is lost."""
    with traffic(cluster, "killed") as going:
        going.send(50)
        owner = owner_of(cluster, "killed")
        cluster.kill(owner)
        going.send(50)
        assert owner_of(cluster, "killed") != owner
        cluster.start(owner)
        going.send(10)
        going.whole()


def test_a_table_view_follows_while_an_owner_is_killed(cluster: LocalCluster) -> None:
    """OWN-2: it catches up at the next owner, and reports each change once, in order."""
    with Admin(cluster.service_url) as admin:
        admin.topics.create_partitioned("viewed", 3)
    with magnetar.Client(cluster.service_url, operation_timeout_seconds=60) as client:
        producer = client.create_producer("viewed")
        view = client.create_table_view("viewed")
        changes: list[tuple[str, bytes | None]] = []
        view.for_each_and_listen(lambda key, value: changes.append((key, value)))
        sent = [(f"k{number % 7}", b"%d" % number) for number in range(60)]
        owner = owner_of(cluster, "viewed-partition-0")
        for number, (key, value) in enumerate(sent):
            if number == 30:
                cluster.kill(owner)
            producer.send(value, partition_key=key)
        view.refresh()
        assert dict(view.items()) == dict(sent)
        for name in view:  # a message whose result was lost may be stored twice
            of_key = list(dict.fromkeys(value for key, value in changes if key == name))
            assert of_key == [value for key, value in sent if key == name]
        cluster.start(owner)


def test_a_pause_of_the_owner_beyond_its_session(cluster: LocalCluster) -> None:
    """OWN-2, CHK-40: a paused broker finds its session over, unloads its topics, and opens another session."""
    with traffic(cluster, "paused") as going:
        going.send(20)
        owner = owner_of(cluster, "paused")
        cluster.pause(owner)
        going.send(20)
        assert owner_of(cluster, "paused") != owner
        cluster.resume(owner)
        ready(cluster, owner)
        assert "All topics are closed" in cluster.log(owner).read_text()
        going.send(20)
        going.whole()


def test_graceful_restart_loses_no_message(cluster: LocalCluster) -> None:
    with traffic(cluster, "restarted") as going:
        going.send(20)
        owner = owner_of(cluster, "restarted")
        stop = threading.Event()

        def publish() -> None:
            while not stop.is_set():
                going.send()

        publishing = threading.Thread(target=publish)
        publishing.start()
        try:
            cluster.restart(owner)
        finally:
            stop.set()
            publishing.join()
        assert re.findall(r"SIGTERM.*\n(?:.*\n)*?.*has shut down gracefully", cluster.log(owner).read_text())
        going.send(20)
        going.whole()


def test_all_brokers_killed_at_once(cluster: LocalCluster) -> None:
    with traffic(cluster, "all") as going:
        going.send(20)
        for name in cluster.broker_names():
            cluster.kill(name)
        cluster.up()
        going.send(20)
        going.whole()


def test_schemas_survive_kills_of_all_processes(cluster: LocalCluster) -> None:
    """SCH-1: versions and definitions are there again, and go with their topic."""
    first = AvroSchema(None, {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]})
    new_field = {"name": "note", "type": "string", "default": ""}
    second = AvroSchema(
        None, {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}, new_field]}
    )
    with Admin(cluster.service_url) as admin:
        admin.topics.create("typed")
        assert admin.schemas.upload("typed", first) == 0
        assert admin.schemas.upload("typed", second) == 1
        for name in ("zookeeper", *cluster.names(), *cluster.broker_names()):
            cluster.kill(name)
        cluster.up()
        assert [found.version for found in admin.schemas.list("typed")] == [0, 1]
        assert admin.schemas.upload("typed", first) == 0
        admin.topics.delete("typed")
        admin.topics.create("typed")
        assert admin.schemas.list("typed") == []
        assert admin.schemas.upload("typed", second) == 0


def test_zookeeper_is_killed_and_started(cluster: LocalCluster) -> None:
    """OWN-2: suspended is not lost; open topics go on, or are reopened where the session ended in between."""
    with traffic(cluster, "suspended") as going:
        going.send(20)
        cluster.kill("zookeeper")
        going.send(1)
        cluster.start("zookeeper")
        going.send(20)
        for name in cluster.broker_names():
            ready(cluster, name)
        going.whole()


def test_adding_and_removing_brokers_moves_no_stored_data(cluster: LocalCluster) -> None:
    """OWN-4: every ledger stays on the bookies where it was written. Entries that a kill left short of a replica are
    repaired there in the meantime.
    """
    with magnetar.Client(cluster.service_url, operation_timeout_seconds=60) as client:
        going = [Traffic(client, f"comes-{number}") for number in range(8)]
        for one in going:
            one.send(5)
        before = run(_placed(cluster))
        cluster.add_broker("more")
        for one in going:
            one.send(5)
        cluster.remove("more")
        assert "more" not in cluster.broker_names()
        for one in going:
            one.send(5)
            one.whole()
        after = run(_placed(cluster))
        there_still = [ledger_id for ledger_id in before if ledger_id in after]
        assert len(there_still) >= len(going), "cursors' ledgers come and go"
        assert {one: after[one] for one in there_still} == {one: before[one] for one in there_still}


def test_new_bookie_is_used_at_once_without_moving_ledgers(cluster: LocalCluster) -> None:
    """OWN-4: ledgers made from then on use it, those made before stay where they are."""
    with magnetar.Client(cluster.service_url, operation_timeout_seconds=60) as client:
        going = Traffic(client, "before")
        going.send(5)
        before = run(_placed(cluster))
        cluster.add("fourth")
        for number in range(12):
            client.create_producer(f"after-{number}").send(b"x")
        after = run(_placed(cluster))
        there_still = [ledger_id for ledger_id in before if ledger_id in after]
        assert {one: after[one] for one in there_still} == {one: before[one] for one in there_still}
        assert [ledger_id for ledger_id, bookies in after.items() if "fourth" in bookies and ledger_id not in before]
        going.send(5)
        going.whole()
    cluster.remove("fourth")


def test_an_external_listener_by_its_name(cluster: LocalCluster) -> None:
    """OWN-1: a client gets the owner's address at the listener that it names, whomever it asks."""
    owner = cluster.broker(owner_of(cluster, "listened")).address
    for name in cluster.broker_names():
        address = cluster.broker(name).address
        assert run(looked_up(address, "listened")).address == owner
        answer = run(looked_up(address, "listened", "external"))
        assert answer.address == owner.replace("127.0.0.1", "localhost")
        answer = run(looked_up(address, "listened", "inside out"))
        assert (answer.address, "inside out" in answer.problem.text) == ("", True)
    with magnetar.Client(cluster.service_url, listener_name="external") as client:
        going = Traffic(client, "listened")
        going.send(5)
        going.whole()


def test_down_and_up_with_clients_connected(cluster: LocalCluster) -> None:
    with traffic(cluster, "down") as going:
        going.send(20)
        cluster.down()
        assert {part.state for part in cluster.status().parts} == {"stopped"}
        for name in cluster.broker_names():
            assert "has shut down gracefully" in cluster.log(name).read_text().splitlines()[-1]
        cluster.up()
        going.send(20)
        going.whole()


async def _placed(cluster: LocalCluster) -> dict[int, list[str]]:
    """The bookies of each ledger."""
    found = {}
    async with cluster.client() as client:
        async for ledger_id in client.ledgers.ledger_ids():
            with contextlib.suppress(LedgerError):  # deleted in the meantime
                fragments = (await client.ledgers.read_metadata(ledger_id, fresh=True)).fragments
                found[ledger_id] = [bookie for fragment in fragments for bookie in fragment.bookies]
    return found
