"""A log that accepts no more entries: what is in it, whichever step of the termination is the broker's last."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from magnetar_broker.errors import BrokerError, TopicUnloaded
from magnetar_broker.managed_ledger.log_entry import LogEntry
from magnetar_broker.position import Position
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_testing.metadata.server import Fault
from tests.unit.broker.log_scene import Scene, numbered, payload, running_log_scene


def _payloads(entries: list[LogEntry]) -> list[bytes]:
    return [payload(one) for one in entries]


async def test_a_terminated_log_is_closed_at_its_last_entry_and_takes_no_other() -> None:
    """TOP-2: durably, and what was appended before is decided first. Trims and truncation go on."""
    async with running_log_scene() as scene:
        log = await scene.open()
        await scene.append(log, *numbered(4))
        scene.outcomes.append(log, *numbered(9, 4))
        last = await scene.patiently(log.terminate())
        assert scene.outcomes.are_all_reported
        stored = [one for one, _ in scene.outcomes.stored]
        assert stored == numbered(len(stored))
        assert len(stored) >= 4
        assert len(stored) + len(scene.outcomes.refused) == 13
        assert (last, log.stats().state, log.next_index) == (log.last, "terminated", len(stored))
        assert last == scene.outcomes.stored[-1][1]
        assert await scene.patiently(log.terminate()) == last
        for opened in (log, await scene.open(await scene.another())):
            scene.outcomes.append(opened, b"late")
            await scene.decided()
            assert {error.code for error in scene.outcomes.refused} == {ErrorCode.TOPIC_TERMINATED}
            assert (opened.is_terminated, opened.last, opened.next_index) == (True, last, len(stored))
            assert opened.ledger_list.current_ledger is None
            opened.tick()
            assert await scene.payloads(opened) == stored
        await scene.patiently(opened.truncate())
        assert await scene.payloads(opened) == []
        assert await scene.patiently(opened.terminate()) == last
        await scene.every_ledger_is_accounted_for()


async def test_an_empty_log_can_be_terminated() -> None:
    async with running_log_scene() as scene:
        log = await scene.open()
        last = await scene.patiently(log.terminate())
        assert last.entry_id == -1
        assert log.stats().ledgers == ()
        again = await scene.open(await scene.another())
        assert again.is_terminated


async def test_entries_that_wait_for_a_ledger_are_refused_by_the_termination() -> None:
    """TOP-2: the ledger that was being created is closed empty and deleted."""
    async with running_log_scene() as scene:
        log = await scene.open()
        scene.outcomes.append(log, b"waits")
        await scene.patiently(log.terminate())
        assert [error.code for error in scene.outcomes.refused] == [ErrorCode.TOPIC_TERMINATED]
        await scene.idle()
        assert log.stats().ledgers == ()
        assert (log.next_index, log.pending_bytes) == (0, 0)
        await scene.every_ledger_is_accounted_for()


async def test_a_caller_that_is_cancelled_does_not_stop_the_termination() -> None:
    async with running_log_scene() as scene:
        log = await scene.open()
        await scene.append(log, *numbered(2))
        terminating = asyncio.create_task(log.terminate())
        await asyncio.sleep(0)
        terminating.cancel()
        await asyncio.gather(terminating, return_exceptions=True)
        await scene.wait(lambda: log.is_terminated)


def _clear_faults(scene: Scene) -> None:
    session = scene.server.find_session(scene.store)
    if session is not None:
        session.faults.clear()


async def _terminate_with_fault(scene: Scene, at: int, fault: Fault) -> tuple[bool, list[tuple[bytes, Position]]]:
    """Terminate while entries are appended. Return whether that was confirmed, and the stored entries."""
    log = await scene.open()
    await scene.append(log, *numbered(2))
    scene.server.queue_faults(scene.store, *[None] * at, fault)
    scene.outcomes.append(log, *numbered(6, 2))
    terminating = asyncio.create_task(log.terminate())

    def resumed() -> bool:
        if scene.store.session.state.name == "SUSPENDED":
            scene.server.resume(scene.store)
            scene.server.release(scene.store)
        return terminating.done() and scene.outcomes.are_all_reported

    await scene.wait(resumed)
    _clear_faults(scene)
    error = terminating.exception()
    assert error is None or isinstance(error, BrokerError)
    if error is not None and not isinstance(error, TopicUnloaded):
        # It was not done, so appending goes on.
        assert error.code == ErrorCode.METADATA_ERROR
        await scene.append(log, b"goes on")
    return error is None, list(scene.outcomes.stored)


@pytest.mark.parametrize("fault", [Fault.LOSE_REQUEST, Fault.LOSE_ANSWER, Fault.HOLD_REQUEST])
@pytest.mark.parametrize("at", range(4))
async def test_a_lost_metadata_answer_neither_loses_an_entry_nor_admits_one_after_the_end(
    at: int, fault: Fault
) -> None:
    """TOP-2: the next owner finds the end where it was confirmed, behind all entries that were."""
    async with running_log_scene() as scene:
        confirmed, stored = await _terminate_with_fault(scene, at, fault)
        again = await scene.open(await scene.another())
        found = await scene.read_all(again)
        assert _payloads(found)[: len(stored)] == [one for one, _ in stored]
        if confirmed:
            assert again.is_terminated
            assert [one.position for one in found] == [position for _, position in stored]
        last = await scene.patiently(again.terminate())
        assert last == found[-1].position
        refused = len(scene.outcomes.refused)
        await scene.append(again, b"late")
        assert scene.outcomes.refused[refused].code == ErrorCode.TOPIC_TERMINATED
        await scene.every_ledger_is_accounted_for()


@pytest.mark.parametrize("at", range(4))
async def test_a_broker_that_dies_while_it_terminates_leaves_one_end(at: int) -> None:
    """TOP-2: at each of its requests another broker opens the topic: an entry that was confirmed is in it, and the two
    agree on the end."""
    async with running_log_scene() as scene:
        log = await scene.open()
        await scene.append(log, *numbered(2))
        scene.server.queue_faults(scene.store, *[None] * at, Fault.HOLD_REQUEST)
        scene.outcomes.append(log, *numbered(6, 2))
        terminating = asyncio.create_task(log.terminate())
        await scene.idle()
        another = await scene.another()
        again = await scene.open(another)
        scene.outcomes.append(again, b"of the next owner")
        _clear_faults(scene)
        scene.server.resume(scene.store)
        scene.server.release(scene.store)
        await scene.wait(lambda: terminating.done() and scene.outcomes.are_all_reported)
        stored = [one for one, _ in scene.outcomes.stored]
        found = await scene.payloads(again)
        assert set(stored) <= set(found)
        if terminating.exception() is None:
            assert again.is_terminated
            assert b"of the next owner" not in found
        else:
            assert isinstance(terminating.exception(), TopicUnloaded)
            assert again.is_terminated or b"of the next owner" in stored
        with suppress(BrokerError):
            await scene.patiently(log.terminate())
