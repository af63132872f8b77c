"""Admin calls of readers that read topics' logs from the bookies: at the topic's owner, except for leases on
namespaces."""

from __future__ import annotations

from typing import Final

from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_broker.admin.ledger_locations import LedgerLocations
from magnetar_broker.admin.names import parse_namespace_name
from magnetar_broker.admin.read_planner import ReadPlanner, message_of, position_of
from magnetar_broker.catalog.catalog import Catalog
from magnetar_broker.errors import BrokerError
from magnetar_broker.managed_ledger.managed_ledger import ManagedLedger
from magnetar_broker.managed_ledger.message_position import BEFORE_ALL, MessagePosition, find_end, find_first
from magnetar_broker.managed_ledger.readable_entries import read_if_readable
from magnetar_broker.topics.client_positions import is_of_another_incarnation, make_incarnation_error
from magnetar_broker.topics.progress_subscription import ProgressOwner
from magnetar_broker.topics.topic import Topic
from magnetar_protos import reading_pb2 as pb
from magnetar_protos.admin_pb2 import Done
from magnetar_protos.broker_pb2 import ErrorCode, StartAt, StartMessageId

__all__ = ["ReadingCalls"]

# The limits of positions that a cursor stores.
_MAX_ID: Final = 2**63 - 1
_MAX_BATCH_INDEX: Final = 2**31 - 1


class ReadingCalls:
    def __init__(self, catalog: Catalog, ledgers: LedgerClient) -> None:
        self._catalog = catalog
        self._bookies = ledgers.bookies
        self._planner = ReadPlanner(LedgerLocations(ledgers), self._addresses)

    # ── any broker ──

    async def hold_namespace(self, request: pb.HoldNamespaceRequest) -> pb.HoldNamespaceAnswer:
        name = parse_namespace_name(request.namespace)
        leases = self._catalog.namespace_leases
        try:
            incarnation = (await self._catalog.namespaces.get(name)).node.incarnation
        except BrokerError as error:
            if error.code != ErrorCode.NOT_FOUND or request.lease_ms:
                raise
            return pb.HoldNamespaceAnswer()  # the leases were deleted with it
        if not request.lease_ms:
            await leases.end(name, incarnation, request.lease_id)
            return pb.HoldNamespaceAnswer()
        taken = await leases.hold(
            name, incarnation, request.name_prefix, request.lease_id, request.lease_ms, request.holder
        )
        return pb.HoldNamespaceAnswer(taken=taken)

    async def namespace_leases(self, request: pb.NamespaceLeasesRequest) -> pb.NamespaceLeasesAnswer:
        name = parse_namespace_name(request.namespace)
        await self._catalog.namespaces.get(name)
        return pb.NamespaceLeasesAnswer(
            leases=[
                pb.HeldNamespace(
                    name_prefix=lease.name_prefix,
                    lease_id=lease.lease_id,
                    lease_ms=lease.lease_ms,
                    holder=lease.holder,
                )
                for lease in await self._catalog.namespace_leases.list(name)
            ]
        )

    # ── the topic's owner ──

    async def find_position(self, topic: Topic, request: pb.FindPositionRequest) -> pb.FindPositionAnswer:
        position = await _find_position(topic.managed_ledger, request.at)
        return pb.FindPositionAnswer(
            incarnation=topic.log.incarnation,
            position=message_of(position),
            retained=topic.managed_ledger.retention.retains_acknowledged,
        )

    async def plan(self, topic: Topic, request: pb.PlanRequest) -> pb.PlanAnswer:
        log = topic.managed_ledger
        if request.incarnation and request.incarnation != log.incarnation:
            return pb.PlanAnswer(incarnation=log.incarnation, other_incarnation=True)
        answer = await self._planner.plan(log, request)
        answer.retained = topic.managed_ledger.retention.retains_acknowledged
        return answer

    async def renew_lease(self, topic: Topic, request: pb.RenewLeaseRequest) -> Done:
        _check_incarnation(topic, request.incarnation)
        if request.lease_ms:
            await topic.managed_ledger.leases.renew_lease(request.lease_id, request.lease_ms, request.read_id)
        else:
            await topic.managed_ledger.leases.end_lease(request.lease_id, request.read_id)
        return Done()

    async def finish_part(self, topic: Topic, request: pb.FinishPartRequest) -> Done:
        topic.managed_ledger.leases.finish_part(request.lease_id, request.read_id, request.part, request.parts)
        return Done()

    async def advance_progress(self, topic: Topic, request: pb.AdvanceProgressRequest) -> pb.AdvanceProgressAnswer:
        _check_incarnation(topic, request.incarnation)
        to = _as_start(position_of(request.to))
        owner = ProgressOwner(request.owner, request.owner_name)
        mark_delete = await topic.subscriptions.advance(
            request.subscription, to, only_make=request.only_make, owner=owner
        )
        position = max(BEFORE_ALL, MessagePosition(*mark_delete.next))
        return pb.AdvanceProgressAnswer(position=message_of(position))

    def _addresses(self, bookie_ids: list[str], listener_name: str) -> dict[str, str]:
        """Return the bookies' addresses: of one that is not registered now the last one, since it may still serve
        reads. Raises `BrokerError` for a listener that no bookie has."""
        bookies = self._bookies
        names = list(dict.fromkeys(name for info in bookies.registered().values() for name, _ in info.listeners))
        if listener_name and names and listener_name not in names:
            raise BrokerError(
                ErrorCode.INVALID_ARGUMENT,
                f"no bookie has a listener {listener_name!r:.100}: there are {', '.join(names)}",
            )
        return {one: bookies.find_address(one, listener_name) for one in bookie_ids}


def _check_incarnation(topic: Topic, incarnation: str) -> None:
    if incarnation and incarnation != topic.log.incarnation:
        raise BrokerError(
            ErrorCode.INCARNATION_CHANGED,
            f"{topic.name} was deleted and created again: its incarnation is {topic.log.incarnation} now, not "
            f"{incarnation}, so positions in the old one mean nothing in it",
        )


def _as_start(position: MessagePosition) -> StartAt:
    """Convert a position to the type that cursors use. Raises `BrokerError` for numbers above a cursor's limits."""
    if position == BEFORE_ALL:
        return StartAt(earliest=True)
    ledger_id, entry_id, skip_messages = position
    if max(ledger_id, entry_id) > _MAX_ID or skip_messages > _MAX_BATCH_INDEX:
        raise BrokerError(
            ErrorCode.INVALID_ARGUMENT,
            f"progress can't be at {position}: ids of ledgers and entries are at most {_MAX_ID}, and indexes in a "
            f"batch at most {_MAX_BATCH_INDEX}",
        )
    return StartAt(
        message_id=StartMessageId(ledger_id=ledger_id, entry_id=entry_id, batch_index=skip_messages, inclusive=True)
    )


async def _find_position(log: ManagedLedger, at: StartAt) -> MessagePosition:
    """Return the position of `at`, or the next one that the log has (still or already). Raises `BrokerError`."""
    match at.WhichOneof("at"):
        case "earliest":
            return find_first(log.ledger_list)
        case "latest":
            return find_end(log.ledger_list)
        case "time_ms":
            found = MessagePosition(*await log.find_first_at_time(at.time_ms))
            return min(max(found, find_first(log.ledger_list)), find_end(log.ledger_list))
        case "message_id":
            return await _find_after_message(log, at)
        case _:
            raise BrokerError(
                ErrorCode.INVALID_ARGUMENT, "`at` is empty: give earliest, latest, a time or a message's position"
            )


async def _find_after_message(log: ManagedLedger, at: StartAt) -> MessagePosition:
    named = at.message_id
    if named.ledger_id < 0 or named.entry_id < 0:
        return find_first(log.ledger_list)
    found = MessagePosition(named.ledger_id, named.entry_id, max(0, named.batch_index))
    if found != BEFORE_ALL and is_of_another_incarnation(log, named.ledger_id):
        raise make_incarnation_error(log, found.position)
    if not named.inclusive:
        found = (
            MessagePosition(*found.position.next)
            if named.batch_index < 0
            else found._replace(skip_messages=found[2] + 1)
        )
    found = min(max(found, find_first(log.ledger_list)), find_end(log.ledger_list))
    if found.skip_messages:
        entry = await read_if_readable(log, found.position)
        if entry is not None and found.skip_messages >= entry.messages:
            return MessagePosition(*found.position.next)
    return found
