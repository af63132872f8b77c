"""The torture's clients send what they announce, and record what happens.

Their own code reads nothing of it: each line is checked against history.md, and whole histories by the checker's
reader.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pulsar
import pytest

from magnetar import MessageId, Result
from magnetar.admin import Admin
from magnetar.exceptions import AlreadyClosed
from magnetar_testing.standalone_process import StandaloneProcess
from tests.faults.checker.judge import judge
from tests.faults.checker.recorder import Recorder
from tests.faults.torture import producing, workloads
from tests.faults.torture.client_process import CONSUMING, KEEP, PUBLISHING, assign_workers, keep_subscriptions
from tests.faults.torture.client_processes import Processes
from tests.faults.torture.clients import Clients
from tests.faults.torture.connections import Connections
from tests.faults.torture.consuming import ConsumerLog
from tests.faults.torture.messages import Outgoing, make_message
from tests.faults.torture.producing import Load, ProducerLog, send_all
from tests.faults.torture.stock_consumers import StockMessage, stock_cumulatively, stock_some_each
from tests.faults.torture.stock_producing import StockProducerLog
from tests.faults.torture.workload import Workload
from tests.running import run, until

# ── logs ──


def _made(size: int | None, key: str | None = "k", seed: int = 0) -> Outgoing:
    return make_message("t.p~w.1", 7, random.Random(seed), size, key)


@pytest.fixture
def clients(tmp_path: Path) -> Iterator[Clients]:
    with Recorder(tmp_path, "publish-1-1") as recorder:
        yield Clients(
            "magnetar://127.0.0.1:1", "pulsar://127.0.0.1:2", None, tmp_path, "a seed", "publish-1-1", recorder
        )


class _Lines:
    """Those of all writers that are whole, read on from where they were read before."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, int] = {}
        self._known: dict[str, list[dict[str, Any]]] = defaultdict(list)

    def of(self, *kinds: str) -> list[dict[str, Any]]:
        for path in sorted(self._folder.glob("*.jsonl")):
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                new = file.read()
            whole = new.rfind(b"\n") + 1
            self._read[path] = self._read.get(path, 0) + whole
            for line in map(json.loads, new[:whole].splitlines()):
                self._known[line["what"]].append(line)
        return [line for kind in kinds for line in self._known[kind]]


def _lines(folder: Path, *kinds: str) -> list[dict[str, Any]]:
    return _Lines(folder).of(*kinds)


def test_failed_send_is_recorded_as_unknown_unless_refused(clients: Clients) -> None:
    log = ProducerLog(clients, "t", "t.p", Load(burst=6), random.Random(1))
    while log.goes_on and len(log.burst()) < 6:
        pass
    outcomes = [
        (Result.Timeout, "unknown"),
        (Result.MessageTooBig, "refused"),
        (Result.AlreadyClosed, "unknown"),
        (Result.BrokerPersistenceError, "unknown"),
        (Result.InvalidMessage, "refused"),
    ]
    for number, (result, _) in enumerate(outcomes):
        log.callback(number)(result, None)
    log.callback(5)(Result.Ok, MessageId(2, 70, 8, 1, 3))
    log.write()
    for number, (result, what) in enumerate(outcomes):
        (line,) = [one for one in _lines(clients.histories, "unknown", "refused") if number in one["numbers"]]
        assert (line["what"], line["why"]) == (what, str(result))
    (receipt,) = _lines(clients.histories, "receipt")
    assert (receipt["place"], receipt["items"]) == ("t-partition-2", [[5, 70, 8, 1]])


def test_messages_are_announced_before_they_are_handed_over(clients: Clients) -> None:
    log = ProducerLog(clients, "t", "t.p", Load(keys=3), random.Random(1))
    sent = [one for _ in range(5) for one in log.burst()]
    announced = [item for line in _lines(clients.histories, "sending") for item in line["items"]]
    assert announced == [[one.number, one.digest, one.key] for one in sent]
    assert [one.number for one in sent] == list(range(len(sent)))


class _Over:
    """A producer that takes two messages, and is over then."""

    def __init__(self) -> None:
        self.taken: list[Callable[[Any, Any], None]] = []

    def send_async(self, _: bytes | None, callback: Callable[[Any, Any], None], **more: Any) -> None:
        if len(self.taken) == 2:
            raise AlreadyClosed("it is over")
        self.taken.append(callback)


def test_messages_announced_but_not_sent_are_recorded_as_unknown(clients: Clients) -> None:
    log = ProducerLog(clients, "t", "t.p", Load(), random.Random(1))
    burst, producer = log.burst(), _Over()
    with pytest.raises(AlreadyClosed):
        send_all(log, producer, burst)
    for callback in producer.taken:
        callback(Result.Timeout, None)
    log.closed()
    unknown = [number for line in _lines(clients.histories, "unknown") for number in line["numbers"]]
    assert len(burst) > 3
    assert sorted(unknown) == [one.number for one in burst]
    assert _lines(clients.histories, "producer_closed")


class _Received:
    """A message as the SDK hands it out."""

    def __init__(self, made: Outgoing, partition: str, entry: int) -> None:
        self.made, self.partition, self.entry = made, partition, entry

    def data(self) -> bytes:
        return self.made.payload or b""

    def has_null_value(self) -> bool:
        return self.made.payload is None

    def has_key(self) -> bool:
        return self.made.key is not None

    def partition_key(self) -> str:
        return self.made.key or ""

    def properties(self) -> dict[str, str]:
        return dict(self.made.properties or {})

    def event_timestamp(self) -> int:
        return self.made.event_ms

    def topic_name(self) -> str:
        return f"persistent://public/default/{self.partition}"

    def message_id(self) -> MessageId:
        return MessageId(-1, 5, self.entry, -1)

    def redelivery_count(self) -> int:
        return 2


def test_received_messages_are_recorded_by_partition_including_damaged(clients: Clients) -> None:
    log = ConsumerLog(clients, "t", "s", "w")
    whole, other, damaged = _made(10, None), _made(None), _made(20)
    damaged = Outgoing(7, (damaged.payload or b"")[1:], None, None, 0)
    with log.opening():
        found = [_Received(whole, "t-partition-0", 1), _Received(other, "t-partition-1", 1)]
        log.got([*found, _Received(damaged, "t-partition-0", 2)], 0.5)
    by_partition = {line["place"]: line["items"] for line in _lines(clients.histories, "got")}
    assert by_partition == {
        "t-partition-0": [["t.p~w.1", 7, whole.digest, None, 5, 1, -1, 2]],
        "t-partition-1": [["t.p~w.1", 7, other.digest, "k", 5, 1, -1, 2]],
    }
    (unreadable,) = _lines(clients.histories, "unreadable")
    assert (unreadable["place"], unreadable["id"]) == ("t-partition-0", [5, 2, -1])


# ── clients of Pulsar's own library ──


def test_failed_pulsar_send_is_recorded_as_unknown_unless_refused(clients: Clients) -> None:
    log = StockProducerLog(clients, "stock", "stock.p", Load(burst=6), random.Random(1))
    while log.goes_on and len(log.burst()) < 6:
        pass
    outcomes = [
        (pulsar.Result.Timeout, "unknown"),
        (pulsar.Result.MessageTooBig, "refused"),
        (pulsar.Result.AlreadyClosed, "unknown"),
        (pulsar.Result.ProducerFenced, "unknown"),
        (pulsar.Result.ConnectError, "unknown"),
    ]
    for number, (result, _) in enumerate(outcomes):
        log.callback(number)(result, None)
    log.callback(5)(pulsar.Result.Ok, pulsar.MessageId(2, 70, 8, 1))
    log.write()
    for number, (result, what) in enumerate(outcomes):
        (line,) = [one for one in _lines(clients.histories, "unknown", "refused") if number in one["numbers"]]
        assert (line["what"], line["why"]) == (what, str(result))
    (receipt,) = _lines(clients.histories, "receipt")
    assert (receipt["place"], receipt["items"]) == ("stock-partition-2", [[5, 70, 8, 1]])


def test_abandoned_pulsar_sends_are_unknown_and_late_results_ignored(
    clients: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producing, "LAST_CALLS_S", 0.0)
    log = StockProducerLog(clients, "stock", "stock.p", Load(), random.Random(1))
    burst = log.burst()
    assert len(burst) > 3
    callbacks = [log.callback(one.number) for one in burst]
    callbacks[0](pulsar.Result.Ok, pulsar.MessageId(-1, 70, 8, -1))
    log.abandon_pending()
    callbacks[1](pulsar.Result.Ok, pulsar.MessageId(-1, 70, 9, -1))
    log.closed()
    unknown = [number for line in _lines(clients.histories, "unknown") for number in line["numbers"]]
    assert sorted(unknown) == [one.number for one in burst[1:]]
    assert [line["items"] for line in _lines(clients.histories, "receipt")] == [[[0, 70, 8, -1]]]
    assert _lines(clients.histories, "producer_closed")


class _StockConsumer:
    """Takes acknowledgements, having seen what was written down of them before."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.acknowledged: list[int] = []
        self.refused: list[int] = []

    def acknowledge(self, message: _Received) -> None:
        announced = [item for line in _lines(self.folder, "acking") for item in line["ids"]]
        assert [5, message.entry, -1] in announced
        self.acknowledged.append(message.entry)

    def acknowledge_cumulative(self, message: _Received) -> None:
        assert [5, message.entry, -1] in [line["id"] for line in _lines(self.folder, "acking_up_to")]
        self.acknowledged.append(message.entry)

    def negative_acknowledge(self, message: _Received) -> None:
        assert [5, message.entry, -1] in [item for line in _lines(self.folder, "nacked") for item in line["ids"]]
        self.refused.append(message.entry)


def test_pulsar_acknowledgements_are_recorded_without_outcome(clients: Clients) -> None:
    log = ConsumerLog(clients, "stock", "s", "w", stays=True)
    consumer = _StockConsumer(clients.histories)
    with log.opening():
        for lot in range(40):
            found = [StockMessage(_Received(_made(10), "stock", lot * 10 + entry)) for entry in range(10)]
            stock_some_each(log, consumer, found)
        stock_cumulatively(log, consumer, [StockMessage(_Received(_made(10), "stock", 400))])
    assert sorted([*consumer.acknowledged, *consumer.refused]) == list(range(401))
    assert len(consumer.acknowledged) > 300
    assert consumer.refused
    assert not _lines(clients.histories, "acked", "acked_up_to", "ack_unknown")


def test_staying_consumer_outlasts_producers_and_then_nacks_nothing(clients: Clients) -> None:
    log = ConsumerLog(clients, "stock", "s", "w", stays=True)
    with log.opening():
        clients.stopping.set()
        assert log.goes_on
        assert len(log.chosen(list(range(100)))) == 100
        clients.quitting.set()
        assert not log.goes_on


# ── connections ──


class _Link:
    def __init__(self, address: str) -> None:
        self.address = address


class _Part:
    """What is looked at of the SDK's."""

    topic = "persistent://public/default/t"
    connection: tuple[_Link, int] | None = None


def test_a_connection_has_another_number_whenever_it_is_another(tmp_path: Path) -> None:
    part = _Part()
    links = [_Link(address) for address in ("a:1", "a:1", "b:2")]
    with Recorder(tmp_path, "w") as recorder:
        connections = Connections(recorder)
        connections.close()  # nobody looks besides
        connections.opened("c", SimpleNamespace(_core=SimpleNamespace(partitions=[part])))
        # Another link to the same broker, the same link after it was reopened, another broker, and none.
        for link, number in [(links[0], 1), (links[1], 1), (links[1], 1), (links[1], 2), (links[2], 1), (None, 1)]:
            part.connection = None if link is None else (link, number)
            connections.look("c", at_least_every_s=0)
        connections.closing("c")
        connections.look("c", 0)
    seen_connections = [(line["place"], line["broker"], line["connection"]) for line in _lines(tmp_path, "connected")]
    assert [broker for _, broker, _ in seen_connections] == ["", "a:1", "a:1", "a:1", "a:1", "b:2", ""]
    numbers = [number for _, _, number in seen_connections]
    assert numbers[2] == numbers[3]
    assert len(set(numbers)) == len(numbers) - 1


# ── who does what ──


def test_each_worker_runs_in_its_number_of_processes() -> None:
    for kind, roles in (("producers", PUBLISHING), ("consumers", CONSUMING), ("positioned_readers", CONSUMING)):
        wanted = [
            worker.run for one in workloads.all() for worker in getattr(one, kind) for _ in range(worker.processes)
        ]
        got = [getattr(assign_workers(workloads.all(), role), kind) for role in roles]
        assert sorted(map(id, wanted)) == sorted(id(one) for each in got for one in each)
        assert all(len(set(each)) == len(each) for each in got)
        assert max(map(len, got)) - min(map(len, got)) <= 1


def test_workloads_are_found_by_their_names() -> None:
    assert [one.name for one in workloads.named(["shared", "growing"])] == ["shared", "growing"]
    with pytest.raises(ValueError, match="there is no workload x: those there are, are by_key, "):
        workloads.named(["x"])


# ── all of it ──

# Workers that have one, in all workloads.
_PRODUCERS = 22
# Without policies: all messages are retained, and each receipt has an id.
_WORKLOADS = ["exclusive", "failover", "growing", "shared", "sizes", "stock", "typed"]


class _Rig:
    """As little of one as it takes."""

    def __init__(self, folder: Path, server: StandaloneProcess) -> None:
        self.server, self.histories = server, folder / "histories"
        self.workloads: tuple[Workload, ...] = workloads.named(_WORKLOADS)
        self.lines = _Lines(self.histories).of
        self.recorder = Recorder(self.histories, "rig")
        self.clients = Processes(folder / "logs", self.histories, "a test", self.recorder, self.workloads)
        self.clients.url, self.clients.pulsar_url = server.service_url, server.pulsar_url
        self.subscriptions = [
            *keep_subscriptions(self.workloads),
            *(one for each in self.workloads for one in each.subscriptions),
        ]

    def prepare(self) -> None:
        with Admin(self.server.service_url) as admin:
            for topic in [topic for one in self.workloads for topic in one.topics]:
                self.recorder.say("topic", **topic.fields(topic.partitions))
                if topic.partitions:
                    admin.topics.create_partitioned(topic.name, topic.partitions)
                else:
                    admin.topics.create(topic.name)
                for one in [one for one in self.subscriptions if one.topic == topic.name]:
                    for partition in topic.partition_names:
                        admin.subscriptions.create(partition, one.name, MessageId.earliest)
                    fields = {"subscription": one.full_name, "topic": topic.name, "type": one.type}
                    self.recorder.say("subscription", **fields, durable=True)

    def working(self) -> bool:
        """Each producer has got receipts, and each subscription's consumers, where their library has receipts."""
        producers = {line["producer"].partition("~")[0] for line in self.lines("receipt")}
        subscriptions = {line["consumer"].partition("#")[0] for line in self.lines("acked", "acked_up_to")}
        unheard = {line["consumer"].partition("#")[0] for line in self.lines("acking", "acking_up_to")}
        wanted = {one.full_name for one in self.subscriptions if one.name != KEEP}
        stock_alone = {name for name in wanted if name.startswith("stock") and not name.endswith(".both")}
        subscriptions |= stock_alone & unheard
        return len(producers) == _PRODUCERS and subscriptions == wanted

    def grown(self) -> bool:
        return any(line["place"].endswith("growing-partition-1") for line in self.lines("receipt"))

    def unknown(self) -> bool:
        return bool(self.lines("unknown"))

    def reading(self) -> bool:
        """The reader of its process's current run is connected."""
        connected = [line["consumer"] for line in self.lines("connected") if line["broker"]]
        return any(f".reader~{writer}#" in name for name in connected for writer in self.clients.writers)

    def reconnected(self) -> bool:
        found = defaultdict(set)
        for line in self.lines("connected"):
            if line["broker"] and ".reader" in line["consumer"]:
                found[line["consumer"]].add(line["connection"])
        return any(len(numbers) > 1 for numbers in found.values())

    def backlogs(self) -> list[tuple[str, str, int]]:
        with Admin(self.server.service_url) as admin:
            return [
                (partition, one.subscription, one.backlog_entries)
                for each in self.workloads
                for topic in each.topics
                for partition in self.partition_names(admin, topic.name)
                for one in admin.topics.stats(partition).subscriptions
                if one.durable and one.backlog_entries
            ]

    def partition_names(self, admin: Admin, topic: str) -> list[str]:
        if not any(line["partitions"] for line in self.lines("topic") if line["topic"] == topic):
            return [topic]
        return [f"{topic}-partition-{number}" for number in range(admin.topics.get_partitioned(topic).partitions)]


async def _worked(rig: _Rig) -> None:
    clients = rig.clients
    await asyncio.gather(*(clients.begin(role) for role in clients.roles))
    await until(rig.working, "all workers have done their work")
    await clients.pause("publish-2")
    for role in ("publish-1", "consume-1"):
        await clients.kill(role)
        assert not clients.running(role)
        await clients.begin(role)
    await clients.resume("publish-2")
    await until(rig.reading, "there is a reader again")
    # Out of reach for longer than one of the producers waits.
    rig.server.kill()
    await until(rig.unknown, "sends have timed out")
    rig.server.start()
    await until(rig.reconnected, "the reader is connected again")
    await until(rig.grown, "the topic has grown")
    await clients.stop()
    await clients.end_readers()
    await clients.begin(KEEP)
    await until(lambda: not rig.backlogs(), "all subscriptions are drained")
    for one in rig.subscriptions:
        rig.recorder.say("drained", subscription=one.full_name)
    await clients.quit()
    rig.recorder.say("ended")


@pytest.mark.soak
def test_all_workloads_record_results_of_a_standalone(tmp_path: Path) -> None:
    """Over kill -9 of clients and server: each message with a receipt is in the `keep` subscriptions, as sent."""
    with StandaloneProcess(tmp_path / "data") as server:
        rig = _Rig(tmp_path, server)
        rig.prepare()
        try:
            run(_worked(rig), timeout_s=110)
        finally:
            rig.clients.close()
            rig.recorder.close()
    verdict = judge(rig.histories, times=False)
    assert verdict.clean, str(verdict)
    assert verdict.figures["messages with a receipt"]
    announced = {
        (line["producer"], number): (digest, key)
        for line in rig.lines("sending")
        for number, digest, key in line["items"]
    }
    receipted = {
        (line["producer"], item[0]): (line["place"], *item[1:])
        for line in rig.lines("receipt")
        for item in line["items"]
    }
    seen: dict[str, dict[tuple[str, int], tuple[Any, ...]]] = defaultdict(dict)
    for line in rig.lines("got"):
        for producer, number, digest, key, *partition in line["items"]:
            # Of killed processes, too: what came was announced, and as it came.
            assert announced[producer, number] == (digest, key)
            seen[line["consumer"].partition("#")[0]][producer, number] = (line["place"], *partition[:3])
    for one in rig.subscriptions:
        wanted = {who for who in receipted if who[0].startswith(f"{one.topic}.")}
        assert wanted
        assert not wanted - seen[one.full_name].keys(), one.full_name
        if one.name == KEEP:
            assert all(seen[one.full_name][who] == receipted[who] for who in wanted)
    assert not rig.lines("unreadable")
    # A killed process wrote nothing afterwards; all others ended gracefully.
    killed = {line["writer"]: line["at"] for line in rig.lines("killed")}
    assert sorted(killed) == ["consume-1-1", "publish-1-1"]
    for line in rig.lines("producer", "sending", "opening", "got"):
        writer = line.get("producer", line.get("consumer", "")).replace("#", "~").split("~")[-1].split(".")[0]
        assert line["at"] <= killed.get(writer, line["at"])
    ports = {server.service_url.removeprefix("magnetar://"), ""}
    assert {line["broker"] for line in rig.lines("connected")} == ports
    kinds = {line["what"] for line in rig.lines("nacked", "acked", "acked_up_to", "producer_closed", "closed")}
    assert len(kinds) == 5
