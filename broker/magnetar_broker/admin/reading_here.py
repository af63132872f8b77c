"""What is asked of the broker that serves a topic by those who read its log from the bookies themselves."""

from __future__ import annotations

from typing import Final

from magnetar_bookie.client.ledger_client import LedgerClient
from magnetar_broker.admin.here_calls import HereCall
from magnetar_broker.admin.ledger_homes import LedgerHomes
from magnetar_broker.admin.plan_making import PlanMaking, message_of, place_of
from magnetar_broker.admin.topics_here import TopicsHere
from magnetar_broker.core.next_message import BEFORE_ALL, NextMessage, end_of, first_of
from magnetar_broker.errors import BrokerError
from magnetar_broker.managed_ledger.managed_ledger import ManagedLedger
from magnetar_broker.managed_ledger.readable_entry import read_if_readable
from magnetar_broker.topic.foreign_ids import another_incarnation, is_of_another_incarnation
from magnetar_broker.topic.progress import ProgressOwner
from magnetar_broker.topic.topic import Topic
from magnetar_protos import reading_pb2 as pb
from magnetar_protos.admin_pb2 import Done
from magnetar_protos.broker_pb2 import ErrorCode, MessagePlace, StartAt

__all__ = ["ReadingHere"]

# Topics have no retention policies. What a topic without a durable subscription retains does not count: as soon as
# there is a subscription, messages that it has acknowledged are deleted.
_RETAINED: Final = False
# Of what a cursor's places can say.
_MAX_ID: Final = 2**63 - 1
_MAX_BATCH_INDEX: Final = 2**31 - 1


class ReadingHere:
    def __init__(self, topics: TopicsHere, client: LedgerClient) -> None:
        self._topics = topics
        self._client = client
        self._making = PlanMaking(LedgerHomes(client), self._addresses)

    def calls(self) -> dict[str, HereCall]:
        on_topic = self._topics.on_topic
        return {
            "log_place": on_topic(pb.LogPlaceRequest, pb.LogPlaceAnswer, self._place),
            "plan": on_topic(pb.PlanRequest, pb.PlanAnswer, self._plan),
            "renew_lease": on_topic(pb.RenewLeaseRequest, Done, self._renew_lease),
            "finish_part": on_topic(pb.FinishPartRequest, Done, self._finish_part),
            "advance_progress": on_topic(pb.AdvanceProgressRequest, pb.AdvanceProgressAnswer, self._advance_progress),
        }

    async def _place(self, topic: Topic, request: pb.LogPlaceRequest) -> pb.LogPlaceAnswer:
        place = await _found(topic.log, request.at)
        return pb.LogPlaceAnswer(incarnation=topic.log.incarnation, place=message_of(place), retained=_RETAINED)

    async def _plan(self, topic: Topic, request: pb.PlanRequest) -> pb.PlanAnswer:
        log = topic.log
        if request.incarnation and request.incarnation != log.incarnation:
            return pb.PlanAnswer(incarnation=log.incarnation, other_incarnation=True)
        answer = await self._making.plan(log, request)
        answer.retained = _RETAINED
        return answer

    async def _renew_lease(self, topic: Topic, request: pb.RenewLeaseRequest) -> Done:
        _check_incarnation(topic, request.incarnation)
        if request.lease_ms:
            await topic.log.leases.renew(request.lease_id, request.lease_ms, request.read_id)
        else:
            await topic.log.leases.end(request.lease_id, request.read_id)
        return Done()

    async def _finish_part(self, topic: Topic, request: pb.FinishPartRequest) -> Done:
        topic.log.leases.finish_part(request.lease_id, request.read_id, request.part, request.parts)
        return Done()

    async def _advance_progress(self, topic: Topic, request: pb.AdvanceProgressRequest) -> pb.AdvanceProgressAnswer:
        _check_incarnation(topic, request.incarnation)
        to = _reached(place_of(request.to))
        owner = ProgressOwner(request.owner, request.owner_name)
        mark_delete = await topic.subscriptions.advance(
            request.subscription, to, only_make=request.only_make, owner=owner
        )
        position = max(BEFORE_ALL, NextMessage(*mark_delete.next))
        return pb.AdvanceProgressAnswer(position=message_of(position))

    def _addresses(self, bookie_ids: list[str], listener_name: str) -> dict[str, str]:
        """One that is not registered now may serve on all the same, so its last address is told. Raises `BrokerError`
        for a listener that no bookie has."""
        bookies = self._client.bookies
        there = list(dict.fromkeys(name for info in bookies.alive().values() for name, _ in info.listeners))
        if listener_name and there and listener_name not in there:
            raise BrokerError(
                ErrorCode.INVALID_ARGUMENT,
                f"no bookie has a listener {listener_name!r:.100}: there are {', '.join(there)}",
            )
        return {one: bookies.address(one, listener_name) for one in bookie_ids}


def _check_incarnation(topic: Topic, incarnation: str) -> None:
    if incarnation and incarnation != topic.log.incarnation:
        raise BrokerError(
            ErrorCode.INCARNATION_CHANGED,
            f"{topic.name} was deleted and made again: it is {topic.log.incarnation} now, and was {incarnation}; what "
            "is known of the old one says nothing of it",
        )


def _reached(place: NextMessage) -> StartAt:
    """Raises `BrokerError` for numbers that no message has; a `NextMessage` may have larger ones than a cursor."""
    if place == BEFORE_ALL:
        return StartAt(earliest=True)
    ledger_id, entry_id, batch_index = place
    if max(ledger_id, entry_id) > _MAX_ID or batch_index > _MAX_BATCH_INDEX:
        raise BrokerError(
            ErrorCode.INVALID_ARGUMENT,
            f"progress can't be at {place}: a ledger's and an entry's id are at most {_MAX_ID}, and a place in a batch "
            f"{_MAX_BATCH_INDEX}",
        )
    return StartAt(place=MessagePlace(ledger_id=ledger_id, entry_id=entry_id, batch_index=batch_index, inclusive=True))


async def _found(log: ManagedLedger, at: StartAt) -> NextMessage:
    """A place that the log has not (any more, or yet) is the next one that it has. Raises `BrokerError`."""
    match at.WhichOneof("at"):
        case "earliest":
            return first_of(log.listed)
        case "latest":
            return end_of(log.listed)
        case "time_ms":
            found = NextMessage(*await log.first_at_time(at.time_ms))
            return min(max(found, first_of(log.listed)), end_of(log.listed))
        case "place":
            return await _after_place(log, at)
        case _:
            raise BrokerError(
                ErrorCode.INVALID_ARGUMENT, "`at` is empty: say earliest, latest, a time or a message's place"
            )


async def _after_place(log: ManagedLedger, at: StartAt) -> NextMessage:
    named = at.place
    if named.ledger_id < 0 or named.entry_id < 0:
        return first_of(log.listed)
    place = NextMessage(named.ledger_id, named.entry_id, max(0, named.batch_index))
    if place != BEFORE_ALL and is_of_another_incarnation(log, named.ledger_id):
        raise another_incarnation(log, place.position)
    if not named.inclusive:
        place = NextMessage(*place.position.next) if named.batch_index < 0 else place._replace(batch_index=place[2] + 1)
    place = min(max(place, first_of(log.listed)), end_of(log.listed))
    if place.batch_index:
        entry = await read_if_readable(log, place.position)
        if entry is not None and place.batch_index >= entry.messages:
            return NextMessage(*place.position.next)
    return place
