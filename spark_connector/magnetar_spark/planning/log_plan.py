"""What a broker says about a range of a log, put together from as many of its answers as that takes.

An answer is bounded, so a long range is planned piece by piece. The first question takes the lease, from the range's
beginning on; those behind it take none, since theirs would move it on to where they begin. A lease can be over all the
same when the next one is asked, and the topic can be another one: so each answer is looked at as the first one is, and
the plan says what is missing in its middle, and whether it ends since its topic does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from magnetar.admin.reading import NextMessage, Piece, Plan
from magnetar_spark.chunk_reach import REACH_BYTES, REACH_LEDGERS
from magnetar_spark.leases.batch_lease import Lease
from magnetar_spark.leases.lease import LeaseCalls
from magnetar_spark.planning.offset_resolution import check_not_beyond_end

if TYPE_CHECKING:
    from magnetar.admin import AsyncAdmin

__all__ = ["EARLIEST_PLACE", "Limits", "LogPlan", "Planner"]

EARLIEST_PLACE: Final = NextMessage(0, 0, 0)


@dataclass(frozen=True, slots=True)
class Limits:
    """0: none."""

    messages: int = 0
    bytes: int = 0

    def less(self, messages: int, bytes_: int) -> Limits | None:
        """What is left of them; None: nothing is."""
        if (self.messages and messages >= self.messages) or (self.bytes and bytes_ >= self.bytes):
            return None
        return Limits(
            self.messages - messages if self.messages else 0,
            self.bytes - bytes_ if self.bytes else 0,
        )


@dataclass(slots=True)
class LogPlan:
    """A range of a log, all of it planned: what `plan` answered, one answer behind the other."""

    log: str
    incarnation: str
    # Where it was to begin, and where it does: behind that, if what was there is deleted.
    asked: NextMessage
    start: NextMessage
    stop: NextMessage
    messages: int
    bytes: int
    messages_behind: int
    first: NextMessage
    # As it was when the range was planned first: what came later is behind it.
    end: NextMessage
    # The index that the log's next message will have.
    end_index: int
    # The topic is another one, from the beginning of the range or from `stop` on.
    other_incarnation: bool
    retained: bool
    before: Sequence[Piece]
    # What was right in front of `before` was deleted, and there may have been chunks of messages that are in the range.
    chunks_deleted: bool
    # There is more of the query's in front of `before` than was asked for.
    more_before: bool
    # Nothing in front of this is needed by who reads from where it was to begin.
    needed_from: NextMessage
    pieces: list[Piece] = field(default_factory=list)
    bookies: dict[str, str] = field(default_factory=dict)
    # What of the range was deleted: from where to where.
    lost: list[tuple[NextMessage, NextMessage]] = field(default_factory=list)
    # The log does not begin with the first message of its topic any more.
    trimmed: bool = False

    def add(self, plan: Plan) -> None:
        """What was planned from `stop` on."""
        if plan.begins_in_deleted:
            self.lost.append((self.stop, plan.start))
        self.stop = max(self.stop, plan.stop)
        self.messages += plan.messages
        self.bytes += plan.bytes
        self.messages_behind = plan.messages_behind
        self.pieces += plan.pieces
        self.bookies.update(plan.bookies)


class Planner:
    def __init__(self, admin: AsyncAdmin, lease: Lease, listener_name: str, holder: str, origin: str) -> None:
        """`origin`: what gives the positions to plan from and up to, as errors name it."""
        self._admin = admin
        self._origin = origin
        self._lease = lease
        self._listener_name = listener_name
        self._holder = holder
        self._calls = LeaseCalls()
        # Logs whose lease was asked for. It may have been taken though no answer came.
        self.asked: dict[str, None] = {}

    async def settle(self) -> None:
        """Waits for calls whose caller was cancelled, since these may still take a lease."""
        await self._calls.settle()

    async def plan(
        self,
        log: str,
        incarnation: str,
        start: NextMessage,
        stop: NextMessage | None = None,
        limits: Limits | None = None,
        entered: NextMessage | None = None,
    ) -> LogPlan:
        """From `start`, held by the lease, up to `stop`, the log's end as it is now, or the limits. `entered`: what was
        in front of it was gone before the query began."""
        limits = limits or Limits()
        self.asked[log] = None
        answer = await self._calls.run(
            self._admin.reading.plan(
                log,
                incarnation=incarnation,
                start=start,
                stop=stop,
                max_messages=limits.messages,
                max_bytes=limits.bytes,
                lease_ms=self._lease.lease_ms,
                lease_id=self._lease.lease_id,
                holder=self._holder,
                listener_name=self._listener_name,
                before_ledgers=REACH_LEDGERS,
                before_bytes=REACH_BYTES,
                read_id=self._lease.read_id,
            )
        )
        if not answer.other_incarnation:
            check_not_beyond_end(log, max(start, stop or start), answer.end, self._origin)
        reached = _reached(answer)
        planned = LogPlan(
            log=log,
            incarnation=answer.incarnation,
            asked=start,
            start=answer.start,
            stop=answer.stop,
            messages=answer.messages,
            bytes=answer.bytes,
            messages_behind=answer.messages_behind,
            first=answer.first,
            end=answer.end,
            end_index=answer.end_index,
            other_incarnation=answer.other_incarnation,
            retained=answer.retained,
            before=answer.before,
            chunks_deleted=answer.deleted_before and (entered is None or reached > entered),
            more_before=reached > answer.first and (entered is None or reached > entered),
            trimmed=answer.trimmed,
            needed_from=answer.needed_from if start == EARLIEST_PLACE else min(start, answer.needed_from),
            pieces=list(answer.pieces),
            bookies=dict(answer.bookies),
            lost=[(start, answer.start)] if answer.begins_in_deleted else [],
        )
        if not answer.other_incarnation and not answer.at_limit:
            await self.extend(planned, stop, limits.less(answer.messages, answer.bytes))
        return planned

    async def extend(self, planned: LogPlan, stop: NextMessage | None, limits: Limits | None) -> None:
        """Goes on where it ends, by at most so much more."""
        to = planned.end if stop is None else min(stop, planned.end)
        while limits is not None and planned.stop < to:
            answer = await self._admin.reading.plan(
                planned.log,
                incarnation=planned.incarnation,
                start=planned.stop,
                stop=to,
                max_messages=limits.messages,
                max_bytes=limits.bytes,
                listener_name=self._listener_name,
            )
            if answer.other_incarnation:
                planned.other_incarnation = True
                return
            if answer.stop <= planned.stop:
                return
            planned.add(answer)
            if answer.at_limit:
                # By bytes; what is left of the limit holds no further entry, and a plan's first always fits.
                return
            limits = limits.less(answer.messages, answer.bytes)


def _reached(answer: Plan) -> NextMessage:
    """The first place that is known of."""
    for piece in (*answer.before, *answer.pieces):
        return NextMessage(piece.ledger_id, piece.first_entry_id, 0)
    return answer.start
