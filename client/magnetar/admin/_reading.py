"""The group `reading`: what is asked by those who read a topic's log from the bookies themselves."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from magnetar.admin._calls import AdminCalls
from magnetar.admin._sync_groups import Run, documented_as
from magnetar.admin._values import StartPoint, start_at
from magnetar.admin.reading import LogPlace, NamespaceLease, NextMessage, Piece, PieceFragment, Plan
from magnetar.exceptions import InvalidArgument
from magnetar_protos import reading_pb2 as pb
from magnetar_protos.admin_pb2 import Done

__all__ = ["AsyncReading", "Reading"]


class AsyncReading:
    """Of a topic without partitions, or a partition: `log` is its name."""

    def __init__(self, calls: AdminCalls, listener_name: str) -> None:
        self._calls = calls
        self._listener_name = listener_name

    async def place(self, log: str, start: StartPoint) -> LogPlace:
        """Where that is in the log."""
        request = pb.LogPlaceRequest(topic=log, at=start_at(start))
        answer = await self._calls.look("log_place", request, pb.LogPlaceAnswer)
        return LogPlace(answer.incarnation, _place(answer.place), answer.retained)

    async def plan(
        self,
        log: str,
        *,
        incarnation: str = "",
        start: NextMessage,
        stop: NextMessage | None = None,
        max_messages: int = 0,
        max_bytes: int = 0,
        lease_ms: int = 0,
        lease_id: bytes = b"",
        holder: str = "",
        listener_name: str = "",
        before_ledgers: int = 0,
        before_bytes: int = 0,
        fresh: bool = False,
        read_id: bytes = b"",
    ) -> Plan:
        """What lies between the two places, up to the limits, and which bookies have it; with `lease_ms` it is kept so
        long. It may end before `stop`: plan on from its own. One without pieces that ends where it began says that
        there is no more now.

        A plan ends before the message with which it would have more than `max_messages`, and before the entry with
        which it would have more than `max_bytes`, unless that is its first."""
        with _numbers_told("a plan's places and limits are"):
            request = pb.PlanRequest(
                topic=log,
                incarnation=incarnation,
                start=_message(start),
                stop=None if stop is None else _message(stop),
                max_messages=max_messages,
                max_bytes=max_bytes,
                lease_ms=lease_ms,
                lease_id=lease_id,
                holder=holder,
                listener_name=listener_name or self._listener_name,
                before_ledgers=before_ledgers,
                before_bytes=before_bytes,
                fresh=fresh,
                read_id=read_id,
            )
        return _plan(await self._calls.look("plan", request, pb.PlanAnswer))

    async def renew_lease(
        self, log: str, incarnation: str, lease_id: bytes, lease_ms: int, *, read_id: bytes = b""
    ) -> None:
        """From now on for so long; 0 ends it. One that has ended is refused with `NotFound`. `read_id`: which of the
        reads that share the lease; without it a lease ends for all of them."""
        with _numbers_told("a lease's time is"):
            request = pb.RenewLeaseRequest(
                topic=log, incarnation=incarnation, lease_id=lease_id, lease_ms=lease_ms, read_id=read_id
            )
        await self._calls.look("renew_lease", request, Done)

    async def end_lease(self, log: str, lease_id: bytes, *, read_id: bytes = b"") -> None:
        """What it holds may be deleted, also under a reader who reads it still. One that is not there has ended."""
        await self.renew_lease(log, "", lease_id, 0, read_id=read_id)

    async def finish_part(self, log: str, lease_id: bytes, read_id: bytes, part: int, parts: int) -> None:
        """Reports that one of so many parts of the read is finished. When all are, what the read holds is held for a
        quarter of the lease's time more, and for half of it from each renewal on."""
        with _numbers_told("a part is"):
            request = pb.FinishPartRequest(topic=log, lease_id=lease_id, read_id=read_id, part=part, parts=parts)
        await self._calls.look("finish_part", request, Done)

    async def advance_progress(
        self,
        log: str,
        incarnation: str,
        subscription: str,
        to: NextMessage,
        *,
        only_make: bool = False,
        owner: str = "",
        owner_name: str = "",
    ) -> NextMessage:
        """Acknowledge everything before `to` on a progress subscription, which is created where there is none. It never
        goes back, so the call may be repeated. Return the position of the first entry that is not acknowledged whole.

        `only_make`: create the subscription at `to`. One that has an owner stays where it is; one that has none is
        moved back to `to` if it is ahead of that, also without `only_make` if an `owner` is given.
        `owner`: the id of the reader whose progress it is, drawn at random. The first one becomes the subscription's.
        `owner_name`: a description of the owner for people.

        Raises `ConsumerBusy` if the subscription has another owner, and `NotAllowedError` if it is not a progress
        subscription: one that consumers or administrators created is refused whether or not it has consumers.
        """
        with _numbers_told("progress is at a place, whose numbers are"):
            request = pb.AdvanceProgressRequest(
                topic=log,
                incarnation=incarnation,
                subscription=subscription,
                to=_message(to),
                only_make=only_make,
                owner=owner,
                owner_name=owner_name,
            )
        answer = await self._calls.look("advance_progress", request, pb.AdvanceProgressAnswer)
        return _place(answer.position)

    async def hold_namespace(
        self, namespace: str, name_prefix: str, lease_id: bytes, lease_ms: int, *, holder: str = ""
    ) -> bool:
        """Take a lease on the topics that will be made in the namespace with names that begin with the prefix, or renew
        it. Each of them gets a lease of this id, for `lease_ms`, from its first message on. Returns whether there was
        no such lease: topics made until then have none by it."""
        with _numbers_told("a lease's time is"):
            request = pb.HoldNamespaceRequest(
                namespace=namespace, name_prefix=name_prefix, lease_id=lease_id, lease_ms=lease_ms, holder=holder
            )
        return (await self._calls.look("hold_namespace", request, pb.HoldNamespaceAnswer)).taken

    async def end_namespace_lease(self, namespace: str, lease_id: bytes) -> None:
        """One that is not there has ended. Leases on topics stay."""
        await self.hold_namespace(namespace, "", lease_id, 0)

    async def namespace_leases(self, namespace: str) -> list[NamespaceLease]:
        request = pb.NamespaceLeasesRequest(namespace=namespace)
        answer = await self._calls.look("namespace_leases", request, pb.NamespaceLeasesAnswer)
        return [NamespaceLease(one.name_prefix, one.lease_id, one.lease_ms, one.holder) for one in answer.leases]


@documented_as(AsyncReading)
class Reading:
    def __init__(self, group: AsyncReading, run: Run) -> None:
        self._group = group
        self._run = run

    def place(self, log: str, start: StartPoint) -> LogPlace:
        return self._run(self._group.place(log, start))

    def plan(
        self,
        log: str,
        *,
        incarnation: str = "",
        start: NextMessage,
        stop: NextMessage | None = None,
        max_messages: int = 0,
        max_bytes: int = 0,
        lease_ms: int = 0,
        lease_id: bytes = b"",
        holder: str = "",
        listener_name: str = "",
        before_ledgers: int = 0,
        before_bytes: int = 0,
        fresh: bool = False,
        read_id: bytes = b"",
    ) -> Plan:
        return self._run(
            self._group.plan(
                log,
                incarnation=incarnation,
                start=start,
                stop=stop,
                max_messages=max_messages,
                max_bytes=max_bytes,
                lease_ms=lease_ms,
                lease_id=lease_id,
                holder=holder,
                listener_name=listener_name,
                before_ledgers=before_ledgers,
                before_bytes=before_bytes,
                fresh=fresh,
                read_id=read_id,
            )
        )

    def renew_lease(self, log: str, incarnation: str, lease_id: bytes, lease_ms: int, *, read_id: bytes = b"") -> None:
        self._run(self._group.renew_lease(log, incarnation, lease_id, lease_ms, read_id=read_id))

    def end_lease(self, log: str, lease_id: bytes, *, read_id: bytes = b"") -> None:
        self._run(self._group.end_lease(log, lease_id, read_id=read_id))

    def finish_part(self, log: str, lease_id: bytes, read_id: bytes, part: int, parts: int) -> None:
        self._run(self._group.finish_part(log, lease_id, read_id, part, parts))

    def advance_progress(
        self,
        log: str,
        incarnation: str,
        subscription: str,
        to: NextMessage,
        *,
        only_make: bool = False,
        owner: str = "",
        owner_name: str = "",
    ) -> NextMessage:
        return self._run(
            self._group.advance_progress(
                log, incarnation, subscription, to, only_make=only_make, owner=owner, owner_name=owner_name
            )
        )

    def hold_namespace(
        self, namespace: str, name_prefix: str, lease_id: bytes, lease_ms: int, *, holder: str = ""
    ) -> bool:
        return self._run(self._group.hold_namespace(namespace, name_prefix, lease_id, lease_ms, holder=holder))

    def end_namespace_lease(self, namespace: str, lease_id: bytes) -> None:
        self._run(self._group.end_namespace_lease(namespace, lease_id))

    def namespace_leases(self, namespace: str) -> list[NamespaceLease]:
        return self._run(self._group.namespace_leases(namespace))


@contextlib.contextmanager
def _numbers_told(what: str) -> Iterator[None]:
    """What no message can hold is the caller's mistake."""
    try:
        yield
    except ValueError as error:
        raise InvalidArgument(f"{what} whole, from 0 on, and in the range that travels: {error}") from None


def _message(place: NextMessage) -> pb.NextMessage:
    return pb.NextMessage(ledger_id=place.ledger_id, entry_id=place.entry_id, batch_index=place.batch_index)


def _place(message: pb.NextMessage) -> NextMessage:
    return NextMessage(message.ledger_id, message.entry_id, message.batch_index)


def _piece(message: pb.Piece) -> Piece:
    return Piece(
        message.ledger_id,
        message.first_entry_id,
        message.last_entry_id,
        message.skip_messages,
        message.stop_after_messages,
        message.bytes,
        message.messages,
        message.ensemble_size,
        message.write_quorum,
        message.ack_quorum,
        tuple(PieceFragment(one.first_entry_id, tuple(one.bookies)) for one in message.fragments),
        message.open,
    )


def _plan(answer: pb.PlanAnswer) -> Plan:
    return Plan(
        incarnation=answer.incarnation,
        start=_place(answer.start),
        stop=_place(answer.stop),
        pieces=[_piece(one) for one in answer.pieces],
        bookies={one.bookie_id: one.address for one in answer.bookies},
        messages=answer.messages,
        bytes=answer.bytes,
        other_incarnation=answer.other_incarnation,
        begins_in_deleted=answer.begins_in_deleted,
        first=_place(answer.first),
        end=_place(answer.end),
        messages_behind=answer.messages_behind,
        lease_until_ms=answer.lease_until_ms,
        retained=answer.retained,
        before=[_piece(one) for one in answer.before],
        at_limit=answer.at_limit,
        deleted_before=answer.deleted_before,
        needed_from=_place(answer.needed_from),
        end_index=answer.end_index,
        trimmed=answer.trimmed,
    )
