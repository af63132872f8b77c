"""Auto-recovery, decommissioning and the sweeper as they run in processes, seen through the command line.

One cluster of four bookies for all tests, in the order in which they stand; the last ones take bookies away.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from magnetar_bookie.ledger.ledger_writer import LedgerWriter
from magnetar_bookie.read.striping import Striping
from magnetar_cli.cluster import LocalCluster
from magnetar_cli.command import app
from magnetar_cli.maintenance import sample_ledgers
from magnetar_testing.quick_cluster import running_cluster
from tests.running import GENEROUS_S, run

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("maintenance")]


_OPTIONS: dict[str, Any] = {
    # So few copies at a time that figures change often enough to be seen.
    "rereplication_entry_batch_size": 500,
    # A busy machine is to leave a writer time to find another bookie by itself.
    "open_ledger_rereplication_grace_period_seconds": 20.0,
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster"), bookies=4, **_OPTIONS) as cluster:
        yield cluster


def magnetar(cluster: LocalCluster, *arguments: str) -> str:
    """What the command printed."""
    ended = command(cluster, *arguments)
    assert (ended.exit_code, ended.stderr) == (0, ""), (arguments, ended.stderr, ended.exception)
    return ended.stdout


def command(cluster: LocalCluster, *arguments: str) -> Result:
    """In this process, or most of the time would go into starting Python."""
    return CliRunner().invoke(app, [*arguments, "--folder", str(cluster.folder)])


def json_of(cluster: LocalCluster, *arguments: str) -> list[dict[str, Any]]:
    """Return the objects that the command prints with --json, one a line."""
    objects = [json.loads(line) for line in magnetar(cluster, *arguments, "--json").splitlines()]
    assert all(isinstance(one, dict) for one in objects), (arguments, objects)
    return objects


def written(cluster: LocalCluster, *options: str) -> int:
    """The id of a new ledger."""
    return int(magnetar(cluster, "ledgers", "write", *options).split()[1].rstrip(":"))


def holders(cluster: LocalCluster, ledger_id: int) -> dict[str, tuple[int, int]]:
    """By bookie: the number of entries that it holds whole, and of all, by a check of the bookies themselves."""
    held: dict[str, tuple[int, int]] = {}
    (ledger,) = json_of(cluster, "ledgers", "show", str(ledger_id), "--check")
    for one in ledger["replicas"]:
        has, of = held.get(one["bookie_id"], (0, 0))
        held[one["bookie_id"]] = (has + one["holds"], of + one["of"])
    return held


def whole(cluster: LocalCluster, ledger_id: int, entries: int) -> bool:
    """Whether three replicas of each entry are there."""
    held = holders(cluster, ledger_id).values()
    return sum(of for _, of in held) == 3 * entries and all(has == of for has, of in held)


def standings(cluster: LocalCluster) -> dict[str, str]:
    return {one["bookie_id"]: one["standing"] for one in json_of(cluster, "bookies", "list")}


def test_written_ledger_is_listed_and_read_back(cluster: LocalCluster) -> None:
    ledger_id = written(cluster, "--entries", "500", "--size", "100")
    assert "500 entries read, all as they were written" in magnetar(cluster, "ledgers", "read", str(ledger_id))
    (ledger,) = [one for one in json_of(cluster, "ledgers", "list") if one["ledger_id"] == ledger_id]
    assert (ledger["state"], ledger["last_entry_id"], ledger["missing"]) == ("closed", 499, [])
    assert "master_key" not in ledger
    eventually(partial(whole, cluster, ledger_id, 500), "three replicas are there")
    assert f"ledger {ledger_id}: closed, 3/3/2, 500 entries" in magnetar(
        cluster, "ledgers", "list", "--state", "closed"
    )
    assert magnetar(cluster, "ledgers", "list", "--state", "tombstone") == "0 ledgers\n"


def test_read_only_bookie_gets_no_new_ledger(cluster: LocalCluster) -> None:
    """STO-2: set read-only, a bookie gets no new ledger, and serves what it has; taken back, it does."""
    assert "read-only" in magnetar(cluster, "bookies", "read-only", "bookie-1", "on")
    eventually(lambda: standings(cluster)["bookie-1"] == "read-only", "others see that it is read-only")
    assert {part.name: part.state for part in cluster.status().parts}["bookie-1"] == "read-only"
    for _ in range(5):
        assert "bookie-1" not in holders(cluster, written(cluster, "--entries", "1"))
    assert magnetar(cluster, "bookies", "read-only", "bookie-1", "off") == "bookie-1 accepts entries\n"
    eventually(lambda: standings(cluster)["bookie-1"] == "writable", "others see that it takes entries")


def test_decommission_of_required_bookie_needs_force_and_can_be_cancelled(cluster: LocalCluster) -> None:
    """With too few others left a decommission is refused; forced it waits, and is taken back."""
    magnetar(cluster, "bookies", "read-only", "bookie-4", "on")
    eventually(lambda: standings(cluster)["bookie-4"] == "read-only", "others see that it is read-only")
    assert sorted(holders(cluster, written(cluster, "--entries", "10"))) == ["bookie-1", "bookie-2", "bookie-3"]
    for arguments in (("bookies", "decommission", "bookie-1"), ("cluster", "remove", "bookie-1")):
        refused = command(cluster, *arguments)
        assert (refused.exit_code, len(refused.stderr.splitlines())) == (1, 1), refused.stderr
        assert "bookie-4 is read-only" in refused.stderr
        assert "--force" in refused.stderr
    assert standings(cluster)["bookie-1"] == "writable"
    magnetar(cluster, "bookies", "decommission", "bookie-1", "--force")
    eventually(lambda: state_of(cluster, "bookie-1") == "read-only", "it takes nothing more")
    assert standings(cluster)["bookie-1"] == "leaving"
    assert magnetar(cluster, "bookies", "decommission", "bookie-1", "--cancel").startswith("bookie-1 stays")
    eventually(lambda: state_of(cluster, "bookie-1") == "running", "it takes entries again")
    eventually(lambda: standings(cluster)["bookie-1"] == "writable", "others see that")
    assert command(cluster, "bookies", "decommission", "bookie-1", "--cancel").exit_code == 1
    magnetar(cluster, "bookies", "read-only", "bookie-4", "off")
    eventually(lambda: standings(cluster)["bookie-4"] == "writable", "others see that it takes entries")


def state_of(cluster: LocalCluster, name: str) -> str:
    return {part.name: part.state for part in cluster.status().parts}[name]


def test_empty_ledger_is_listed_with_zero_entries(cluster: LocalCluster) -> None:
    output = magnetar(cluster, "ledgers", "write", "--entries", "0")
    ledger_id = output.split()[1].rstrip(":")
    assert output == f"ledger {ledger_id}: 0 entries of 1024 bytes written\n"
    lines = magnetar(cluster, "ledgers", "list").splitlines()
    assert f"ledger {ledger_id}: closed, 3/3/2, 0 entries of 0 bytes" in lines
    assert magnetar(cluster, "ledgers", "read", ledger_id).endswith(" 0 entries read, all as they were written\n")


def test_a_ledger_that_nobody_claims_is_swept(cluster: LocalCluster) -> None:
    """CHK-58: one without an owner is found by its intent and deleted, and the one with an owner is not."""
    retained = written(cluster, "--entries", "10")
    orphan = written(cluster, "--entries", "10", "--orphan")
    lines = magnetar(cluster, "ledgers", "orphans", "--watch").splitlines()
    assert lines[-1] == "every ledger has an owner"
    assert not any(f"ledger {retained}," in line for line in lines)
    deleted = command(cluster, "ledgers", "read", str(orphan))
    assert deleted.exit_code == 1
    assert str(orphan) in deleted.stderr
    assert "10 entries read" in magnetar(cluster, "ledgers", "read", str(retained))
    eventually(lambda: not lists(cluster, orphan), "its bookies have dropped it, and the last of them its node")


def eventually(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + GENEROUS_S
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain until {what}"
        time.sleep(0.05)


def lists(cluster: LocalCluster, ledger_id: int) -> bool:
    return any(one["ledger_id"] == ledger_id for one in json_of(cluster, "ledgers", "list"))


def test_auto_recovery_rereplicates_ledgers_of_killed_bookie(cluster: LocalCluster) -> None:
    """STO-2: lost replicas are made again by auto-recovery, with a progress figure per ledger."""
    ledger_ids = [written(cluster, "--entries", "3000", "--size", "1000") for _ in range(2)]
    before = {one: list(holders(cluster, one)) for one in ledger_ids}
    victim = before[ledger_ids[0]][0]
    hit = [one for one in ledger_ids if victim in before[one]]
    cluster.kill(victim)
    eventually(lambda: standings(cluster)[victim] == "lost", "its session is over")
    views = [json.loads(line) for line in magnetar(cluster, "ledgers", "repairs", "--watch", "--json").splitlines()]
    figures = {
        (one["ledger_id"], one["entries_copied"], one["entries_total"]) for view in views for one in view["repairs"]
    }
    for ledger_id in hit:
        assert any(one == ledger_id and total == 3000 for one, _, total in figures), (ledger_id, figures)
        assert any(one == ledger_id and copied > 0 for one, copied, _ in figures), (ledger_id, figures)
    assert set(hit) <= set(views[-1]["finished"])
    for ledger_id in ledger_ids:
        held = holders(cluster, ledger_id)
        assert victim not in held
        assert all(held[one] == (3000, 3000) for one in held if one not in before[ledger_id]), (victim, before, held)
        # What an ack quorum had when the ledger was closed the third has a little later.
        eventually(partial(whole, cluster, ledger_id, 3000), f"three replicas of ledger {ledger_id} are there")
        assert "3000 entries read" in magnetar(cluster, "ledgers", "read", str(ledger_id))
    assert standings(cluster)[victim] == "lost"
    cluster.restart(victim)
    assert standings(cluster)[victim] == "writable"


def test_a_bookie_is_decommissioned_under_load(cluster: LocalCluster) -> None:
    """STO-2: emptied while a writer goes on, then decommissioned; its entries are on others, and nothing was lost."""
    old = written(cluster, "--entries", "1000")
    leaver = next(iter(holders(cluster, old)))

    async def under_load() -> tuple[int, int]:
        async with cluster.client() as client:
            made, writer = await client.create(Striping(3, 3, 2), "a test of decommissioning")
            await client.ledgers.claim_ledger(made, f"/by-hand/{made.ledger_id:016x}", lambda payload: payload or b"")
            stop = asyncio.Event()
            writing = asyncio.create_task(_write(writer, stop))
            try:
                await asyncio.to_thread(cluster.remove, leaver)
            finally:
                stop.set()
                acknowledged = await writing
            closed = await writer.close()
            assert closed.last_entry_id + 1 == acknowledged
            assert leaver not in closed.bookies()
            read = await sample_ledgers.verify_ledger(client, made.ledger_id, lambda _: None)
            assert read.entries == acknowledged
            return made.ledger_id, acknowledged

    ledger_id, acknowledged = run(under_load())
    assert acknowledged > 0
    assert leaver not in cluster.names()
    assert standings(cluster)[leaver] == "struck off"
    for one, entries in ((old, 1000), (ledger_id, acknowledged)):
        assert leaver not in holders(cluster, one)
        # What an ack quorum had when the ledger was closed the third has a little later.
        eventually(partial(whole, cluster, one, entries), f"three replicas of ledger {one} are there")


async def _write(writer: LedgerWriter, stop: asyncio.Event) -> int:
    """Adds one by one, as fast as they complete; returns how many did."""
    acknowledged = 0
    while not stop.is_set():
        await writer.add(sample_ledgers.make_entry(writer.ledger_id, acknowledged, 200))
        acknowledged += 1
    return acknowledged


def test_user_errors_are_reported_in_one_line(cluster: LocalCluster) -> None:
    for arguments, word in (
        (("bookies", "read-only", "bokie-1", "on"), "did you mean 'bookie-"),
        (("bookies", "decommission", "nobody"), "nobody"),
        (("ledgers", "show", "999"), "999"),
        (("ledgers", "read", "999"), "999"),
        (("ledgers", "recover", "999"), "999"),
        (("ledgers", "delete", "999", "--yes"), "999"),
        (("cluster", "kill", "bokie-1"), "did you mean 'bookie-"),
    ):
        ended = command(cluster, *arguments)
        assert ended.exit_code == 1, (arguments, ended.output)
        assert word in ended.stderr, arguments
        assert len(ended.stderr.splitlines()) == 1, ended.stderr
    ended = command(cluster, "ledgers", "list", "--metadata", "zookeeper://127.0.0.1:1?connect_timeout_seconds=0.5")
    assert ended.exit_code == 1
    assert "127.0.0.1:1" in ended.stderr
    assert len(ended.stderr.splitlines()) == 1, ended.stderr


def test_a_ledger_is_deleted_when_it_was_confirmed(cluster: LocalCluster) -> None:
    ledger_id = written(cluster, "--entries", "10")
    assert command(cluster, "ledgers", "delete", str(ledger_id)).exit_code == 1  # without a confirmation
    assert lists(cluster, ledger_id)
    magnetar(cluster, "ledgers", "delete", str(ledger_id), "--yes")
    eventually(lambda: not lists(cluster, ledger_id), "its bookies have dropped it")
