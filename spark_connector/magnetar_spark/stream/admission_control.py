"""How far a micro-batch goes in each log, so that it keeps to its limits as a whole.

The limits are dealt out by shares.py, and each log is planned up to its share. Plans say how much there is behind them,
so what some could not use is dealt out to the others, and their plans are continued. Where there are fewer messages to
read than logs, as many logs as there are messages are asked at a time, going round from micro-batch to micro-batch.

A plan's first message always fits (else a message larger than the limit would never be read), so a batch can pass
`max_bytes` by one message of each log.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from magnetar.admin import NextMessage
from magnetar_spark.planning.log_plan import Limits, LogPlan, Planner
from magnetar_spark.shares import equal_parts, shares_of_rest
from magnetar_spark.some_at_a_time import some_at_a_time

__all__ = ["Admission"]

# The rest is dealt out so often at most: what is left then is left to the next micro-batch.
_ROUNDS: Final = 4


class Admission:
    """`plan` makes the first plan of a log, within limits; None if there is nothing to plan. `stop` says up to where a
    log may be read, None: up to its end."""

    def __init__(
        self,
        planner: Planner,
        plan: Callable[[str, Limits], Awaitable[LogPlan | None]],
        stop: Callable[[str], NextMessage | None],
    ) -> None:
        self._planner = planner
        self._plan = plan
        self._stop = stop
        self._turn = 0

    async def admit(self, logs: Sequence[str], limits: Limits) -> dict[str, LogPlan]:
        if not logs:
            return {}
        if not limits.messages and not limits.bytes:
            return await self._plan_all(dict.fromkeys(logs, limits))
        plans = await self._first_plans(logs, limits)
        for _ in range(_ROUNDS):
            if not await self._deal_out_rest(plans, limits):
                break
        return plans

    async def _first_plans(self, logs: Sequence[str], limits: Limits) -> dict[str, LogPlan]:
        """As many as the limits have room for, each within an equal part of them."""
        plans: dict[str, LogPlan] = {}
        self._turn += 1
        turn = self._turn % len(logs)
        waiting = [*logs[turn:], *logs[:turn]]
        while waiting:
            rest = limits.less(*_sum(plans))
            if rest is None:
                break
            now = waiting[: rest.messages] if rest.messages else waiting
            waiting = waiting[len(now) :]
            messages = equal_parts(now, rest.messages) if rest.messages else {}
            bytes_ = equal_parts(now, rest.bytes) if rest.bytes else {}
            plans |= await self._plan_all(
                {log: Limits(messages.get(log, 0), max(1, bytes_.get(log, 0)) if rest.bytes else 0) for log in now}
            )
        return plans

    async def _plan_all(self, shares: dict[str, Limits]) -> dict[str, LogPlan]:
        planned = await some_at_a_time(lambda share: self._plan(*share), list(shares.items()))
        return {log: plan for log, plan in zip(shares, planned, strict=True) if plan is not None}

    async def _deal_out_rest(self, plans: dict[str, LogPlan], limits: Limits) -> bool:
        """False: there was nothing to deal out, or nobody to take it."""
        rest = limits.less(*_sum(plans))
        behind = {log: plan.messages_behind for log, plan in plans.items() if self._goes_on(plan)}
        if rest is None or not behind:
            return False
        messages = shares_of_rest(behind, rest.messages) if rest.messages else {}
        bytes_ = shares_of_rest({log: rest.bytes * have for log, have in behind.items()}, rest.bytes)
        shares = []
        for log in behind:
            share = Limits(messages.get(log, 0), bytes_.get(log, 0))
            # Less than another message would be passed by that message, and no share must not be taken for no limit.
            too_few = rest.messages and not share.messages
            too_small = rest.bytes and share.bytes < max(1, plans[log].bytes // max(1, plans[log].messages))
            if not too_few and not too_small:
                shares.append((plans[log], share))
        before = _sum(plans)
        await some_at_a_time(lambda one: self._planner.extend(one[0], self._stop(one[0].log), one[1]), shares)
        return _sum(plans) != before

    def _goes_on(self, plan: LogPlan) -> bool:
        stop = self._stop(plan.log)
        return plan.messages_behind > 0 and plan.stop < plan.end and (stop is None or plan.stop < stop)


def _sum(plans: dict[str, LogPlan]) -> tuple[int, int]:
    return sum(plan.messages for plan in plans.values()), sum(plan.bytes for plan in plans.values())
