"""What a task asks of brokers: that its lease holds on, and where a ledger's entries are now."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from magnetar.admin import MessagePosition, Piece, PieceFragment, Plan
from magnetar.exceptions import ConnectError, NotFound, TopicNotFound
from magnetar_bookie.read.striping import Fragment, Striping
from magnetar_spark.errors import NotReadNow
from magnetar_spark.leases.batch_lease import BatchLease, get_renewal_times
from magnetar_spark.leases.lease import create_shared_lease
from magnetar_spark.log_slice import Connection, LogSlice
from magnetar_spark.task.broker_client import BrokerClient
from magnetar_spark.task.entry_prefetch import Deletion, EntryLocations
from tests.running import GENEROUS_S, until

SLICE = LogSlice("t", 1, "t-partition-1", "i1", (), (), {}, None, Connection("u", ""), True)
START = MessagePosition(0, 0, 0)
PIECE = Piece(7, 4, 9, 0, 0, 100, 10, 3, 2, 2, (PieceFragment(0, ("b1", "b2", "b3")),))
PLAN = Plan("i1", START, START, (PIECE,), {"b1": "h:1"}, 0, 0, False, False, START, START, 0, 0, False)


class Broker:
    """Stands for an administrator's client and the brokers behind it."""

    def __init__(self) -> None:
        self.reading = self
        self.renewals: list[tuple[str, str, bytes, int]] = []
        self.renewed_reads: set[bytes] = set()
        self.finished: list[tuple[str, bytes, bytes, int, int]] = []
        self.plans: list[tuple[MessagePosition, MessagePosition]] = []
        self.answer: Plan | Exception = PLAN
        self.refusal: Exception | None = None
        self.hangs = False
        self.closed = False

    async def renew_lease(self, *fields: Any, read_id: bytes) -> None:
        self.renewals.append(fields)
        self.renewed_reads.add(read_id)
        if self.hangs:
            await asyncio.Event().wait()
        if self.refusal is not None:
            raise self.refusal

    async def plan(
        self, log: str, *, incarnation: str, start: MessagePosition, stop: MessagePosition, **_: Any
    ) -> Plan:
        assert (log, incarnation) == ("t-partition-1", "i1")
        self.plans.append((start, stop))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def finish_part(self, *fields: Any) -> None:
        self.finished.append(fields)
        if self.hangs:
            await asyncio.Event().wait()
        if self.refusal is not None:
            raise self.refusal

    async def close(self) -> None:
        self.closed = True

    def of(self, log_slice: LogSlice) -> BrokerClient:
        return BrokerClient(log_slice, lambda: self)  # type: ignore[arg-type, return-value]


def leased(lease_ms: int, planned_s_ago: float = 0.0, logs: int = 3) -> LogSlice:
    """One of partition 1's, of a query over some partitions."""
    names = [f"t-partition-{index}" for index in range(logs)]
    return replace(SLICE, lease=BatchLease.create(create_shared_lease(lease_ms), time.time() - planned_s_ago, names))


def times(broker: Broker) -> Counter[str]:
    return Counter(log for log, *_ in broker.renewals)


async def test_the_leases_on_all_logs_of_the_query_are_renewed_as_long_as_the_task_reads() -> None:
    """SPK-5: a batch's tasks renew its leases while they read, those of logs whose tasks wait in line, too; one that
    could not be renewed is tried again."""
    broker = Broker()
    one = leased(30)
    assert one.lease is not None
    reading = broker.of(one)
    reading.start_renewals()
    await until(lambda: len(times(broker)) == 3 and min(times(broker).values()) >= 3, "they were renewed")
    broker.refusal = ConnectError("nobody is there")
    count = times(broker)
    await until(lambda: min((times(broker) - count).values(), default=0) >= 3, "they were tried again")
    await reading.close()
    assert broker.closed
    assert {fields[1:] for fields in broker.renewals} == {("", one.lease.lease.lease_id, 30)}
    assert broker.renewed_reads == {one.lease.lease.read_id}
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_tasks_that_are_over_in_a_moment_renew_them_one_after_the_other() -> None:
    """SPK-5: more logs than one of them has the time for, long after the planning; and none of them twice"""
    broker = Broker()
    one = leased(3_600_000, planned_s_ago=1_000.0, logs=500)
    tasks = 0
    async with asyncio.timeout(GENEROUS_S):
        while len(times(broker)) < 500 or tasks < 50:
            reading = broker.of(one)
            reading.start_renewals()
            await asyncio.sleep(0)
            await reading.close()
            tasks += 1
    assert set(times(broker).values()) == {1}


async def test_hanging_lease_renewal_does_not_delay_close_and_is_repeated() -> None:
    broker = Broker()
    broker.hangs = True
    one = leased(3_000, planned_s_ago=10.0, logs=1)
    reading = broker.of(one)
    reading.start_renewals()
    await until(lambda: bool(broker.renewals), "it was requested")
    await reading.close()
    broker.hangs = False
    following = broker.of(one)
    following.start_renewals()
    await until(lambda: len(broker.renewals) >= 2, "it is fields again")
    await following.close()


async def test_new_lease_is_renewed_within_an_interval_despite_clock_skew() -> None:
    now = asyncio.get_running_loop().time()
    for planned_s_ago, earliest, latest in ((0.0, 0, 600), (-5_000.0, 0, 600), (900.0, -900, -300)):
        held = leased(3_600_000, planned_s_ago, logs=100).lease
        assert held is not None
        due = get_renewal_times(held)
        assert due is get_renewal_times(held)
        # All but what this took.
        assert all(earliest - 1 <= at - now <= latest + GENEROUS_S for at in due.values())
        assert len(set(due.values())) > 50


async def test_two_batches_of_a_driver_renew_each_for_itself() -> None:
    """They share a lease, and each is renewed in the times of its own planning."""
    one, other = leased(60_000).lease, leased(60_000).lease
    assert one is not None
    assert other is not None
    assert one.lease.lease_id == other.lease.lease_id

    assert get_renewal_times(one) is not get_renewal_times(other)


@pytest.mark.parametrize("trouble", ["none", "hangs", "refused"])
async def test_read_slice_is_reported_even_if_the_report_fails(trouble: str) -> None:
    """SPK-5: a batch whose slices are all read gives its lease back. The task does not depend on that."""
    broker = Broker()
    broker.hangs = trouble == "hangs"
    broker.refusal = ConnectError("nobody is there") if trouble == "refused" else None
    one = replace(leased(3_600_000), part=2, parts=7)
    assert one.lease is not None
    reading = broker.of(one)
    await reading.report_slice_read()
    await reading.close()
    lease = one.lease.lease
    assert broker.finished == [("t-partition-1", lease.lease_id, lease.read_id, 2, 7)]


async def test_a_stream_s_lease_is_left_to_its_driver() -> None:
    broker = Broker()
    reading = broker.of(SLICE)
    reading.start_renewals()
    await asyncio.sleep(0.01)
    await reading.report_slice_read()
    await reading.close()
    assert not broker.renewals
    assert not broker.finished
    assert not broker.closed  # there was none


async def test_ended_lease_is_logged_once_and_reading_continues(caplog: pytest.LogCaptureFixture) -> None:
    async def body() -> None:
        broker = Broker()
        broker.refusal = NotFound("it has ended")
        one = leased(30, logs=1)
        for _ in range(2):
            reading = broker.of(one)
            reading.start_renewals()
            await until(lambda: "has ended" in caplog.text, "it was logged")
            await asyncio.sleep(0.01)
            assert len(broker.renewals) == 1
            assert isinstance(await reading.locate_entries(7, 4, 9), EntryLocations)
            await reading.close()

    with caplog.at_level(logging.WARNING):
        await body()


async def test_new_plan_returns_the_current_locations_of_entries() -> None:
    broker = Broker()
    reading = broker.of(SLICE)
    where = await reading.locate_entries(7, 2, 9)
    assert where == EntryLocations(Striping(3, 2, 2), [Fragment(0, ("b1", "b2", "b3"))], {"b1": "h:1"}, 4)
    assert broker.plans == [(MessagePosition(7, 2, 0), MessagePosition(7, 10, 0))]
    # If the topic was deleted or recreated, the plan does not show what became of the ledger.
    broker.answer = replace(PLAN, pieces=())
    assert await reading.locate_entries(7, 2, 9) is Deletion.LEDGER
    for deleted in (replace(PLAN, other_incarnation=True), TopicNotFound("t")):
        broker.answer = deleted
        assert await reading.locate_entries(7, 2, 9) is Deletion.TOPIC
    broker.answer = ConnectError("nobody is there")
    with pytest.raises(NotReadNow, match="nobody is there"):
        await reading.locate_entries(7, 2, 9)
    await reading.close()
