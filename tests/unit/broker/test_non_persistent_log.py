"""The log of a non-persistent topic: what is readable when, and the order of results."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from magnetar_broker.errors import BrokerError
from magnetar_broker.managed_ledger.log_entry import NewEntry
from magnetar_broker.position import Position
from magnetar_broker.topics.non_persistent.topic_log import NonPersistentLog
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_wire.clock import SystemClock
from magnetar_wire.topic_name import TopicName
from tests.produce_client import entry


def _log(max_pending_bytes: int = 1 << 20) -> NonPersistentLog:
    return NonPersistentLog(
        TopicName.parse("non-persistent://public/default/t"), b"e", max_pending_bytes, SystemClock()
    )


def _new(count: int, messages: int = 1) -> list[NewEntry]:
    return [NewEntry(entry(number), messages, messages if messages > 1 else 0) for number in range(count)]


async def test_entries_are_readable_only_while_they_are_offered() -> None:
    """(TOP-5) Those of one turn of the event loop together, in order; then they are out of memory."""
    log = _log()
    offered: list[list[Position]] = []

    def offer() -> None:
        read = log.read_nowait(log.first_after(log.before_first), 100, 1 << 20)
        offered.append([one.position for one in read])
        assert log.offered_messages == sum(one.messages for one in read)
        assert log.entries_between(log.before_first, log.last) == len(read)
        assert [one.position for one in log.read_nowait(log.last, 1, 1)] == [log.last]

    log.on_appended = offer
    results: list[Sequence[Position] | BrokerError] = []
    begin = log.last
    assert log.append(_new(2), results.append) == 2
    assert log.append(_new(1, messages=5), results.append) == 1
    assert (log.last, bool(log.pending_bytes), results) == (begin, True, [])
    await asyncio.sleep(0)
    expected = [Position(begin.ledger_id, number) for number in range(3)]
    assert offered == results == [expected]
    assert (log.before_first, log.last, log.next_index, log.pending_bytes) == (expected[-1], expected[-1], 7, 0)
    assert log.read_nowait(expected[0], 100, 1 << 20) == []
    assert await log.read_last_readable() is None


async def test_entries_above_the_bound_and_after_the_end_are_refused_in_order() -> None:
    log = _log(max_pending_bytes=1)
    results: list[tuple[str, Sequence[Position] | BrokerError]] = []
    assert log.append(_new(2), lambda result: results.append(("a", result))) == 1
    assert log.append(_new(1), lambda result: results.append(("b", result))) == 0
    log.abandon()
    assert log.append(_new(1), lambda result: results.append(("c", result))) == 0
    await asyncio.sleep(0)
    assert [(name, result.code if isinstance(result, BrokerError) else len(result)) for name, result in results] == [
        ("a", 1),
        ("a", ErrorCode.TOO_MANY_REQUESTS),
        ("b", ErrorCode.TOO_MANY_REQUESTS),
        ("c", ErrorCode.SERVICE_NOT_READY),
    ]
    assert log.stats().state == "ended"
