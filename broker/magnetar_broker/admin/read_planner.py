"""Plan reads of the range between two positions of a log: run the rule (managed_ledger/read_plan.py) on the entries
that it needs, and add the bookies of the chosen ledgers.

The lease is taken first, and then the log is read: so nothing can be deleted in between. Without a lease, the
plan is made again from the first entry that was not deleted.

A reader that follows a log plans from the end of its last plan. The boundary at that position is cached, so that the
next plan needs to read no entry; at the end of the log it reads neither the metadata store nor a bookie.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable, Generator
from functools import partial
from typing import Final, TypeVar

from magnetar_bookie.read.record import BadRecord, check_record, extract_entry
from magnetar_broker.admin.ledger_locations import LedgerLocation, LedgerLocations
from magnetar_broker.errors import BrokerError, DamagedEntry, LostEntry
from magnetar_broker.managed_ledger.chunk_lookback import (
    find_first_held,
    find_needed_start,
    is_all_deleted_before,
    plan_pieces_before,
)
from magnetar_broker.managed_ledger.entry_search import Boundary, EntryFacts
from magnetar_broker.managed_ledger.log_entry import decode_log_entry
from magnetar_broker.managed_ledger.lost_entry_facts import facts_of_lost
from magnetar_broker.managed_ledger.managed_ledger import ManagedLedger
from magnetar_broker.managed_ledger.message_position import MessagePosition, find_end, is_deleted
from magnetar_broker.managed_ledger.read_plan import MAX_PIECES, LogPlan, PlanLimits, PlannedPiece, make_plan
from magnetar_broker.managed_ledger.readable_entries import run_search
from magnetar_broker.position import EARLIEST, Position
from magnetar_protos import reading_pb2 as pb
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_wire.errors import WireError

__all__ = ["AddressesOf", "ReadPlanner", "message_of", "position_of"]

# Returns the addresses of bookies by id. Raises `BrokerError`.
AddressesOf = Callable[[list[str], str], dict[str, str]]
F = TypeVar("F")
R = TypeVar("R")
# Cached boundaries, of all logs.
_MAX_BOUNDARIES: Final = 4096
# Attempts to plan before the caller gets an error and tries again.
_ATTEMPTS: Final = 5
_MAX_FRAGMENTS: Final = 10_000
_MAX_BEFORE: Final = 1000
# Pieces that are encoded before other tasks run.
_PIECES_PER_TURN: Final = 100


class Deleted(Exception):
    """An entry or ledger of the plan was deleted in the meantime."""


class TooLarge(Exception):
    """The response would be too large with the bookies of all pieces: plan fewer pieces."""


class ReadPlanner:
    """Plans reads of all topics of one metadata session."""

    def __init__(self, locations: LedgerLocations, addresses: AddressesOf) -> None:
        self._locations = locations
        self._addresses = addresses
        # Boundaries right before existing or future entries, the oldest first. A boundary never changes. It is
        # approximate if adjacent entries are lost.
        self._known: dict[Position, Boundary] = {}
        # Held while pieces are encoded. Encoding takes longest, and a reader requests the plans of all partitions of a
        # topic at once.
        self._turn = asyncio.Lock()

    async def plan(self, log: ManagedLedger, request: pb.PlanRequest) -> pb.PlanAnswer:
        """Raises `BrokerError`."""
        start = position_of(request.start)
        stop = position_of(request.stop) if request.HasField("stop") else None
        for position in (start, stop):
            if position is not None and 0 < position.ledger_id <= log.floor:
                return pb.PlanAnswer(incarnation=log.incarnation, other_incarnation=True)
        if max(start, stop or start) > find_end(log.ledger_list):
            # The reader knows messages that this broker does not know: another one may have stored them.
            await log.check_current()
        from_ledger_id, until_ms = self._held_from(log, start, request), 0
        if request.lease_ms:
            until_ms = await log.leases.take_lease(
                request.lease_id, from_ledger_id, request.lease_ms, request.holder, request.read_id
            )
        pieces = MAX_PIECES
        for _ in range(_ATTEMPTS):
            limits = PlanLimits(request.max_messages, request.max_bytes, pieces)
            try:
                plan = await self.run_rule(log, make_plan(log.ledger_list, start, stop, limits, self._known.get))
                if plan.pieces and is_deleted(log.ledger_list, plan.start):
                    continue
                answer = await self._answer(log, plan, from_ledger_id, request)
            except Deleted:
                continue
            except TooLarge:
                pieces = max(1, pieces // 8)
                continue
            answer.lease_until_ms = until_ms
            answer.trimmed = log.ledger_list.trimmed_up_to != EARLIEST
            answer.needed_from.CopyFrom(message_of(find_needed_start(log.ledger_list, from_ledger_id, plan.start)))
            return answer
        raise BrokerError(
            ErrorCode.SERVICE_NOT_READY, f"{log.name} is being trimmed faster than it can be planned: try again"
        )

    def _held_from(self, log: ManagedLedger, start: MessagePosition, request: pb.PlanRequest) -> int:
        position = log.ledger_list.at_or_after(start.position) or find_end(log.ledger_list).position
        return find_first_held(
            log.ledger_list, position, min(request.before_ledgers, _MAX_BEFORE), request.before_bytes
        )

    async def run_rule(self, log: ManagedLedger, rule: Generator[Position, EntryFacts, R]) -> R:
        """Run the rule on the entries that it requests, and return its result. Raises `Deleted`, `BrokerError`."""

        async def look(position: Position) -> EntryFacts:
            found = await _look(log, position)
            if found is None:
                found = await run_search(facts_of_lost(log.ledger_list, position), partial(_look, log))
            return found

        return await run_search(rule, look)

    async def _answer(
        self, log: ManagedLedger, plan: LogPlan, from_ledger_id: int, request: pb.PlanRequest
    ) -> pb.PlanAnswer:
        """Raises `Deleted`, `TooLarge`, `BrokerError`."""
        answer = pb.PlanAnswer(
            incarnation=log.incarnation,
            start=message_of(plan.start),
            stop=message_of(plan.stop),
            messages=plan.messages,
            bytes=plan.bytes,
            begins_in_deleted=plan.begins_in_deleted,
            first=message_of(plan.first),
            end=message_of(plan.end),
            messages_behind=plan.messages_behind,
            end_index=plan.end_index,
            at_limit=plan.at_limit,
        )
        if not plan.pieces:
            return answer
        assert plan.front is not None
        assert plan.back is not None
        first = Position(plan.pieces[0].ledger_id, plan.pieces[0].first_entry_id)
        self._remember(first, plan.front)
        self._remember(*plan.back)
        before: list[PlannedPiece] = []
        if request.before_ledgers:
            before = plan_pieces_before(log.ledger_list, from_ledger_id, first, plan.front)
            reached = Position(before[0].ledger_id, before[0].first_entry_id) if before else first
            answer.deleted_before = is_all_deleted_before(log.ledger_list, reached)
        ledger_ids = list(dict.fromkeys(piece.ledger_id for piece in itertools.chain(before, plan.pieces)))
        locations = await self._locations.find(log, ledger_ids, fresh=request.fresh)
        if locations is None:
            raise Deleted
        if len(plan.pieces) > 1 and sum(len(location.fragments) for location in locations.values()) > _MAX_FRAGMENTS:
            raise TooLarge
        bookies: dict[str, None] = {}
        async with self._turn:
            for pieces, encoded in ((before, answer.before), (plan.pieces, answer.pieces)):
                for at in range(0, len(pieces), _PIECES_PER_TURN):
                    some = pieces[at : at + _PIECES_PER_TURN]
                    encoded.extend(_piece(piece, locations[piece.ledger_id], bookies) for piece in some)
                    await asyncio.sleep(0)
        addresses = self._addresses(list(bookies), request.listener_name)
        answer.bookies.extend(pb.BookieAddress(bookie_id=one, address=addresses[one]) for one in bookies)
        return answer

    def _remember(self, position: Position, boundary: Boundary) -> None:
        self._known.pop(position, None)
        self._known[position] = boundary
        if len(self._known) > _MAX_BOUNDARIES:
            del self._known[next(iter(self._known))]


async def _look(log: ManagedLedger, position: Position) -> EntryFacts | None:
    """Return an entry's facts; None: it is lost, or damaged on all bookies. Raises `Deleted`, `BrokerError`."""
    facts = None
    with contextlib.suppress(LostEntry, DamagedEntry):
        facts = _facts(position, await log.reads.read_record(position))
    if not log.ledger_list.holds(position):
        # A bookie still returns an entry for a while after its ledger has left the list, which the rule reads.
        raise Deleted
    return facts


def _facts(position: Position, record: bytes | None) -> EntryFacts:
    if record is None:
        raise Deleted
    try:
        header = check_record(record, position.ledger_id, position.entry_id)
        entry = decode_log_entry(position, extract_entry(record))
    except (BadRecord, WireError) as error:
        raise DamagedEntry(position, error) from error
    size = len(entry.stored)
    return EntryFacts(position, entry.index - entry.messages + 1, entry.messages, header.ledger_bytes - size, size)


def _piece(piece: PlannedPiece, location: LedgerLocation, bookies: dict[str, None]) -> pb.Piece:
    encoded = pb.Piece(
        ledger_id=piece.ledger_id,
        first_entry_id=piece.first_entry_id,
        last_entry_id=piece.last_entry_id,
        skip_messages=piece.skip_messages,
        stop_after_messages=piece.stop_after_messages,
        bytes=piece.bytes,
        messages=piece.messages,
        ensemble_size=location.striping.ensemble_size,
        write_quorum=location.striping.write_quorum,
        ack_quorum=location.striping.ack_quorum,
        open=not location.closed and piece.last_entry_id >= location.fragments[-1].first_entry_id,
    )
    for fragment in location.fragments_of(piece.first_entry_id, piece.last_entry_id):
        encoded.fragments.add(first_entry_id=fragment.first_entry_id, bookies=fragment.bookies)
        bookies.update(dict.fromkeys(fragment.bookies))
    return encoded


def position_of(message: pb.MessagePosition) -> MessagePosition:
    return MessagePosition(message.ledger_id, message.entry_id, message.skip_messages)


def message_of(position: MessagePosition) -> pb.MessagePosition:
    return pb.MessagePosition(
        ledger_id=position.ledger_id, entry_id=position.entry_id, skip_messages=position.skip_messages
    )
