"""The events topic of one namespace, at its owner: reads, changes and snapshots of topic policies.

It belongs to one opening of the topic. Changes and snapshots are made one at a time, each in a task that goes on if its
caller is cancelled: the next change must begin with what the one before it has stored.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from magnetar_broker.errors import BrokerError, RequestNotStarted, TopicUnloaded, UnreadableEntry
from magnetar_broker.managed_ledger.log_entry import LogEntry, NewEntry
from magnetar_broker.position import EARLIEST, Position
from magnetar_broker.topic_policies.policy_events import ForeignEvent, PolicyState, decode_event, encode_event
from magnetar_broker.topics.non_persistent.topic_node import NON_PERSISTENT_INCARNATION
from magnetar_broker.topics.topic import Topic
from magnetar_broker.topics.topic_tasks import TopicTasks
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.catalog_pb2 import Policies, TopicPoliciesEvent
from magnetar_wire.clock import Clock
from magnetar_wire.topic_name import TopicName

__all__ = ["FindIncarnation", "PolicyLog", "UpdatePolicies"]

_log = logging.getLogger(__name__)
_READ_ENTRIES: Final = 500
_READ_BYTES: Final = 4_194_304
# Events that are appended together.
_SNAPSHOT_EVENTS: Final = 100

# Returns the incarnation of a topic, read afresh. Raises `BrokerError`, TOPIC_NOT_FOUND among them.
FindIncarnation = Callable[[TopicName], Awaitable[str]]
# Changes the policies of a topic. Raises `BrokerError`.
UpdatePolicies = Callable[[Policies], None]


class PolicyLog:
    def __init__(self, topic: Topic, find_incarnation: FindIncarnation, clock: Clock, tasks: TopicTasks) -> None:
        """`tasks`: those of the owner, which cancels them."""
        self.topic = topic
        self._find_incarnation = find_incarnation
        self._clock = clock
        self._tasks = tasks
        self._state = PolicyState()
        self._loading: asyncio.Task[None] | None = None
        # One change or snapshot at a time.
        self._changing = asyncio.Lock()
        self._snapshot: asyncio.Task[None] | None = None

    @property
    def version(self) -> bytes:
        """Changes with every event. No other opening of the topic has the same ones."""
        return self.topic.log.owner_epoch + self._state.changes.to_bytes(8, "big")

    async def load(self) -> None:
        """Return when all events are read. Raises `BrokerError`."""
        if self._loading is None:
            loading = self._loading = self._tasks.spawn(self._load())
            loading.add_done_callback(self._on_loaded)
        await self._tasks.wait_whole(self._loading)

    def _on_loaded(self, loading: asyncio.Task[None]) -> None:
        if loading.cancelled() or loading.exception() is not None:
            self._loading = None  # the next caller tries again

    async def _load(self) -> None:
        log, state = self.topic.log, PolicyState()
        position = log.first_after(EARLIEST)
        while position <= log.last:
            try:
                entries = await log.read(position, _READ_ENTRIES, _READ_BYTES)
            except UnreadableEntry as error:
                _log.error("%s: the event at %s is lost, and is skipped", self.topic.name, error.position)
                position = log.first_after(error.position)
                continue
            if not entries:
                break
            for entry in entries:
                self._apply_stored(state, entry)
            position = log.first_after(entries[-1].position)
        self._state = state

    def _apply_stored(self, state: PolicyState, entry: LogEntry) -> None:
        try:
            state.apply(decode_event(entry.stored))
        except ForeignEvent as error:
            _log.warning("%s: the entry at %s is skipped: %s", self.topic.name, entry.position, error)

    def list_events(self, after: str = "") -> list[TopicPoliciesEvent]:
        """Return the last events of all topics that have policies and names behind `after`, by their names."""
        return [event for topic, event in sorted(self._state.by_topic.items()) if topic > after]

    def find_event(self, topic: str) -> TopicPoliciesEvent | None:
        """Return the last event of a topic that has policies."""
        return self._state.by_topic.get(topic)

    def get(self, topic: TopicName, incarnation: str) -> Policies:
        return self._state.get(str(topic), incarnation)

    async def change(self, topic: TopicName, update: UpdatePolicies) -> Policies:
        """Change a topic's policies, and return them when that is durable. Raises `BrokerError`; `TopicUnloaded` if it
        is unknown whether they were changed."""
        return await self._tasks.wait_whole(self._tasks.spawn(self._change(topic, update)))

    async def _change(self, topic: TopicName, update: UpdatePolicies) -> Policies:
        async with self._changing:
            incarnation = await self._find_incarnation(topic)
            before = self._state.get(str(topic), incarnation)
            after = Policies()
            after.CopyFrom(before)
            update(after)
            if after != before:
                await self._append([TopicPoliciesEvent(topic=str(topic), incarnation=incarnation, policies=after)])
        self._begin_snapshot()
        return after

    async def remove_deleted(self, topic: TopicName) -> None:
        """Remove the policies of a topic that was deleted, unless another one has its name. Raises `BrokerError`."""
        await self._tasks.wait_whole(self._tasks.spawn(self._remove_deleted(topic)))

    async def _remove_deleted(self, topic: TopicName) -> None:
        async with self._changing:
            event = self._state.by_topic.get(str(topic))
            if event is not None and not await self._is_current(event):
                await self._append([TopicPoliciesEvent(topic=str(topic))])

    async def _is_current(self, event: TopicPoliciesEvent) -> bool:
        """Return whether the event's topic exists."""
        try:
            return await self._find_incarnation(TopicName.parse(event.topic)) == event.incarnation
        except BrokerError as error:
            if error.code != ErrorCode.TOPIC_NOT_FOUND:
                raise
            return False

    async def _append(self, events: Sequence[TopicPoliciesEvent]) -> None:
        """Append events, apply each when it is persisted, and return when all are. Raises `BrokerError`."""
        if self.topic.ended is not None:
            raise RequestNotStarted(f"{self.topic.name} was closed: {self.topic.ended}")
        log, now_ms, left = self.topic.log, self._clock.time_ms(), list(events)
        decided: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def on_decided(result: Sequence[Position] | BrokerError) -> None:
            if isinstance(result, BrokerError):
                if not decided.done():
                    decided.set_exception(result.again())
                return
            for _ in result:
                self._state.apply(left.pop(0))
            if not left and not decided.done():
                decided.set_result(None)

        entries = [
            NewEntry(encode_event(event, log.next_index + number, now_ms), 1, 0) for number, event in enumerate(events)
        ]
        log.append(entries, on_decided)
        await decided

    # Snapshots.

    def _begin_snapshot(self) -> None:
        if self._state.needs_snapshot and (self._snapshot is None or self._snapshot.done()):
            self._snapshot = self._tasks.spawn(self._write_snapshot_or_log())

    async def _write_snapshot_or_log(self) -> None:
        try:
            await self.write_snapshot()
        except TopicUnloaded as error:
            _log.info("%s: a snapshot was not finished, the next owner may write one: %s", self.topic.name, error)
        except BrokerError as error:
            _log.warning("%s: no snapshot could be written, it is tried again: %s", self.topic.name, error)

    async def write_snapshot(self) -> None:
        """Write the policies of all topics that exist to the end of the log, and delete everything before. Raises
        `BrokerError`."""
        async with self._changing:
            log = self.topic.managed_ledger
            # Also to the end of this method, if a topic is deleted in the meantime: the next snapshot leaves it out.
            events = [event for event in self.list_events() if _vanishes(event) or await self._is_current(event)]
            await log.roll_ledger()
            ledgers = log.ledger_list.ledgers
            first_new = ledgers[-1].ledger_id + 1 if ledgers else 0
            for begin in range(0, len(events), _SNAPSHOT_EVENTS):
                await self._append(events[begin : begin + _SNAPSHOT_EVENTS])
            await log.trim_before(first_new)
            self.topic.drop_trimmed_ledgers()
            known = {event.topic for event in events}
            for topic in list(self._state.by_topic):
                if topic not in known:
                    del self._state.by_topic[topic]
            self._state.record_snapshot()


def _vanishes(event: TopicPoliciesEvent) -> bool:
    """Return whether the event's topic is still to have its policies when it is not found: nobody may be using it."""
    return event.incarnation == NON_PERSISTENT_INCARNATION
