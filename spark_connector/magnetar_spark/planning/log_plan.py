"""Plans: which entries of a log are in a range, and which bookies store them, as the log's broker reports it.

An answer of a broker is bounded, so a long range is planned by several requests. The first one takes the lease, from
the range's start on. The others take none, since that would move the lease forward to where they begin. The lease may
end between two requests, and the topic may be deleted and recreated, so each answer is checked like the first one. The
plan has the deleted ranges, and whether it ends where the topic's incarnation changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from magnetar.admin.reading import MessagePosition, Piece, Plan
from magnetar_spark.leases.lease import Lease, LeaseRequests
from magnetar_spark.options.decoding_options import CHUNK_SEARCH_BYTES, CHUNK_SEARCH_LEDGERS
from magnetar_spark.planning.offset_resolution import check_not_beyond_end

if TYPE_CHECKING:
    from magnetar.admin import AsyncAdmin

__all__ = ["EARLIEST_POSITION", "LogPlan", "LogPlanner", "PlanLimits"]

EARLIEST_POSITION: Final = MessagePosition(0, 0, 0)


@dataclass(frozen=True, slots=True)
class PlanLimits:
    """The maximum size of a range; 0: no limit."""

    messages: int = 0
    bytes: int = 0

    def subtract(self, messages: int, bytes_: int) -> PlanLimits | None:
        """Return what is left of the limits; None: one of them is used up."""
        if (self.messages and messages >= self.messages) or (self.bytes and bytes_ >= self.bytes):
            return None
        return PlanLimits(
            self.messages - messages if self.messages else 0,
            self.bytes - bytes_ if self.bytes else 0,
        )


@dataclass(slots=True)
class LogPlan:
    """The plan of a range, from one or more answers of the broker."""

    log: str
    incarnation: str
    # The requested start, and the first position that is planned: it is later if messages were deleted.
    requested_start: MessagePosition
    start: MessagePosition
    stop: MessagePosition
    messages: int
    bytes: int
    messages_behind: int
    first: MessagePosition
    # The log's end in the first answer.
    end: MessagePosition
    # The index that the log's next message will have.
    end_index: int
    # The topic has another incarnation, from the start of the range or from `stop` on.
    other_incarnation: bool
    retained: bool
    before: Sequence[Piece]
    # Entries right before `before` were deleted. They may have had chunks of messages in the range.
    chunks_deleted: bool
    # There are entries of the query before `before`, which were not requested.
    more_before: bool
    # A reader that begins at the requested start needs nothing before this position.
    needed_from: MessagePosition
    pieces: list[Piece] = field(default_factory=list)
    bookies: dict[str, str] = field(default_factory=dict)
    # The deleted parts of the range: first and following position.
    lost: list[tuple[MessagePosition, MessagePosition]] = field(default_factory=list)
    # The first messages of the topic were deleted.
    trimmed: bool = False

    def append(self, plan: Plan) -> None:
        """Add the plan of a range that begins at `stop`."""
        if plan.begins_in_deleted:
            self.lost.append((self.stop, plan.start))
        self.stop = max(self.stop, plan.stop)
        self.messages += plan.messages
        self.bytes += plan.bytes
        self.messages_behind = plan.messages_behind
        self.pieces += plan.pieces
        self.bookies.update(plan.bookies)


class LogPlanner:
    def __init__(self, admin: AsyncAdmin, lease: Lease, listener_name: str, holder: str, origin: str) -> None:
        """`origin`: where the requested positions are from, for errors."""
        self._admin = admin
        self._origin = origin
        self._lease = lease
        self._listener_name = listener_name
        self._holder = holder
        self._requests = LeaseRequests()
        # Logs whose lease was requested. It may be taken although no answer arrived.
        self.requested_logs: dict[str, None] = {}

    async def wait_settled(self) -> None:
        """Wait for requests whose caller was cancelled, since they may still take a lease."""
        await self._requests.wait_settled()

    async def plan_range(
        self,
        log: str,
        incarnation: str,
        start: MessagePosition,
        stop: MessagePosition | None = None,
        limits: PlanLimits | None = None,
        entered: MessagePosition | None = None,
    ) -> LogPlan:
        """Plan from `start`, which the lease retains from then on, to `stop`, the log's current end, or the limits.
        `entered`: messages before this position were deleted before the query began."""
        limits = limits or PlanLimits()
        self.requested_logs[log] = None
        answer = await self._requests.send(
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
                before_ledgers=CHUNK_SEARCH_LEDGERS,
                before_bytes=CHUNK_SEARCH_BYTES,
                read_id=self._lease.read_id,
            )
        )
        if not answer.other_incarnation:
            check_not_beyond_end(log, max(start, stop or start), answer.end, self._origin)
        first_known = _find_first_position(answer)
        plan = LogPlan(
            log=log,
            incarnation=answer.incarnation,
            requested_start=start,
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
            chunks_deleted=answer.deleted_before and (entered is None or first_known > entered),
            more_before=first_known > answer.first and (entered is None or first_known > entered),
            trimmed=answer.trimmed,
            needed_from=answer.needed_from if start == EARLIEST_POSITION else min(start, answer.needed_from),
            pieces=list(answer.pieces),
            bookies=dict(answer.bookies),
            lost=[(start, answer.start)] if answer.begins_in_deleted else [],
        )
        if not answer.other_incarnation and not answer.at_limit:
            await self.extend_plan(plan, stop, limits.subtract(answer.messages, answer.bytes))
        return plan

    async def extend_plan(self, plan: LogPlan, stop: MessagePosition | None, limits: PlanLimits | None) -> None:
        """Continue the plan at its end, up to `stop` and within the limits. None: nothing is left of the limits."""
        to = plan.end if stop is None else min(stop, plan.end)
        while limits is not None and plan.stop < to:
            answer = await self._admin.reading.plan(
                plan.log,
                incarnation=plan.incarnation,
                start=plan.stop,
                stop=to,
                max_messages=limits.messages,
                max_bytes=limits.bytes,
                listener_name=self._listener_name,
            )
            if answer.other_incarnation:
                plan.other_incarnation = True
                return
            if answer.stop <= plan.stop:
                return
            plan.append(answer)
            if answer.at_limit:
                # The limit of bytes: the next entry exceeds what is left of it, but as the first of a plan it would
                # be accepted.
                return
            limits = limits.subtract(answer.messages, answer.bytes)


def _find_first_position(answer: Plan) -> MessagePosition:
    """Return the first position in the answer's pieces."""
    piece = next(iter((*answer.before, *answer.pieces)), None)
    return answer.start if piece is None else MessagePosition(piece.ledger_id, piece.first_entry_id, 0)
