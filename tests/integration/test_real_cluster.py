"""The launcher with what it is for: real bookies, and a ZooKeeper of the cluster's own or from outside."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from magnetar_bookie.read.striping import Striping
from magnetar_cli.cluster import LocalCluster, NoCluster, NotStarted
from magnetar_cli.maintenance import sample_ledgers
from magnetar_metadata.zookeeper import open_zookeeper
from magnetar_testing.quick_cluster import QUICK, SESSION_TIMEOUT_S, running_cluster
from magnetar_wire.clock import SystemClock
from tests.running import run

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("real cluster")]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster"), bookies=3) as cluster:
        yield cluster


async def _written(cluster: LocalCluster, entries: int) -> int:
    async with cluster.client() as client:
        ledger_id, _ = await sample_ledgers.write_ledger(
            client, Striping(3, 3, 2), entries, 100, lambda _: None, claim=True
        )
        return ledger_id


async def _read(cluster: LocalCluster, ledger_id: int) -> int:
    async with cluster.client() as client:
        return (await sample_ledgers.verify_ledger(client, ledger_id, lambda _: None)).entries


def test_entries_survive_kill_9_of_all_bookies_and_zookeeper(cluster: LocalCluster) -> None:
    """CHK-21: kill -9 of all bookies and of ZooKeeper at once loses nothing that was acknowledged."""
    ledger_id = run(_written(cluster, 500))
    addresses = [cluster.bookie(name).address for name in cluster.names()]
    for name in (*cluster.names(), "zookeeper"):
        cluster.kill(name)
    assert {part.state for part in cluster.status().parts} == {"dead"}
    cluster.up()
    assert cluster.status().well, cluster.status()
    assert [cluster.bookie(name).address for name in cluster.names()] == addresses
    assert run(_read(cluster, ledger_id)) == 500


def test_a_bookie_that_was_stopped_starts_where_it_was(cluster: LocalCluster) -> None:
    ledger_id = run(_written(cluster, 500))
    bookie = cluster.bookie("bookie-1")
    bookie.restart()
    _, status = bookie.ask("/status")
    assert status["limbo"]["below"] == 0, "a graceful end is no loss"
    assert run(_read(cluster, ledger_id)) == 500


def test_wiped_bookie_is_refused_at_start_with_the_reason(cluster: LocalCluster) -> None:
    """CHK-23: the disk is empty, so the name is taken; the launcher shows the bookie's error."""
    added = cluster.add("wiped")
    added.stop()
    shutil.rmtree(added.data_folder)
    with pytest.raises(NotStarted, match=r"wiped has ended[^$]*wiped"):
        added.start()
    cluster.remove("wiped", force=True)
    assert "wiped" not in cluster.names()


def test_a_zookeeper_from_outside_is_used_within_a_chroot_of_the_cluster(tmp_path: Path, cluster: LocalCluster) -> None:
    """And given back as it was. (The other cluster's ZooKeeper is from outside to this one.)"""
    hosts = f"127.0.0.1:{cluster.status().parts[0].address.rpartition(':')[2]}"

    async def names(path: str) -> list[str]:
        async with await open_zookeeper(hosts, SystemClock()) as store:
            return sorted(await store.children(path))

    before = run(names("/"))
    with LocalCluster(tmp_path / "other", die_with_parent=True) as other:
        other.up(1, zookeeper=hosts, settings=QUICK, session_timeout_s=SESSION_TIMEOUT_S)
        assert [part.name for part in other.status().parts] == ["bookie-1"]
        assert other.status().well
        (chroot,) = set(run(names("/"))) - set(before)
        assert chroot in other.metadata
        assert run(names(f"/{chroot}/bookies/available")) == ["bookie-1"]
        other.down()
        other.up()
        other.down(wipe=True)
    assert run(names("/")) == before
    assert not (tmp_path / "other").exists()
    with pytest.raises(NoCluster):
        other.status()
    assert cluster.status().well
