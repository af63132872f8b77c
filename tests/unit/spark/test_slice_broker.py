"""What a task asks of brokers: that its lease holds on, and where a ledger's entries are now."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import Any

import pytest

from magnetar.admin import NextMessage, Piece, PieceFragment, Plan
from magnetar.exceptions import ConnectError, NotFound, TopicNotFound
from magnetar_bookie.read.striping import Fragment, Striping
from magnetar_spark.entry_runs import Deleted, Whereabouts
from magnetar_spark.errors import NotReadNow
from magnetar_spark.log_slice import Connection, Lease, LogSlice
from magnetar_spark.slice_broker import SliceBroker
from tests.running import run, until

SLICE = LogSlice("t", 1, "t-partition-1", "i1", (), (), {}, Lease(b"l" * 16, 3_000, 0.001), Connection("u", ""), True)
ASKED = NextMessage(0, 0, 0)
PIECE = Piece(7, 4, 9, 0, 0, 100, 10, 3, 2, 2, (PieceFragment(0, ("b1", "b2", "b3")),))
PLAN = Plan("i1", ASKED, ASKED, (PIECE,), {"b1": "h:1"}, 0, 0, False, False, ASKED, ASKED, 0, 0, False)


class Broker:
    """Stands for an administrator's client and the brokers behind it."""

    def __init__(self) -> None:
        self.reading = self
        self.renewals: list[tuple[str, str, bytes, int]] = []
        self.plans: list[tuple[NextMessage, NextMessage]] = []
        self.answer: Plan | Exception = PLAN
        self.refusal: Exception | None = None
        self.closed = False

    async def renew_lease(self, *asked: Any) -> None:
        self.renewals.append(asked)
        if self.refusal is not None:
            raise self.refusal

    async def plan(self, log: str, *, incarnation: str, start: NextMessage, stop: NextMessage, **_: Any) -> Plan:
        assert (log, incarnation) == ("t-partition-1", "i1")
        self.plans.append((start, stop))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def close(self) -> None:
        self.closed = True

    def of(self, log_slice: LogSlice) -> SliceBroker:
        return SliceBroker(log_slice, lambda: self)  # type: ignore[arg-type, return-value]


def test_a_lease_is_renewed_as_long_as_the_task_reads() -> None:
    """SPK-5: a batch's tasks renew its lease while they read; one that could not be renewed is tried again."""

    async def body() -> None:
        broker = Broker()
        reading = broker.of(SLICE)
        reading.keep_lease()
        await until(lambda: len(broker.renewals) >= 3, "it was renewed")
        broker.refusal = ConnectError("nobody is there")
        count = len(broker.renewals)
        await until(lambda: len(broker.renewals) >= count + 3, "it was tried again")
        await reading.close()
        assert broker.closed
        assert broker.renewals[0] == ("t-partition-1", "i1", b"l" * 16, 3_000)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run(body())


def test_the_driver_s_own_lease_is_left_to_it() -> None:
    async def body() -> None:
        broker = Broker()
        for one in (replace(SLICE, lease=None), replace(SLICE, lease=Lease(b"l" * 16, 3_000, 0))):
            reading = broker.of(one)
            reading.keep_lease()
            await asyncio.sleep(0.01)
            await reading.close()
        assert not broker.renewals
        assert not broker.closed  # there was none

    run(body())


def test_a_lease_that_has_ended_is_told_of_once_and_reading_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    async def body() -> None:
        broker = Broker()
        broker.refusal = NotFound("it has ended")
        reading = broker.of(SLICE)
        reading.keep_lease()
        await until(lambda: "has ended" in caplog.text, "it was told")
        await asyncio.sleep(0.01)
        assert len(broker.renewals) == 1
        assert isinstance(await reading.new_plan(7, 4, 9), Whereabouts)
        await reading.close()

    with caplog.at_level(logging.WARNING):
        run(body())


def test_a_new_plan_says_where_entries_are_now() -> None:
    async def body() -> None:
        broker = Broker()
        reading = broker.of(SLICE)
        where = await reading.new_plan(7, 2, 9)
        assert where == Whereabouts(Striping(3, 2, 2), [Fragment(0, ("b1", "b2", "b3"))], {"b1": "h:1"}, 4)
        assert broker.plans == [(NextMessage(7, 2, 0), NextMessage(7, 10, 0))]
        # Of a topic that is gone, or is another one now, it says nothing of the ledger.
        broker.answer = replace(PLAN, pieces=())
        assert await reading.new_plan(7, 2, 9) is Deleted.LEDGER
        for gone in (replace(PLAN, other_incarnation=True), TopicNotFound("t")):
            broker.answer = gone
            assert await reading.new_plan(7, 2, 9) is Deleted.TOPIC
        broker.answer = ConnectError("nobody is there")
        with pytest.raises(NotReadNow, match="nobody is there"):
            await reading.new_plan(7, 2, 9)
        await reading.close()

    run(body())
