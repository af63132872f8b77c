"""A log that accepts no more entries: what is in it, whichever step of the termination is the broker's last."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import pytest

from magnetar_broker import paths
from magnetar_broker.errors import BrokerError, TopicUnloaded
from magnetar_broker.managed_ledger.log_entry import LogEntry
from magnetar_broker.managed_ledger.managed_ledger import ManagedLedger
from magnetar_broker.position import Position
from magnetar_metadata.errors import OutcomeUnknown, StoreFull
from magnetar_metadata.store import Change
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_testing.metadata import MemoryStore
from magnetar_testing.metadata.server import Fault
from tests.unit.broker.log_scene import TOPIC, Scene, numbered, payload, running_log_scene


def _payloads(entries: list[LogEntry]) -> list[bytes]:
    return [payload(one) for one in entries]


async def test_a_terminated_log_is_closed_at_its_last_entry_and_takes_no_other() -> None:
    """Durably, and what was appended before is decided first. Trims and truncation go on."""
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
    """The ledger that was being created is closed empty and deleted."""
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


def _check_faults_came(scene: Scene) -> None:
    session = scene.server.find_session(scene.store)
    assert session is not None
    assert session.faults == []


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
    _check_faults_came(scene)
    error = terminating.exception()
    assert error is None or isinstance(error, TopicUnloaded)
    return error is None, list(scene.outcomes.stored)


@pytest.mark.parametrize("fault", [Fault.LOSE_REQUEST, Fault.LOSE_ANSWER, Fault.HOLD_REQUEST])
@pytest.mark.parametrize("at", range(2))
async def test_a_lost_metadata_answer_neither_loses_an_entry_nor_admits_one_after_the_end(
    at: int, fault: Fault
) -> None:
    """The next owner finds the end where it was confirmed, behind all entries that were."""
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


async def test_a_termination_that_the_metadata_store_refuses_leaves_the_topic_as_it_was() -> None:
    """What waited is stored in order, and another attempt ends the topic behind it."""
    async with running_log_scene() as scene:
        log = await scene.open()
        await scene.append(log, *numbered(2))
        full = _FailingTermination(scene.store, lambda: StoreFull("the disk is full", paths.topic(TOPIC)))
        terminating = asyncio.create_task(log.terminate())
        await asyncio.sleep(0)
        scene.outcomes.append(log, *numbered(9, 2))
        await scene.wait(terminating.done)
        full.end()
        error = terminating.exception()
        assert isinstance(error, BrokerError)
        assert (error.code, "the disk is full" in str(error)) == (ErrorCode.METADATA_ERROR, True)
        await scene.append(log, *numbered(2, 11))
        assert [one for one, _ in scene.outcomes.stored] == numbered(13)
        assert await scene.patiently(log.terminate()) == log.last
        assert await scene.payloads(await scene.open(await scene.another())) == numbered(13)


@pytest.mark.parametrize("is_applied", [False, True])
async def test_a_termination_with_an_unknown_outcome_is_left_to_the_next_owner(is_applied: bool) -> None:
    """The broker reports neither that the topic is terminated nor that it is not; the next owner finds out."""
    async with running_log_scene() as scene:
        log = await scene.open()
        await scene.append(log, *numbered(2))
        failing = _FailingTermination(scene.store, lambda: OutcomeUnknown("no answer"), applies=is_applied)
        terminating = asyncio.create_task(_terminate_until_decided(log))
        await asyncio.sleep(0)
        scene.outcomes.append(log, b"waits")
        await scene.wait(lambda: terminating.done() and scene.outcomes.are_all_reported)
        failing.end()
        assert isinstance(terminating.exception(), TopicUnloaded)
        assert [type(error) for error in scene.outcomes.refused] == [TopicUnloaded]
        again = await scene.open(await scene.another())
        assert again.is_terminated == is_applied
        assert await scene.payloads(again) == numbered(2)
        scene.outcomes.append(again, b"late")
        await scene.decided()
        assert len(scene.outcomes.stored) == (2 if is_applied else 3)


async def _terminate_until_decided(log: ManagedLedger) -> None:
    while True:
        try:
            await log.terminate()
        except BrokerError as error:
            if error.code != ErrorCode.UNKNOWN_ERROR:
                raise
        else:
            return


class _FailingTermination:
    """Has the change of the topic's node fail, and all requests after it, until `end`."""

    def __init__(self, store: MemoryStore, make_error: Callable[[], Exception], *, applies: bool = False) -> None:
        self._store = store
        self._send = store.send_request
        self._make_error = make_error
        self._applies = applies
        self._has_begun = False
        store.send_request = self._fail  # type: ignore[method-assign]

    async def _fail(self, operation: Any, path: str = "", changes: Sequence[Change] = ()) -> Any:
        if not self._has_begun and any(one.path == paths.topic(TOPIC) for one in changes):
            self._has_begun = True
            if self._applies:
                await self._send(operation, path, changes)
        if self._has_begun:
            raise self._make_error()
        return await self._send(operation, path, changes)

    def end(self) -> None:
        assert self._has_begun
        self._store.send_request = self._send  # type: ignore[method-assign]


async def test_a_termination_does_not_wait_for_bookies_for_a_ledger() -> None:
    """The topic is terminated though no ledger can be created."""
    async with running_log_scene(bookies=1) as scene:
        log = await scene.open()
        scene.outcomes.append(log, b"waits")
        await scene.wait(lambda: "bookies" in log.waiting_for)
        last = await scene.patiently(log.terminate())
        assert (last.entry_id, log.waiting_for) == (-1, "")
        assert [error.code for error in scene.outcomes.refused] == [ErrorCode.TOPIC_TERMINATED]


async def test_a_termination_that_takes_long_reports_what_it_waits_for() -> None:
    """Its outcome is open, and it goes on."""
    async with running_log_scene() as scene:
        log = await scene.open()
        await scene.append(log, *numbered(2))
        scene.server.suspend(scene.store)
        terminating = asyncio.create_task(log.terminate())
        await scene.wait(terminating.done)
        error = terminating.exception()
        assert isinstance(error, BrokerError)
        assert error.code == ErrorCode.UNKNOWN_ERROR
        assert "is not terminated yet: the topic is being terminated" in str(error)
        assert "the topic is being terminated" in log.stats().waiting_for
        scene.server.resume(scene.store)
        await scene.wait(lambda: log.stats().waiting_for == "")
        assert log.is_terminated


@pytest.mark.parametrize("at", range(2))
async def test_a_broker_that_dies_while_it_terminates_leaves_one_end(at: int) -> None:
    """At each of its requests another broker opens the topic: an entry that was confirmed is in it, and the two
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
        _check_faults_came(scene)
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
