"""Nodes that another program wrote, or that are damaged: they are logged once, and all others are processed."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from magnetar_bookie import paths
from magnetar_bookie.auto_recovery.auto_recovery import AutoRecovery
from magnetar_bookie.auto_recovery.decommission import read_decommission_progress, start_decommission
from magnetar_bookie.auto_recovery.unclaimed_ledgers import UnclaimedLedgerDeleter
from magnetar_bookie.auto_recovery.underreplicated_ledgers import UnderreplicatedLedgers, list_repair_progress
from magnetar_bookie.client import foreign_nodes
from magnetar_bookie.client.foreign_nodes import ForeignNodes
from magnetar_bookie.core import ledger_metadata
from magnetar_bookie.core.ledger_metadata import LedgerState
from magnetar_bookie.errors import LedgerError
from magnetar_bookie.read.striping import Striping
from magnetar_bookie.server.collector import GarbageCollector
from magnetar_metadata import compare_and_set
from magnetar_metadata.errors import ForeignValue
from magnetar_metadata.store import ABSENT
from magnetar_protos import ledger_pb2
from tests.unit.bookie.repair_scene import Scene


@contextmanager
def logged() -> Iterator[list[str]]:
    """Collect the log messages about foreign nodes."""
    messages: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger(foreign_nodes.__name__)
    logger.addHandler(handler)
    try:
        yield messages
    finally:
        logger.removeHandler(handler)


def no_message(of: Scene) -> bytes:
    """Return a value with a valid envelope, and a payload that can't be decoded."""
    return compare_and_set.encode_first_value(b"\xff\xff\xff", of.randomness)


@pytest.mark.parametrize("name", ["hello", "", "2a", f"+{42:015x}", f"0x{42:014x}", f"{42:016X}", f"{10**15:_}"[:16]])
def test_a_name_that_is_no_ledgers_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="is not a ledger id"):
        paths.id_of(name)


def test_ids_and_names_belong_together() -> None:
    for ledger_id in (0, 42, 2**63 - 1, 2**64 - 1):
        assert paths.id_of(paths.name_of(ledger_id)) == ledger_id


def test_foreign_node_is_logged_once_until_its_problem_changes() -> None:
    foreign = ForeignNodes()
    with logged() as messages:
        for reason in ("one", "one", "another", "another"):
            foreign.pass_over("/a", reason)
            foreign.pass_over("/b", "one")
    assert [message.split()[0] for message in messages] == ["/a", "/b", "/a"]


def test_of_foreign_nodes_without_end_few_are_remembered() -> None:
    foreign = ForeignNodes()
    with logged() as messages:
        for number in range(3000):
            foreign.pass_over(f"/{number}", "one")
    assert len(messages) == 3000
    assert len(foreign._told) <= 1000


async def test_auto_recovery_skips_unreadable_nodes(of: Scene) -> None:
    """Otherwise one such node would end auto-recovery on every bookie, again and again."""
    foreign = [paths.task(70), paths.intent(70), paths.ledger(70)]
    no_messages = [paths.task(71), paths.intent(71), paths.ledger(71)]
    names = [f"{paths.TASKS}/hello", f"{paths.INTENTS}/hello", f"{paths.LEDGERS}/hello/0000/0000/0000"]
    names += [f"{paths.LEDGERS}/0000/+123/0000/0000", f"{paths.LEDGERS}/0000/0000/0000/hello"]
    for path in (*foreign, *names):
        await of.store.put(path, b"not ours", ABSENT)
    for path in no_messages:
        await of.store.put(path, no_message(of), ABSENT)
    ledger_id = await of.ledger(5)
    orphan, writer = await of.client.create(Striping(3, 3, 2), "a test")
    writer.abandon()
    client = await of.new_client()
    with logged() as messages:
        running = of.spawn(AutoRecovery("b1", client, of.settings).run())
        await of.passes(3)
        await of.bookies["b2"].go()
        await of.until(lambda: running.done() or of.whole(ledger_id, without=["b2"]), "the ledger is fully replicated")

        async def deleted() -> bool:
            return (await of.metadata(orphan.ledger_id)).state is LedgerState.TOMBSTONE

        await of.until(lambda: running.done() or deleted(), "the unclaimed ledger is deleted")
        await of.passes(60)
        assert not running.done()
    for path in (*foreign, *no_messages):
        assert sum(path in message for message in messages) == 1, path
    # The wrong part of a ledger's path is logged.
    for path in (*names[:2], f"{paths.LEDGERS}/hello", f"{paths.LEDGERS}/0000/+123", names[4]):
        assert sum(path in message for message in messages) == 1, path
    assert await list_repair_progress(of.client) == []


async def test_audit_continues_past_unreadable_decommission_marks(of: Scene) -> None:
    """The intents are processed after the marks."""
    await of.store.put(paths.leaving("b70"), b"not ours", ABSENT)
    await of.store.put(paths.leaving("b71"), no_message(of), ABSENT)
    orphan, writer = await of.client.create(Striping(3, 3, 2), "a test")
    writer.abandon()
    auditor = of.auditor()
    with logged() as messages:
        for _ in range(3):
            await of.over(auditor.scan())
            await of.passes(20)
    assert (await of.metadata(orphan.ledger_id)).state is LedgerState.TOMBSTONE
    assert [message.split()[0] for message in messages] == [paths.leaving("b70"), paths.leaving("b71")]


async def test_repair_task_does_not_overwrite_an_unreadable_node() -> None:
    async with Scene(bookies=3) as of:
        ledger_id = await of.ledger(2)
        for value in (b"not ours", no_message(of)):
            await of.store.put(paths.task(ledger_id), value, ABSENT)
            with logged() as messages:
                await UnderreplicatedLedgers(of.client).mark_underreplicated(ledger_id, ["b1"])
                await UnderreplicatedLedgers(of.client).record_progress(ledger_id, 1, 2, "")
                assert not await UnderreplicatedLedgers(of.client).mark_replicated(ledger_id, ledger_pb2.RepairTask())
            assert len(messages) == 1
            await of.store.delete(paths.task(ledger_id), 0)


async def test_an_intent_that_cant_be_read_is_not_due_all_the_time() -> None:
    """An audit reads all ledgers: it is not started for an intent that can't be decoded."""
    async with Scene(bookies=3) as of:
        await of.store.put(paths.intent(70), b"not ours", ABSENT)
        # An intent that can be decoded, with a ledger that can't.
        orphan, writer = await of.client.create(Striping(3, 3, 2), "a test")
        writer.abandon()
        stored = await compare_and_set.read(of.store, paths.ledger(orphan.ledger_id))
        assert stored is not None
        await of.store.put(paths.ledger(orphan.ledger_id), b"not ours", stored.version)
        deleter = UnclaimedLedgerDeleter(of.client, 20)
        await deleter.delete_overdue(lambda: True)
        assert deleter.next_due() == of.clock.monotonic() + 20
        of.clock.advance(20)
        await of.over(deleter.delete_overdue(lambda: True))
        assert deleter.next_due() is None
        await of.store.delete(paths.ledger(orphan.ledger_id), stored.version + 1)
        await of.over(deleter.delete_overdue(lambda: True))
        assert await of.store.children(paths.INTENTS) == [paths.name_of(70)]


async def test_unreadable_decommission_mark_raises_an_error_with_its_path() -> None:
    async with Scene(bookies=3) as of:
        for value in (b"not ours", no_message(of)):
            await of.store.put(paths.leaving("b1"), value, ABSENT)
            with pytest.raises(ForeignValue, match="/bookies/leaving/b1"):
                await read_decommission_progress(of.client, "b1")
            await of.store.delete(paths.leaving("b1"), 0)
        await start_decommission(of.client, "b1")
        assert await read_decommission_progress(of.client, "b1") is not None


async def test_unreadable_ledger_id_counter_raises_an_error_with_its_path() -> None:
    async with Scene(bookies=3) as of:
        await of.store.put(paths.LEDGER_IDS, no_message(of), ABSENT)
        with pytest.raises(ForeignValue, match="'/ledger-ids' is not a valid LedgerIdCounter"):
            await of.client.ledgers.last_ledger_id()
        with pytest.raises(ForeignValue, match="'/ledger-ids' is not a valid LedgerIdCounter"):
            await of.writer()


async def test_garbage_collector_continues_past_unreadable_metadata() -> None:
    async with Scene(bookies=3) as of:
        ledgers = [await of.ledger(1) for _ in range(2)]
        stored = await compare_and_set.read(of.store, paths.ledger(ledgers[0]))
        assert stored is not None
        await of.store.put(paths.ledger(ledgers[0]), b"not ours", stored.version)
        await of.client.delete(ledgers[1])
        bookie = of.bookies["b1"].bookie
        assert bookie is not None
        collector = GarbageCollector(bookie, of.clock, of.randomness)
        with logged() as messages:
            for _ in range(3):
                await of.over(collector.collect(of.client.ledgers))
        assert len(messages) == 1
        assert of.bookies["b1"].holds(ledgers[0], 0)
        assert not of.bookies["b1"].holds(ledgers[1], 0)


def test_metadata_of_an_open_ledger_name_bookies() -> None:
    message = ledger_pb2.LedgerMetadata(state=ledger_pb2.OPEN, ensemble_size=1, write_quorum=1, ack_quorum=1)
    with pytest.raises(LedgerError, match="name no bookies"):
        ledger_metadata.decode(message.SerializeToString())
