"""How much a micro-batch reads of each log, so that it keeps its limits in total, and whether it waits for more.

**Maximum** (`maxMessagesPerTrigger`, `maxBytesPerTrigger`). Each log gets an equal share of the limits and is planned
up to it, so none starves behind a log with many messages. Plans report how many messages follow them. What some logs
did not use is divided among the others in proportion to these numbers, and their plans are extended. If fewer messages
than logs may be read, as many logs as messages are planned, in turns from micro-batch to micro-batch.

A plan accepts its first message even if it exceeds the limit, since a message larger than the limit would otherwise
never be read. So a batch can exceed `maxBytesPerTrigger` by one message of each log.

**Minimum** (`minMessagesPerTrigger`, `maxTriggerDelay`). A micro-batch waits while fewer messages can be read, until
the first of them was seen `maxTriggerDelay` ago. So no message waits longer for others, and an empty topic starts no
timer. A query with `Trigger.AvailableNow` or `Trigger.Once` does not wait.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from magnetar.admin import MessagePosition
from magnetar_spark.broker_requests import gather_bounded
from magnetar_spark.planning.log_plan import LogPlan, LogPlanner, PlanLimits

__all__ = ["AdmissionControl", "TriggerDelay", "split_by_demand", "split_equally"]

# Maximum number of times that the rest is divided. What is left then is for the next micro-batch.
_MAX_ROUNDS: Final = 4


class AdmissionControl:
    def __init__(
        self,
        planner: LogPlanner,
        plan_log: Callable[[str, PlanLimits], Awaitable[LogPlan | None]],
        get_stop: Callable[[str], MessagePosition | None],
    ) -> None:
        """`plan_log` makes the first plan of a log within limits; None: there is nothing to plan. `get_stop` returns
        the position up to which a log may be read; None: up to its end."""
        self._planner = planner
        self._plan_log = plan_log
        self._get_stop = get_stop
        self._turn = 0

    async def plan_logs(self, logs: Sequence[str], limits: PlanLimits) -> dict[str, LogPlan]:
        """Return plans of the logs that are within the limits in total."""
        if not logs:
            return {}
        if not limits.messages and not limits.bytes:
            return await self._plan_shares(dict.fromkeys(logs, limits))
        plans = await self._plan_equally(logs, limits)
        for _ in range(_MAX_ROUNDS):
            if not await self._divide_rest(plans, limits):
                break
        return plans

    async def _plan_equally(self, logs: Sequence[str], limits: PlanLimits) -> dict[str, LogPlan]:
        """Plan as many logs as the limits allow, each within an equal share."""
        plans: dict[str, LogPlan] = {}
        self._turn += 1
        turn = self._turn % len(logs)
        waiting = [*logs[turn:], *logs[:turn]]
        while waiting:
            rest = limits.subtract(*_sum_sizes(plans))
            if rest is None:
                break
            now = waiting[: rest.messages] if rest.messages else waiting
            waiting = waiting[len(now) :]
            messages = split_equally(now, rest.messages) if rest.messages else {}
            bytes_ = split_equally(now, rest.bytes) if rest.bytes else {}
            plans |= await self._plan_shares(
                {log: PlanLimits(messages.get(log, 0), max(1, bytes_.get(log, 0)) if rest.bytes else 0) for log in now}
            )
        return plans

    async def _plan_shares(self, shares: dict[str, PlanLimits]) -> dict[str, LogPlan]:
        plans = await gather_bounded(lambda share: self._plan_log(*share), list(shares.items()))
        return {log: plan for log, plan in zip(shares, plans, strict=True) if plan is not None}

    async def _divide_rest(self, plans: dict[str, LogPlan], limits: PlanLimits) -> bool:
        """Extend the plans by the rest of the limits. Return whether one was extended."""
        rest = limits.subtract(*_sum_sizes(plans))
        behind = {log: plan.messages_behind for log, plan in plans.items() if self._has_more(plan)}
        if rest is None or not behind:
            return False
        messages = split_by_demand(behind, rest.messages) if rest.messages else {}
        bytes_ = split_by_demand({log: rest.bytes * count for log, count in behind.items()}, rest.bytes)
        shares = []
        for log in behind:
            share = PlanLimits(messages.get(log, 0), bytes_.get(log, 0))
            # The first message would exceed a share that is smaller than the log's average message. And a share of 0
            # would mean no limit.
            has_no_messages = rest.messages and not share.messages
            is_too_small = rest.bytes and share.bytes < max(1, plans[log].bytes // max(1, plans[log].messages))
            if not has_no_messages and not is_too_small:
                shares.append((plans[log], share))
        before = _sum_sizes(plans)
        await gather_bounded(lambda one: self._planner.extend_plan(one[0], self._get_stop(one[0].log), one[1]), shares)
        return _sum_sizes(plans) != before

    def _has_more(self, plan: LogPlan) -> bool:
        stop = self._get_stop(plan.log)
        return plan.messages_behind > 0 and plan.stop < plan.end and (stop is None or plan.stop < stop)


class TriggerDelay:
    """Whether a micro-batch waits for more messages."""

    def __init__(self, min_messages: int, max_delay_s: float) -> None:
        """`min_messages` 0: it never waits."""
        self._min_messages = min_messages
        self._max_delay_s = max_delay_s
        # When the first waiting message was seen; None: no message waits.
        self._since: float | None = None

    @property
    def is_enabled(self) -> bool:
        return self._min_messages > 0

    def should_wait(self, available: int, now: float) -> bool:
        if not available:
            self._since = None
            return False
        if self._since is None:
            self._since = now
        return available < self._min_messages and now - self._since < self._max_delay_s

    def end_wait(self, now: float) -> float:
        """Return for how many seconds the messages of the micro-batch that begins now have waited."""
        since, self._since = self._since, None
        return 0.0 if since is None else now - since


def split_equally(names: Sequence[str], amount: int) -> dict[str, int]:
    share, rest = divmod(amount, len(names))
    return {name: share + (number < rest) for number, name in enumerate(names)}


def split_by_demand(wanted: Mapping[str, int], amount: int) -> dict[str, int]:
    """Split the amount in proportion to what is wanted, and at most that. If more is wanted, all of it is split."""
    total = sum(wanted.values())
    if total <= amount:
        return dict(wanted)
    shares = {name: want * amount // total for name, want in wanted.items()}
    left = amount - sum(shares.values())
    for name, want in wanted.items():
        if left and shares[name] < want:
            shares[name] += 1
            left -= 1
    return shares


def _sum_sizes(plans: dict[str, LogPlan]) -> tuple[int, int]:
    return sum(plan.messages for plan in plans.values()), sum(plan.bytes for plan in plans.values())
