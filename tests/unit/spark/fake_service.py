"""Topics as the driver of a query sees them: logs whose entries hold messages, with plans, leases and deletion that
behave as brokers' do. Messages are numbers, and a plan's pieces say which of them they hold.
"""

from __future__ import annotations

import asyncio
import bisect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from magnetar import MessageId
from magnetar.admin import LogPosition, MessagePosition, Piece, PieceFragment, Plan
from magnetar.exceptions import ConsumerBusy, NotAllowedError, NotFound, TopicNotFound
from magnetar_spark.log_slice import LogSlice
from magnetar_wire.topic_name import TopicName

__all__ = ["FakeService", "StoredTopic"]

NOWHERE: Final = MessagePosition(0, 0, 0)
_BYTES_EACH: Final = 100
# Within the class `list` is a request.
Names: TypeAlias = list[str]
Numbers: TypeAlias = list[int]


@dataclass
class StoredTopic:
    """What `FakeService` holds of a topic: its entries, the leases on them, and the progress of readers."""

    incarnation: str
    # The messages of each entry, by ledger and entry; ledgers only ever grow in number.
    entries: dict[tuple[int, int], list[int]] = field(default_factory=dict)
    # The broker's time of each entry that there ever was.
    times: dict[tuple[int, int], int] = field(default_factory=dict)
    ledger_id: int = 1
    # The highest ledger id when the topic was created: its own are above it.
    floor: int = 0
    # The number of messages that were ever published.
    published: int = 0
    # Messages before this position were deleted.
    deleted_before: MessagePosition = NOWHERE
    # By the lease's id, and behind it that of the read that has it.
    leases: dict[bytes, tuple[int, int]] = field(default_factory=dict)
    progress: dict[str, MessagePosition] = field(default_factory=dict)
    progress_owners: dict[str, tuple[str, str]] = field(default_factory=dict)
    # Names of subscriptions that consumers have created.
    consumed: set[str] = field(default_factory=set)
    retained: bool = False
    # How many ledgers back an incomplete message may begin.
    reach_ledgers: int = 0
    # Entries that no bookie has: plans name them, and tasks do not get them.
    lost: set[tuple[int, int]] = field(default_factory=set)
    # No answer has more pieces.
    most_pieces: int = 1000

    def publish(self, messages: Sequence[int], time_ms: int = 0) -> None:
        """As one batch."""
        self.times[self.ledger_id, self._next_entry()] = time_ms
        self.entries[self.ledger_id, self._next_entry()] = list(messages)
        self.published += len(messages)

    def roll(self) -> None:
        self.ledger_id += 1

    def delete_ledgers_before(self, ledger_id: int) -> None:
        self.entries = {at: held for at, held in self.entries.items() if at[0] >= ledger_id}
        self.deleted_before = max(self.deleted_before, MessagePosition(ledger_id, 0, 0))

    def position_of(self, message: int) -> MessagePosition:
        for (ledger, entry), held in self.entries.items():
            if message in held:
                return MessagePosition(ledger, entry, held.index(message))
        raise AssertionError(f"there is no message {message}")

    @property
    def first(self) -> MessagePosition:
        return MessagePosition(*min(self.entries), 0) if self.entries else self.end

    @property
    def end(self) -> MessagePosition:
        return MessagePosition(self.ledger_id, self._next_entry(), 0)

    def between(self, start: MessagePosition, stop: MessagePosition) -> list[tuple[MessagePosition, int]]:
        positions = [
            (MessagePosition(*at, index), message)
            for at, held in sorted(self.entries.items())
            for index, message in enumerate(held)
        ]
        return positions[bisect.bisect_left(positions, (start, -1)) : bisect.bisect_left(positions, (stop, -1))]

    def _next_entry(self) -> int:
        return max((entry for ledger, entry in self.entries if ledger == self.ledger_id), default=-1) + 1


class FakeService:
    """Stands for an AsyncAdmin, and for its groups `topics` and `reading`."""

    def __init__(self) -> None:
        self.logs: dict[str, StoredTopic] = {}
        self.partitioned: dict[str, int] = {}
        self.made = 0
        self.requests: Names = []
        # Raised by the next request of that name.
        self.failing: dict[str, Exception] = {}
        # Called before each request of that name is answered.
        self.before: dict[str, Callable[[], object]] = {}
        # Requests of that name arrive when the event is set, also those whose caller is cancelled.
        self.late: dict[str, asyncio.Event] = {}
        # By namespace and id: the prefix of the leases on topics to come.
        self.namespace_leases: dict[tuple[str, bytes], str] = {}
        self._arriving: set[asyncio.Task[None]] = set()
        self.topics = self.reading = self

    def create(self, topic: str, partitions: int = 0, *, retained: bool = True) -> None:
        name = TopicName.parse(topic)
        names = [name.partition(index) for index in range(partitions)] if partitions else [name]
        if partitions:
            self.partitioned[str(name)] = partitions
        for one in names:
            if str(one) not in self.logs:
                self.made += 1
                log = StoredTopic(
                    f"incarnation-{self.made}", ledger_id=100 * self.made, floor=100 * self.made - 1, retained=retained
                )
                for (namespace, lease_id), prefix in self.namespace_leases.items():
                    if namespace == str(one.namespace_name) and one.local_name.startswith(prefix):
                        log.leases[lease_id] = (0, 600_000)
                self.logs[str(one)] = log

    def delete(self, topic: str) -> None:
        name = str(TopicName.parse(topic))
        for log in [log for log in self.logs if str(TopicName.parse(log).base) == name or log == name]:
            del self.logs[log]
        self.partitioned.pop(name, None)

    def __getitem__(self, topic: str) -> StoredTopic:
        return self.logs[str(TopicName.parse(topic))]

    def messages_of(self, slices: Sequence[LogSlice]) -> Numbers:
        """What tasks would read."""
        return [message for one in slices for message in self._held(one)]

    def _held(self, one: LogSlice) -> Iterator[int]:
        log = self.logs[one.log]
        assert one.incarnation == log.incarnation
        for piece in one.pieces:
            for entry in range(piece.first_entry_id, piece.last_entry_id + 1):
                if (piece.ledger_id, entry) in log.lost:
                    continue
                held = log.entries[piece.ledger_id, entry]
                skip = piece.skip_messages if entry == piece.first_entry_id else 0
                stop = piece.stop_after_messages if entry == piece.last_entry_id else 0
                yield from held[skip : stop or len(held)]

    def _take(self, log: str, start: MessagePosition, lease_id: bytes, lease_ms: int) -> None:
        if lease_ms:
            self._log(log).leases[lease_id] = (start.ledger_id, lease_ms)

    async def _arrives(self, request: str, take_effect: Callable[[], object]) -> None:
        """Returns when the request has arrived. One whose caller is cancelled before that takes effect, too."""
        if (arrival := self.late.get(request)) is not None:

            async def arrive() -> None:
                await arrival.wait()
                take_effect()

            task = asyncio.get_running_loop().create_task(arrive())
            self._arriving.add(task)
            task.add_done_callback(self._arriving.discard)
            await asyncio.shield(task)

    # ── requests ──

    async def list(self, namespace: str) -> Names:
        self._record("list")
        return [log for log in self.logs if str(TopicName.parse(log).namespace_name) == namespace]

    async def list_partitioned(self, namespace: str) -> Names:
        self._record("list_partitioned")
        return [topic for topic in self.partitioned if str(TopicName.parse(topic).namespace_name) == namespace]

    async def get_partitioned(self, topic: str) -> Any:
        self._record("get_partitioned")
        if topic not in self.partitioned:
            raise NotFound(f"there is no partitioned topic {topic}")
        return _Partitioned(self.partitioned[topic])

    async def find_position(self, log: str, start: Any) -> LogPosition:
        self._record("find_position")
        there = self._log(log)
        if start == MessageId.earliest:
            return LogPosition(there.incarnation, there.first, there.retained)
        if isinstance(start, int):
            entries = [at for at in sorted(there.entries) if there.times[at] >= start]
            # The time of a lost entry is unknown, so the search within the ledger stops there.
            lost = [at for at in sorted(there.lost) if entries and at[0] == entries[0][0]]
            entries = sorted(lost[:1] + entries[:1])
            return LogPosition(
                there.incarnation, MessagePosition(*entries[0]) if entries else there.end, there.retained
            )
        assert start == MessageId.latest
        return LogPosition(there.incarnation, there.end, there.retained)

    async def plan(
        self,
        log: str,
        *,
        incarnation: str = "",
        start: MessagePosition,
        stop: MessagePosition | None = None,
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
        self._record("plan")
        await self._arrives("plan", lambda: self._take(log, start, lease_id + read_id, lease_ms))
        there = self._log(log)
        of_other = any(position and 0 < position.ledger_id <= there.floor for position in (start, stop))
        if of_other or (incarnation and incarnation != there.incarnation):
            return Plan(
                there.incarnation, NOWHERE, NOWHERE, [], {}, 0, 0, True, False, NOWHERE, NOWHERE, 0, 0, there.retained
            )
        self._take(log, start, lease_id + read_id, lease_ms)
        begins_in_deleted = NOWHERE < start < there.deleted_before
        begin = max(start, there.first if stop is None else min(there.first, stop))
        end = there.end if stop is None else min(stop, there.end)
        held = there.between(begin, end)
        most = min(max_messages or len(held), max(1, max_bytes // _BYTES_EACH) if max_bytes else len(held))
        taken = held[: min(most, there.most_pieces)]
        cut = held[len(taken)][0] if len(taken) < len(held) else max(begin, end)
        return Plan(
            incarnation=there.incarnation,
            start=begin,
            stop=cut,
            pieces=_pieces(there, taken),
            bookies={"bookie-1": "host:1"},
            messages=len(taken),
            bytes=len(taken) * _BYTES_EACH,
            other_incarnation=False,
            begins_in_deleted=begins_in_deleted,
            first=there.first,
            end=there.end,
            messages_behind=len(there.between(cut, there.end)),
            lease_until_ms=0,
            retained=there.retained,
            end_index=there.published,
            needed_from=MessagePosition(begin.ledger_id - there.reach_ledgers, 0, 0) if there.reach_ledgers else begin,
            trimmed=there.deleted_before > NOWHERE,
        )

    async def renew_lease(
        self, log: str, incarnation: str, lease_id: bytes, lease_ms: int, *, read_id: bytes = b""
    ) -> None:
        self._record("renew_lease")
        leases, lease_id = self._log(log).leases, lease_id + read_id
        if lease_id not in leases:
            raise NotFound(f"there is no such lease on {log}")
        if lease_ms:
            leases[lease_id] = (leases[lease_id][0], lease_ms)
        else:
            del leases[lease_id]

    async def end_lease(self, log: str, lease_id: bytes, *, read_id: bytes = b"") -> None:
        self._record("end_lease")
        self._log(log).leases.pop(lease_id + read_id, None)

    async def hold_namespace(
        self, namespace: str, name_prefix: str, lease_id: bytes, lease_ms: int, *, holder: str = ""
    ) -> bool:
        self._record("hold_namespace")
        await self._arrives(
            "hold_namespace", lambda: self.namespace_leases.update({(namespace, lease_id): name_prefix})
        )
        taken = (namespace, lease_id) not in self.namespace_leases
        self.namespace_leases[namespace, lease_id] = name_prefix
        return taken

    async def end_namespace_lease(self, namespace: str, lease_id: bytes) -> None:
        self._record("end_namespace_lease")
        self.namespace_leases.pop((namespace, lease_id), None)

    async def advance_progress(
        self,
        log: str,
        incarnation: str,
        subscription: str,
        to: MessagePosition,
        *,
        only_make: bool = False,
        owner: str = "",
        owner_name: str = "",
    ) -> MessagePosition:
        self._record("advance_progress")
        progress, owners = self._log(log).progress, self._log(log).progress_owners
        if subscription in self._log(log).consumed:
            raise NotAllowedError(f"subscription {subscription} belongs to consumers")
        known = owners.get(subscription)
        if known is not None and known[0] != owner and (owner or not only_make):
            raise ConsumerBusy(f"subscription {subscription} stores the progress of another reader ({known[1]})")
        if known is None and (owner or only_make):
            progress[subscription] = min(progress.get(subscription, to), to)
        if owner:
            owners.setdefault(subscription, (owner, owner_name))
        if not only_make:
            progress[subscription] = max(progress.get(subscription, to), to)
        return progress[subscription]

    def _log(self, log: str) -> StoredTopic:
        if log not in self.logs:
            raise TopicNotFound(f"there is no topic {log}")
        return self.logs[log]

    def _record(self, request: str) -> None:
        self.requests.append(request)
        if request in self.before:
            self.before[request]()
        if request in self.failing:
            raise self.failing.pop(request)


@dataclass(frozen=True)
class _Partitioned:
    partitions: int


def _pieces(log: StoredTopic, taken: Sequence[tuple[MessagePosition, int]]) -> list[Piece]:
    """One for each entry, so that there are many."""
    by_entry: dict[tuple[int, int], Numbers] = {}
    for position, _ in taken:
        by_entry.setdefault((position.ledger_id, position.entry_id), []).append(position.skip_messages)
    return [
        Piece(
            ledger_id=ledger,
            first_entry_id=entry,
            last_entry_id=entry,
            skip_messages=indexes[0],
            stop_after_messages=0 if indexes[-1] + 1 == len(log.entries[ledger, entry]) else indexes[-1] + 1,
            bytes=len(indexes) * _BYTES_EACH,
            messages=len(indexes),
            ensemble_size=1,
            write_quorum=1,
            ack_quorum=1,
            fragments=(PieceFragment(0, ("bookie-1",)),),
        )
        for (ledger, entry), indexes in by_entry.items()
    ]
