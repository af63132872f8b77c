"""Each fault of the torture does what it claims, is undone, and leaves the system healthy."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import psutil
import pytest

import magnetar
from magnetar_cli.local_java import NoJava, find_java
from magnetar_testing.randomness import SeededRandomness
from tests.faults.checker.recorder import Recorder
from tests.faults.proxy import Proxy
from tests.faults.torture import faults
from tests.faults.torture.bookie_disk import flip_bit
from tests.faults.torture.cluster import Cluster
from tests.faults.torture.fault import Bears, Fault
from tests.faults.torture.faults.connections import OnConnections
from tests.faults.torture.standalone import Standalone
from tests.faults.torture.system import System
from tests.running import until, within

_TOPIC = "t0"
# Who leaves is empty the sooner.
_BRISK_REPAIRS: dict[str, Any] = {
    "auditor_scan_interval_seconds": 1.0,
    "open_ledger_rereplication_grace_period_seconds": 1.0,
}
# The first bytes of an HTTP/2 client. A server sends bytes of its own at once, and one of Pulsar's protocol an error.
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"


# ── what is registered ──


def test_required_faults_are_registered_once_per_group() -> None:
    """KILL and PAUSE of a broker decide how soon its topics are served again; the rest is what a torture must be able
    to do.
    """
    all_of_them = faults.all()
    by_name = {(fault.kind, fault.group): fault for fault in all_of_them}
    assert len(by_name) == len(all_of_them)
    for fault in all_of_them:
        assert fault.weight >= 1
        assert 0.0 <= fault.shortest_s <= fault.longest_s
        assert (fault.bears is Bears.NOT) == (fault.group == "everything")
    for group in ("broker", "bookie", "zookeeper", "client"):
        assert {"KILL", "PAUSE", "BLINK"} <= {kind for kind, of in by_name if of == group}
    for group in ("broker", "bookie"):
        kinds = {kind for kind, of in by_name if of == group}
        assert {"CUT", "BREAK", "DEAF", "MUTE", "HOLD", "HOLD_ONE_WAY", "DELAY", "DELAY_ONE_WAY"} <= kinds
        assert {"CUT_METADATA", "BREAK_METADATA", f"ADD_{group.upper()}", f"REMOVE_{group.upper()}"} <= kinds
    assert {"FAIL_SYNC", "SLOW_SYNC"} <= {kind for kind, of in by_name if of == "bookie"}
    assert {kind for kind, of in by_name if of == "place"} == {"UNLOAD", "SPLIT"}
    assert by_name["FLIP_BIT", "bookie"].at_most == 1


def test_flip_bit_changes_one_bit_of_a_record_log(tmp_path: Path) -> None:
    chance = SeededRandomness("a bit")
    assert flip_bit(tmp_path, chance) == ""
    (tmp_path / "records").mkdir()
    log, other = tmp_path / "records" / "1.log", tmp_path / "records" / "empty.log"
    stored = bytes(range(256))
    log.write_bytes(stored)
    other.touch()
    for _ in range(20):
        log.write_bytes(stored)
        assert "1.log" in flip_bit(tmp_path, chance)
        changed = [one ^ before for one, before in zip(log.read_bytes(), stored, strict=True) if one != before]
        assert len(changed) == 1
        assert changed[0].bit_count() == 1


def test_as_many_stay_as_are_needed(tmp_path: Path) -> None:
    """Three bookies for each entry; and two brokers, of which clients know one at least from the beginning."""
    with Recorder(tmp_path / "history", "rig") as recorder:
        small = Cluster(tmp_path / "small", recorder, brokers=2, bookies=3)
        assert not any(small.may_remove(name) for name in (*small.brokers, *small.bookies))
        small.brokers.append("broker-3")
        small.bookies.append("bookie-4")
        assert all(small.may_remove(name) for name in (*small.brokers, *small.bookies))
        small.brokers.remove("broker-1")
        small.brokers.append("broker-4")
        assert [name for name in small.brokers if small.may_remove(name)] == ["broker-3", "broker-4"]
        large = Cluster(tmp_path / "large", recorder, brokers=3, bookies=4)
        assert large.may_remove("broker-1")
        large.brokers.remove("broker-1")
        large.brokers.append("broker-4")
        assert [name for name in large.brokers if large.may_remove(name)] == ["broker-4"]
        assert not large.may_remove("zookeeper")


class _Proxied:
    """A system of which only the broker's proxies are seen, which are not open."""

    def __init__(self) -> None:
        self.proxies = {"b1": Proxy("127.0.0.1", 1)}
        self.pulsar_proxies = {"b1": Proxy("127.0.0.1", 2)}


async def test_broker_connection_faults_affect_both_protocols() -> None:
    system, chance = _Proxied(), SeededRandomness("both")
    both = system.proxies["b1"], system.pulsar_proxies["b1"]
    injector = [one for one in faults.all() if isinstance(one, OnConnections) and one.group == "broker"]
    injector = [one for one in injector if not one.kind.endswith("METADATA")]
    assert len(injector) == 8

    for fault in injector:
        sound = [_state(proxy) for proxy in both]
        await fault.begin(cast(System, system), "b1", chance)
        assert all(_state(proxy) != before for proxy, before in zip(both, sound, strict=True)), fault.kind
        await fault.heal(cast(System, system), "b1")
        assert [_state(proxy) for proxy in both] == sound, fault.kind


def _state(proxy: Proxy) -> tuple[object, ...]:
    ways = proxy.loses_requests, proxy.loses_answers, proxy.holds_requests, proxy.holds_answers
    return (*ways, proxy.closed_to_new, proxy.delay_requests_s, proxy.delay_answers_s, proxy.cut_after)


# ── real processes ──


async def _greeted(proxy: Proxy) -> bool:
    """Whether a server behind it sends something to a new connection before it ends."""
    host, _, port = proxy.address.rpartition(":")
    try:
        reader, writer = await asyncio.open_connection(host, int(port))
    except ConnectionError:  # it is closed for good
        return False
    try:
        writer.write(_PREFACE)
        return await within(reader.read(1), "a word, or the end") != b""
    except ConnectionError:
        return False
    finally:
        writer.close()


class _Injector:
    """Injects faults into a system that records them."""

    def __init__(self, system: System, history: Path) -> None:
        self.system = system
        self.history = history
        self.chance = SeededRandomness("faults")

    @contextlib.asynccontextmanager
    async def by(self, kind: str, group: str, target: str = "") -> AsyncIterator[str]:
        """Inject the fault, and heal it afterwards."""
        fault = _fault(kind, group)
        targets = fault.targets(self.system)
        assert not target or target in targets
        target = target or targets[0]
        await fault.begin(self.system, target, self.chance)
        yield target
        await fault.heal(self.system, target)
        await self.ready(fault.waits_for(self.system, target))

    async def ready(self, names: Sequence[str] | None = None) -> None:
        why: dict[str, str] = {}

        async def all_are() -> bool:
            for name in self.system.names if names is None else names:
                if recorded := await self.system.ready(name):
                    why[name] = recorded
                    return False
            return True

        await until(all_are, f"all are ready, except for {why}")

    async def works(self) -> None:
        """A message has a receipt, by way of the proxies."""

        def send() -> None:
            client = magnetar.Client(self.system.service_url, listener_name=self.system.listener_name)
            client.create_producer(_TOPIC, send_timeout_millis=50_000).send(b"it works")
            client.close()

        await within(asyncio.to_thread(send), "a receipt")

    def recorded(self, what: str) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self.history.read_text().splitlines()]
        return [line for line in lines if line["what"] == what]


def _fault(kind: str, group: str) -> Fault:
    (found,) = [fault for fault in faults.all() if (fault.kind, fault.group) == (kind, group)]
    return found


@pytest.mark.soak
@pytest.mark.timeout(300)
async def test_faults_are_injected_into_cluster_and_healed(tmp_path: Path) -> None:
    try:
        find_java()
    except NoJava as error:
        pytest.skip(str(error))

    with Recorder(tmp_path / "history", "rig") as recorder:
        folder = tmp_path / "cluster"
        async with Cluster(folder, recorder, brokers=2, bookies=3, **_BRISK_REPAIRS) as cluster:
            cluster.partition_names = [_TOPIC]
            injector = _Injector(cluster, tmp_path / "history" / "rig.jsonl")
            for theme in (_processes, _connections, _metadata, _disks, _bundles, _members, _everything):
                await theme(cluster, injector)
                await injector.ready()
                await injector.works()


async def _processes(cluster: Cluster, injector: _Injector) -> None:
    for group in ("broker", "bookie"):
        for kind in ("KILL", "KILL_STARTING", "STOP"):
            async with injector.by(kind, group) as name:
                assert not cluster.running(name)
            assert cluster.running(name)
        for kind in ("PAUSE", "BLINK"):
            async with injector.by(kind, group) as name:
                assert cluster.launcher.paused(name)
            assert not cluster.launcher.paused(name)


async def _connections(cluster: Cluster, injector: _Injector) -> None:
    for group in ("broker", "bookie"):
        async with injector.by("CUT", group) as name:
            assert not await _greeted(cluster.proxies[name])
            assert group != "broker" or not await _greeted(cluster.pulsar_proxies[name])
        async with injector.by("MUTE", group) as name:
            proxy = cluster.proxies[name]
            loses = _loses_more(proxy)
            greeted = asyncio.create_task(_greeted(proxy))
            await until(loses, "what it sends is lost")
        assert not await greeted
        async with injector.by("DEAF", group) as name:
            proxy = cluster.proxies[name]
            loses = _loses_more(proxy)
            assert await _greeted(proxy)
            await until(loses, "what is sent to it is lost")
        async with injector.by("HOLD", group) as name:
            lets_in = _lets_in_more(cluster.proxies[name])
            greeted = asyncio.create_task(_greeted(cluster.proxies[name]))
            await until(lets_in, "it is let in")
            assert not greeted.done()
        assert await greeted
        async with injector.by("HOLD_ONE_WAY", group) as name:
            proxy = cluster.proxies[name]
            assert proxy.holds_requests != proxy.holds_answers
        async with injector.by("DELAY", group) as name:
            proxy = cluster.proxies[name]
            assert proxy.delay_requests_s == proxy.delay_answers_s > 0
        async with injector.by("DELAY_ONE_WAY", group) as name:
            proxy = cluster.proxies[name]
            assert (proxy.delay_requests_s > 0) != (proxy.delay_answers_s > 0)
        async with injector.by("BREAK", group) as name:
            proxy = cluster.proxies[name]
            assert proxy.cut_after is not None
            proxy.cut_after = 0  # at the next byte: there is little traffic at the moment
            assert not await _greeted(proxy)
        assert await _greeted(cluster.proxies[name])
        assert group != "broker" or await _greeted(cluster.pulsar_proxies[name])


async def _metadata(cluster: Cluster, injector: _Injector) -> None:
    async with injector.by("KILL", "zookeeper") as server:
        assert not cluster.running(server)
    for kind in ("PAUSE", "BLINK"):
        async with injector.by(kind, "zookeeper") as server:
            assert await cluster.ready(server) != ""
    for group in ("broker", "bookie"):
        (proxy,) = cluster.metadata_proxies[f"{group}-1"]
        connects = _lets_in_more(proxy)
        async with injector.by("BREAK_METADATA", group):
            await until(connects, "it has reconnected")
        async with injector.by("CUT_METADATA", group) as name:
            await until(partial(_not_ready, cluster, name), "it reports that it has no session")
        async with injector.by("HOLD_METADATA", group):
            assert proxy.holds_requests
            assert proxy.holds_answers
        async with injector.by("DEAF_TO_METADATA", group):
            assert (proxy.loses_requests, proxy.loses_answers) == (False, True)
        async with injector.by("MUTE_TO_METADATA", group):
            assert (proxy.loses_requests, proxy.loses_answers) == (True, False)
        async with injector.by("DELAY_METADATA", group):
            assert proxy.delay_requests_s > 0


def _loses_more(proxy: Proxy) -> Callable[[], bool]:
    lost = proxy.lost
    return lambda: proxy.lost > lost


def _lets_in_more(proxy: Proxy) -> Callable[[], bool]:
    let_in = proxy.let_in
    return lambda: proxy.let_in > let_in


async def _not_ready(cluster: Cluster, name: str) -> bool:
    return await cluster.ready(name) != ""


async def _disks(cluster: Cluster, injector: _Injector) -> None:
    async with injector.by("FAIL_SYNC", "bookie", "bookie-2") as name:
        # Two are enough for a receipt, and it gets what is sent where the ledger names it.

        async def ends() -> bool:
            await injector.works()
            return not cluster.running(name)

        await until(ends, "it ends: nobody knows what is on its disk")
    async with injector.by("FILL_DISK", "bookie", "bookie-2") as name:

        async def fills_up() -> bool:
            await injector.works()
            return await _takes_entries(cluster, name, False)

        await until(fills_up, "it takes no more entries")
    await until(lambda: _takes_entries(cluster, name, True), "it takes entries again")
    for kind, how in (("SLOW_SYNC", "slow"), ("FULL_DISK", "full")):
        async with injector.by(kind, "bookie") as name:
            assert cluster.disk(name).read_text() == how
        assert not cluster.disk(name).exists()
    async with injector.by("FLIP_BIT", "bookie", "bookie-3") as name:
        assert not cluster.running(name)
        (flipped,) = injector.recorded("flipped")
        assert flipped["bookie"] == name
        assert "bit" in flipped["which"]
    # It is the only one ever.
    assert _fault("FLIP_BIT", "bookie").targets(cluster) == [name]
    assert await cluster.flip_bit("bookie-1", injector.chance) == ""
    assert cluster.running("bookie-1")


async def _takes_entries(cluster: Cluster, name: str, takes: bool) -> bool:
    _, status = await cluster.launcher.do_aside(lambda: cluster.launcher.local.bookie(name).ask("/status"))
    return isinstance(status, dict) and status["read_only"] is not takes


async def _bundles(cluster: Cluster, injector: _Injector) -> None:
    for kind in ("UNLOAD", "SPLIT"):
        async with injector.by(kind, "place") as partition:
            pass
        act = injector.recorded("act")[-1]
        assert (act["act"], act["target"], act["result"], act["why"]) == (kind.lower(), partition, "done", "")
        assert act["begun"] <= act["at"]


async def _members(cluster: Cluster, injector: _Injector) -> None:
    assert _fault("REMOVE_BROKER", "broker").targets(cluster) == []
    assert _fault("REMOVE_BOOKIE", "bookie").targets(cluster) == []
    for kind in ("broker", "bookie"):
        there = [*cluster.names]
        async with injector.by(f"ADD_{kind.upper()}", kind):
            (added,) = set(cluster.names) - {*there}
        assert cluster.running(added)
        assert await _greeted(cluster.proxies[added])
        first = f"{kind}-1"
        proxy = cluster.proxies[first]
        async with _recorded_addresses(cluster), injector.by(f"REMOVE_{kind.upper()}", kind, first):
            assert first not in cluster.names
            assert first not in {**cluster.proxies, **cluster.pulsar_proxies, **cluster.metadata_proxies}
            assert not cluster.running(first)
            assert not await _greeted(proxy)
        assert [(act["act"], act["target"], act["result"]) for act in injector.recorded("act")[-2:]] == [
            ("add", added, "done"),
            ("remove", first, "done"),
        ]
        assert await cluster.ready(first) == ""
        # Its log is still there.
        assert f"{first}.log" in {log.name for log in cluster.logs()}
    assert list(cluster.broker_addresses()) == cluster.brokers
    assert cluster.proxies["broker-2"].address in cluster.service_url


@contextlib.asynccontextmanager
async def _recorded_addresses(cluster: Cluster) -> AsyncIterator[None]:
    """What brokers' addresses are, also when the launcher has taken one out and nobody knows of it yet."""
    local = cluster.launcher.local
    remove, addresses = local.remove, []

    def remove_and_ask(*name: Any, **options: Any) -> None:
        remove(*name, **options)
        addresses.append(list(cluster.broker_addresses()))
        assert cluster.direct_url.count(",") == len(addresses[-1]) - 1

    brokers = [*cluster.brokers]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local, "remove", remove_and_ask)
        yield
    assert addresses == [brokers]


async def _everything(cluster: Cluster, injector: _Injector) -> None:
    for kind, names in (
        ("KILL_ALL_BROKERS", cluster.brokers),
        ("KILL_ALL_BOOKIES", cluster.bookies),
        ("KILL_EVERYTHING", cluster.names),
    ):
        async with injector.by(kind, "everything"):
            assert not any(map(cluster.running, names))
            # It is not taken for one that has ended by itself, and started, by who waits for others.
            assert await cluster.ready(names[0]) == f"{names[0]} is down"
    for kind, names in (("PAUSE_ALL_BROKERS", cluster.brokers), ("PAUSE_TWO_BOOKIES", cluster.bookies[:2])):
        async with injector.by(kind, "everything"):
            assert all(map(cluster.launcher.paused, names))
        assert not any(map(cluster.launcher.paused, names))
    async with injector.by("FAIL_ALL_SYNCS", "everything"):
        assert {cluster.disk(name).read_text() for name in cluster.bookies} == {"sync"}
    async with injector.by("AMBUSH", "everything") as name:
        assert [one for one in cluster.bookies if not cluster.running(one)] == [name]
        assert not any(map(cluster.running, cluster.brokers))
        assert not any(cluster.proxies[one].loses_requests for one in cluster.bookies)
    async with injector.by("CUT_ALL_METADATA", "everything"):
        for proxies in cluster.metadata_proxies.values():
            assert [(one.closed_to_new, one.connections) for one in proxies] == [(True, 0)]


@pytest.mark.slow
async def test_faults_are_injected_into_standalone_and_healed(tmp_path: Path) -> None:
    with Recorder(tmp_path / "history", "rig") as recorder, socket.create_server(("127.0.0.1", 0)) as other:
        standalone = Standalone(tmp_path / "standalone", recorder)
        # Another process has taken the port that was chosen: it starts with other ports.
        standalone.server.service_url = f"magnetar://127.0.0.1:{other.getsockname()[1]}"
        async with standalone:
            standalone.partition_names = [_TOPIC]
            injector = _Injector(standalone, tmp_path / "history" / "rig.jsonl")
            (name,) = standalone.brokers
            await injector.works()
            for kind in ("KILL", "KILL_STARTING", "STOP"):
                async with injector.by(kind, "broker"):
                    assert not standalone.running(name)
            async with injector.by("BLINK", "broker"):
                assert psutil.Process(standalone.server.pid).status() == psutil.STATUS_STOPPED
            async with injector.by("CUT", "broker"):
                assert not await _greeted(standalone.proxies[name])
            async with injector.by("UNLOAD", "place"):
                assert [act["act"] for act in injector.recorded("act")] == ["unload"]
            await injector.works()
            # No faults of parts that it doesn't have.
            there = {fault.group for fault in faults.all() if fault.group != "client" and fault.targets(standalone)}
            assert there == {"broker", "place", "everything"}
            # Another fault's end may have it started while it is shutting down.
            stopping = asyncio.create_task(standalone.stop(name))
            await asyncio.sleep(0)
            await standalone.start(name)
            await stopping
            await injector.ready()
            assert standalone.ended_by_themselves == {}
            # Any caller's start starts it again, as an init system would.
            standalone.server.kill()
            await injector.ready()
            assert standalone.ended_by_themselves == {name: 1}
