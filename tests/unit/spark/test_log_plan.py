"""What a plan knows of what is in front of it: whether the beginning of a message in chunks can be there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from magnetar.admin import AsyncAdmin, MessagePosition, Piece, Plan
from magnetar_spark.leases.lease import create_lease
from magnetar_spark.planning.log_plan import LogPlanner

START = MessagePosition(9, 3, 1)
ANSWER = Plan("i", START, START, (), {}, 0, 0, False, False, START, START, 0, 0, True)


def a_piece(ledger_id: int, first: int) -> Piece:
    return Piece(ledger_id, first, 20, 0, 0, 100, 10, 1, 1, 1, ())


class Answers:
    """Stands for an administrator's client."""

    def __init__(self, answer: Plan) -> None:
        self.reading = self
        self._answer = answer

    async def plan(self, *_: Any, **__: Any) -> Plan:
        return self._answer


@pytest.mark.parametrize(
    ("first", "before", "entered", "more"),
    [
        (MessagePosition(5, 0), [a_piece(8, 0), a_piece(9, 0)], None, True),
        (MessagePosition(8, 0), [a_piece(8, 0), a_piece(9, 0)], None, False),
        # The range begins within the first message's entry, or at it.
        (MessagePosition(9, 3), [], None, False),
        (MessagePosition(9, 2), [], None, True),
        # What the query never had is not missed.
        (MessagePosition(5, 0), [a_piece(8, 0)], MessagePosition(8, 0), False),
        (MessagePosition(5, 0), [a_piece(8, 0)], MessagePosition(7, 9), True),
    ],
)
async def test_whether_there_is_more_than_may_be_looked_through(
    first: MessagePosition, before: list[Piece], entered: MessagePosition | None, more: bool
) -> None:
    """SPK-1"""
    answer = replace(ANSWER, first=first, before=before, pieces=[a_piece(9, 3)])
    planner = LogPlanner(cast(AsyncAdmin, Answers(answer)), create_lease(1000), "", "a test", "a test")
    assert (await planner.plan_range("t", "i", START, entered=entered)).more_before is more
