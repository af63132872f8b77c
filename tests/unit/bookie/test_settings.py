"""Each option has its effect on durations and sizes. Time is manual.

Options that other files prove are not repeated here.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from magnetar_bookie.auto_recovery.auditor import Auditor
from magnetar_bookie.auto_recovery.auto_recovery import AutoRecovery
from magnetar_bookie.auto_recovery.bookie_watcher import BookieWatcher
from magnetar_bookie.auto_recovery.errors import CannotRepair
from magnetar_bookie.auto_recovery.fragment_replicator import copy_missing_entries
from magnetar_bookie.auto_recovery.ledger_checker import LedgerChecker
from magnetar_bookie.auto_recovery.ledger_repair_rules import SlotRepair
from magnetar_bookie.auto_recovery.underreplicated_ledgers import UnderreplicatedLedgers, list_repair_progress
from magnetar_bookie.errors import Unreadable
from magnetar_bookie.ledger.ledger_metadata import LedgerState
from magnetar_bookie.read.striping import Striping
from magnetar_bookie.settings.auto_recovery import AutoRecoverySettings
from magnetar_bookie.settings.ledger_client import LedgerClientSettings
from magnetar_metadata.errors import NotSent
from magnetar_wire.transport import Peer
from tests.unit.bookie.honest_bookie import entry
from tests.unit.bookie.repair_scene import PATIENT, Scene
from tests.unit.bookie.small_cluster import running_small_cluster

THREE = Striping(3, 3, 2)
# Additions of a scene's steps and a few turns to and fro to an option's value.
SLACK_S = 1.0


def of_client(**changed: Any) -> LedgerClientSettings:
    return LedgerClientSettings(explicit_lac_interval_ms=0, **changed)


def patient(**changed: Any) -> AutoRecoverySettings:
    return AutoRecoverySettings.model_validate({**PATIENT.model_dump(), **changed})


async def takes(of: Scene, condition: Callable[[], bool | Awaitable[bool]], what: str) -> float:
    began = of.clock.monotonic()
    await of.until(condition, what)
    return of.clock.monotonic() - began


def between(moments: list[float]) -> list[float]:
    return [later - earlier for earlier, later in itertools.pairwise(moments)]


@pytest.mark.parametrize("kind", [LedgerClientSettings, AutoRecoverySettings])
def test_every_option_is_named_by_a_test(kind: type[LedgerClientSettings] | type[AutoRecoverySettings]) -> None:
    tests = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    assert [name for name in kind.model_fields if name not in tests] == []


@pytest.mark.parametrize("timeout_s", [1.0, 8.0])
async def test_read_entry_timeout_seconds(timeout_s: float) -> None:
    async with running_small_cluster(settings=of_client(read_entry_timeout_seconds=timeout_s)) as cluster:
        ledger_id = await cluster.make(Striping(1, 1, 1))
        await cluster.put(ledger_id, range(2))
        reader = await cluster.client.open(ledger_id)
        cluster["b0"].hanging = {"read"}
        began = cluster.clock.monotonic()
        with pytest.raises(Unreadable):
            await cluster.patiently(reader.read(0, 0))
        assert timeout_s <= cluster.clock.monotonic() - began <= timeout_s + SLACK_S


@pytest.mark.parametrize("timeout_ms", [300, 3000])
async def test_speculative_read_timeout_ms(timeout_ms: int) -> None:
    async with running_small_cluster(settings=of_client(speculative_read_timeout_ms=timeout_ms)) as cluster:
        ledger_id = await cluster.make(THREE)
        await cluster.put(ledger_id, range(2))
        reader = await cluster.client.open(ledger_id)
        cluster["b0"].hanging = {"read"}
        began = cluster.clock.monotonic()
        assert await cluster.patiently(reader.read(0, 0)) == [entry(0)]
        assert timeout_ms / 1000 <= cluster.clock.monotonic() - began <= timeout_ms / 1000 + SLACK_S


@pytest.mark.parametrize("seconds", [5.0, 50.0])
async def test_bookie_quarantine_time_seconds(seconds: float) -> None:
    async with running_small_cluster(settings=of_client(bookie_quarantine_time_seconds=seconds)) as cluster:
        cluster.client.bookies.quarantine("b1")
        cluster.clock.advance(seconds - 0.1)
        assert "b1" not in cluster.client.bookies.writable()
        cluster.clock.advance(0.2)
        assert "b1" in cluster.client.bookies.writable()


@pytest.mark.parametrize("seconds", [2.0, 20.0])
async def test_lost_bookie_replacement_delay_seconds(seconds: float) -> None:
    """The last that goes is missed for so long by a writer that adds nothing."""

    async with Scene(client_settings=of_client(lost_bookie_replacement_delay_seconds=seconds)) as of:
        writer = await of.writer()
        before = writer.metadata.last_fragment
        await of.bookies[before.bookies[0]].go()
        took = await takes(of, lambda: writer.metadata.last_fragment != before, "it is replaced")
        assert seconds <= took <= seconds + SLACK_S


@pytest.mark.parametrize("seconds", [2.0, 15.0])
async def test_lost_bookie_recovery_delay_seconds(seconds: float) -> None:
    async with Scene() as of:
        ledger_id = await of.ledger(3)
        lost = (await of.metadata(ledger_id)).bookies()[1]
        settings = patient(lost_bookie_recovery_delay_seconds=seconds, auditor_scan_interval_seconds=1000.0)
        await of.auto_recovery(settings=settings)
        await of.passes(1)
        await of.bookies[lost].go()
        took = await takes(of, lambda: of.whole(ledger_id, without=[lost]), "it is repaired")
        assert seconds <= took <= seconds + SLACK_S


@pytest.mark.parametrize("seconds", [3.0, 30.0])
async def test_open_ledger_rereplication_grace_period_seconds(seconds: float) -> None:
    async with Scene() as of:
        writer = await of.writer()
        await of.over(writer.add(b"a"))
        await of.auto_recovery(settings=patient(open_ledger_rereplication_grace_period_seconds=seconds))
        await of.passes(1)
        await of.bookies[writer.metadata.last_fragment.bookies[1]].go()

        async def taken() -> bool:
            return (await of.metadata(writer.ledger_id)).state is not LedgerState.OPEN

        took = await takes(of, taken, "it is taken from its writer")
        delay_s = of.settings.lost_bookie_recovery_delay_seconds + seconds
        assert delay_s <= took <= delay_s + SLACK_S


@pytest.mark.parametrize("seconds", [2.0, 25.0])
async def test_auditor_scan_interval_seconds(seconds: float) -> None:
    async with Scene(bookies=1) as of:
        scans = await _audits(of, patient(auditor_scan_interval_seconds=seconds), fail=False)
        assert all(seconds <= one <= seconds + SLACK_S for one in between(scans))


@pytest.mark.parametrize("seconds", [2.0, 25.0])
async def test_metadata_retry_seconds(seconds: float) -> None:
    async with Scene(bookies=1) as of:
        scans = await _audits(of, patient(metadata_retry_seconds=seconds), fail=True)
        assert all(seconds <= one <= seconds + SLACK_S for one in between(scans))


async def _audits(of: Scene, settings: AutoRecoverySettings, *, fail: bool) -> list[float]:
    scans: list[float] = []

    class RecordingAuditor(Auditor):
        async def scan(self) -> None:
            scans.append(of.clock.monotonic())
            if fail:
                raise NotSent("the store is away")
            await super().scan()

    of.spawn(RecordingAuditor(of.client, BookieWatcher(of.client, settings), settings, lambda: True).run())
    await of.until(lambda: len(scans) == 4, "four scans are made")
    return scans


@pytest.mark.parametrize("seconds", [10.0, 100.0])
async def test_auditor_periodic_check_interval_seconds(seconds: float) -> None:
    async with Scene(bookies=3) as of:
        checks = await _checks(of, patient(auditor_periodic_check_interval_seconds=seconds), ledgers=1, checks=4)
        assert all(seconds <= one <= seconds + SLACK_S for one in between(checks))


@pytest.mark.parametrize("seconds", [2.0, 20.0])
async def test_auditor_check_pause_seconds(seconds: float) -> None:
    async with Scene(bookies=3) as of:
        settings = patient(auditor_check_pause_seconds=seconds, auditor_checks_per_round=1)
        checks = await _checks(of, settings, ledgers=3, checks=3)
        assert all(seconds <= one <= seconds + SLACK_S for one in between(checks))


@pytest.mark.parametrize("at_a_time", [1, 2, 6])
async def test_auditor_checks_per_round(at_a_time: int) -> None:
    async with Scene(bookies=3) as of:
        settings = patient(auditor_check_pause_seconds=10.0, auditor_checks_per_round=at_a_time)
        checks = await _checks(of, settings, ledgers=6, checks=6)
        assert sum(one < 5 for one in between(checks)) == 6 - 6 // at_a_time


async def _checks(of: Scene, settings: AutoRecoverySettings, *, ledgers: int, checks: int) -> list[float]:
    """Return when ledgers are compared with inventories."""
    moments: list[float] = []

    checker = LedgerChecker(of.client, settings, lambda: True)
    record_complete = checker.schedule.record_complete

    def record(ledger_id: int, version: int, now: float) -> None:
        moments.append(of.clock.monotonic())
        record_complete(ledger_id, version, now)

    for _ in range(ledgers):
        checker.schedule.add_ledger(await of.ledger(2), 1)
    with patch.object(checker.schedule, "record_complete", record):
        of.spawn(checker.run())
        await of.until(lambda: len(moments) >= checks, "all checks are made", limit_s=10_000)
    return moments


@pytest.mark.parametrize("seconds", [5.0, 60.0])
async def test_intent_grace_period_seconds(seconds: float) -> None:
    async with Scene() as of:
        await of.auto_recovery(settings=patient(intent_grace_period_seconds=seconds))
        made, writer = await of.client.create(THREE, "a test")
        writer.abandon()

        async def deleted() -> bool:
            return (await of.metadata(made.ledger_id)).state is LedgerState.TOMBSTONE

        # An audit must see it first.
        took = await takes(of, deleted, "it is deleted")
        assert seconds <= took <= seconds + of.settings.auditor_scan_interval_seconds + SLACK_S


@pytest.mark.parametrize(("first_s", "longest_s"), [(1.0, 4.0), (5.0, 12.0)])
async def test_rw_rereplicate_backoff_seconds_and_its_bound(first_s: float, longest_s: float) -> None:
    async with Scene(bookies=2) as of:
        ledger_id = await of.ledger(2, ensemble=1, write=1, ack=1)
        await of.bookies[(await of.metadata(ledger_id)).bookies()[0]].go()
        tried: list[float] = []
        settings = patient(rw_rereplicate_backoff_seconds=first_s, rw_rereplicate_backoff_max_seconds=longest_s)
        record_progress = UnderreplicatedLedgers.record_progress

        async def noted(self: UnderreplicatedLedgers, *args: Any) -> None:
            tried.append(of.clock.monotonic())
            await record_progress(self, *args)

        with patch.object(UnderreplicatedLedgers, "record_progress", noted):
            await of.auto_recovery(settings=settings)
            await of.until(lambda: len(tried) >= 5, "it was tried five times")
        pauses = between(tried)
        assert first_s <= pauses[0] <= first_s + SLACK_S
        assert longest_s <= pauses[-1] <= longest_s + SLACK_S
        assert len(await list_repair_progress(of.client)) == 1


@pytest.mark.parametrize(
    ("option", "value", "portions"),
    [
        ("rereplication_entry_batch_size", 2, [2, 2, 2, 2, 2, 1]),
        ("rereplication_entry_batch_size", 7, [7, 4]),
        # A record takes 43 bytes, or 44; the one that passes the bound is taken.
        ("rereplication_batch_bytes", 80, [2, 2, 2, 2, 2, 1]),
        ("rereplication_batch_bytes", 1000, [11]),
        ("inventory_entries", 3, [3, 3, 3, 2]),
        ("inventory_entries", 100, [11]),
    ],
)
async def test_entries_are_copied_in_portions(option: str, value: int, portions: list[int]) -> None:
    async with Scene() as of:
        ledger_id = await of.ledger(11)
        metadata = await of.metadata(ledger_id)
        (spare,) = [one for one in of.bookies if one not in metadata.bookies()]
        copied: list[int] = []

        async def progress(entries: int) -> None:
            copied.append(entries)

        step = SlotRepair(0, 10, 0, metadata.bookies()[0], spare)
        settings = patient(**{option: value})
        await of.over(copy_missing_entries(of.client, settings, ledger_id, metadata, step, progress))
        assert copied == portions


@pytest.mark.parametrize("seconds", [2.0, 20.0])
async def test_inventory_timeout_seconds(seconds: float) -> None:
    async with Scene(bookies=3) as of:
        ledger_id = await of.ledger(2)
        bookie = of.bookies["b1"].bookie
        assert bookie is not None

        async def hang(peer: Peer, method: str, request: bytes) -> bytes:
            await asyncio.get_running_loop().create_future()
            return b""

        async def progress(_: int) -> None: ...

        began = of.clock.monotonic()
        step = SlotRepair(0, 1, 0, "b1", "b1")
        settings = patient(inventory_timeout_seconds=seconds)
        metadata = await of.metadata(ledger_id)
        with patch.object(bookie, "call", hang), pytest.raises(CannotRepair, match="does not list its entries"):
            await of.over(copy_missing_entries(of.client, settings, ledger_id, metadata, step, progress))
        assert seconds <= of.clock.monotonic() - began <= seconds + SLACK_S


@pytest.mark.parametrize(("seconds", "notes"), [(0.0, 8), (1000.0, 0)])
async def test_progress_interval_seconds(seconds: float, notes: int) -> None:
    async with Scene() as of:
        ledger_id = await of.ledger(8)
        lost = (await of.metadata(ledger_id)).bookies()[0]
        await of.bookies[lost].go()
        noted: list[int] = []
        record_progress = UnderreplicatedLedgers.record_progress

        async def noting(self: UnderreplicatedLedgers, ledger: int, copied: int, total: int, stuck: str) -> None:
            noted.append(copied)
            await record_progress(self, ledger, copied, total, stuck)

        settings = patient(progress_interval_seconds=seconds, rereplication_entry_batch_size=1)
        with patch.object(UnderreplicatedLedgers, "record_progress", noting):
            client = await of.new_client()
            of.spawn(AutoRecovery("b1", client, settings).run())
            await of.until(lambda: of.whole(ledger_id, without=[lost]), "it is repaired")
        assert len(noted) == notes
