"""The deduplication of one topic: switched on and off by its policies, recovered when the topic is opened.

Theory of operation
-------------------
rules.py decides by the stored ids of each producer's name. They are in memory (producer_names.py), and the log has all
of them. So that the log need not be read as a whole, a snapshot of the ids is stored at intervals: in the internal
cursor `pulsar.dedup`, together with its mark-delete position. The ids of all entries up to that position are in the
snapshot. The log retains the entries after it.

    off ──policy──► creating the cursor ──► on ──policy──► deleting the cursor ──► off
    opening, with a cursor: replaying ──────► on

**Replaying.** The entries after the snapshot are read, of which only the metadata are decoded. Producers wait for that,
since duplicates are not recognized before it ends; consumers don't. There is one replay, before the
first producer is opened (replay.py). If entries can't be read at present, it goes on for as long as the topic is
served. If the snapshot itself is damaged on all bookies, the last entries of the log are replayed without it.

**Snapshots** (snapshot_schedule.py) are taken after a number of entries or bytes, the replayed ones included, so what
is to be replayed is bounded also if a topic is often unloaded; after a time; and when the topic is closed. The next one
is not taken before the last one is stored.

**Switching on.** Ids are known from the entries on that are decided after the policy is noticed. Entries that were
stored before are not known: a client that resends one of them has it stored again. **Switching off** deletes the
cursor: when deduplication is switched on again, it begins with nothing. If the topic's own policies can't be read, and
there is a cursor, deduplication stays on.

**Moves.** The policies that a broker has cached may be older than those that the topic's previous owner followed. The
cursor shows what that was: its node is read when the cursors are claimed, before a producer can be opened. If the
policies say otherwise, they are read again first, as they are now (`_confirm_target`). If that is not possible,
deduplication is on when the topic is opened, and changes later.

    A follows the policy "on", creates the cursor, and stores 1 2; the receipt of 2 is lost
    B has cached "off", and takes the topic over. It finds the cursor, and reads "on": it replays 1 2
    the producer resends 2 to B, which finds the duplicate

**Memory.** The ids of names that have no producer are limited in number and bytes. Those of names
that have had none for some hours are forgotten: a message that is resent later is stored again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final, Generic, Protocol, TypeVar

from magnetar_broker.cursors.ack_state import MAX_ATTACHMENT_BYTES
from magnetar_broker.cursors.durable_cursor import DurableCursor
from magnetar_broker.cursors.interface import TopicCursors
from magnetar_broker.cursors.subscription_limits import DEDUPLICATION_CURSOR
from magnetar_broker.errors import BrokerError, DamagedCursor, TopicUnloaded
from magnetar_broker.managed_ledger.interface import Log
from magnetar_broker.owned_tasks import OwnedTasks
from magnetar_broker.settings.topics import TopicSettings
from magnetar_broker.system_topics import is_system_topic
from magnetar_broker.topics.deduplication.replay import FIRST_PAUSE_S, find_last_entries, replay
from magnetar_broker.topics.deduplication.rules import EntryIds, Progress, record
from magnetar_broker.topics.deduplication.snapshot_schedule import SnapshotSchedule
from magnetar_broker.topics.deduplication.snapshots import BadSnapshot, decode_stored_ids
from magnetar_broker.topics.live_settings import LiveSettings
from magnetar_broker.topics.producer_names import ProducerNames
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_wire.clock import Clock

__all__ = ["Deduplication"]

_log = logging.getLogger(__name__)
_LONGEST_PAUSE_S: Final = 5.0


class Sender(Protocol):
    """The part of a producer that deduplication needs."""

    @property
    def producer_name(self) -> str: ...

    def begin_deduplication(self, stored: Progress) -> None: ...

    def end_deduplication(self) -> None: ...


S = TypeVar("S", bound=Sender)


class Deduplication(Generic[S]):
    __slots__ = (
        "_clock",
        "_cursors",
        "_follower",
        "_is_ready",
        "_is_recording",
        "_live_settings",
        "_log",
        "_looked_at",
        "_names",
        "_snapshots",
        "_stopped",
        "_tasks",
        "_waiters",
        "is_on",
        "waiting_for",
    )

    def __init__(
        self, log: Log, cursors: TopicCursors, names: ProducerNames[S], live_settings: LiveSettings, clock: Clock
    ) -> None:
        self._log = log
        self._cursors = cursors
        self._names = names
        self._live_settings = live_settings
        self._clock = clock
        self._tasks = OwnedTasks(self._task_failed)
        # Duplicates are found; and the ids of stored entries are recorded, which begins a bit earlier.
        self.is_on = False
        self._is_recording = False
        # Producers may be opened: it is known whether there is something to replay, and that is done.
        self._is_ready = not log.name.is_persistent or not (
            self._is_wanted or cursors.has_internal(DEDUPLICATION_CURSOR)
        )
        # What waits for that, and is notified of the reason if it takes long.
        self._waiters: dict[asyncio.Future[None], Callable[[str], object]] = {}
        # Why that takes long; empty: it does not.
        self.waiting_for = ""
        # The task that switches it on or off.
        self._follower: asyncio.Task[None] | None = None
        self._snapshots = SnapshotSchedule(log, cursors, names, live_settings, clock)
        # When names were looked through for unused ones.
        self._looked_at = clock.monotonic()
        self._stopped: BrokerError | None = None

    @property
    def status(self) -> str:
        """As Pulsar's statistics name it."""
        if self.is_on:
            return "Enabled"
        if not self._is_ready:
            return "Recovering"
        return "Removing" if self._cursors.has_internal(DEDUPLICATION_CURSOR) else "Disabled"

    @property
    def _settings(self) -> TopicSettings:
        return self._live_settings.current

    @property
    def _is_wanted(self) -> bool:
        if is_system_topic(self._log.name) or not self._log.name.is_persistent:
            return False
        return self._settings.broker_deduplication_enabled

    @property
    def _must_be_on(self) -> bool:
        if self._is_wanted or self._live_settings.are_known:
            return self._is_wanted
        return self.is_on or self._cursors.has_internal(DEDUPLICATION_CURSOR)

    # Switching on and off.

    def start(self) -> None:
        """Begin, when the cursors' nodes have been read. Not called for a non-persistent topic: nothing is stored."""
        self._live_settings.on_changed.append(self.follow_settings)
        self.follow_settings()

    def follow_settings(self) -> None:
        """Switch it on or off if the policies have changed."""
        if self._follower is None and self._stopped is None and self._needs_change():
            self._follower = self._tasks.spawn(self._follow())

    def _needs_change(self) -> bool:
        if self._must_be_on is not self.is_on:
            return True
        return not self._is_ready or (not self.is_on and self._cursors.has_internal(DEDUPLICATION_CURSOR))

    async def _follow(self) -> None:
        pause_s = FIRST_PAUSE_S
        try:
            while self._needs_change():
                try:
                    await self._change()
                    pause_s = FIRST_PAUSE_S
                except TopicUnloaded:
                    return
                except BrokerError as error:
                    pause_s = await self._pause(error, pause_s)
        finally:
            self._follower = None

    async def _pause(self, error: BrokerError, pause_s: float) -> float:
        """Pause after a failure. Return the next pause."""
        _log.warning("The deduplication of %s waits: %s; retrying in %.1f s", self._log.name, error, pause_s)
        if not self._is_ready:
            self._report_waiting(f"deduplication can't begin: {error}")
        await self._clock.sleep(pause_s)
        return min(2 * pause_s, _LONGEST_PAUSE_S)

    async def _change(self) -> None:
        """Take one step. Raises `BrokerError`."""
        has_cursor = self._cursors.has_internal(DEDUPLICATION_CURSOR)
        if not await self._confirm_target(has_cursor=has_cursor):
            await self._switch_off()
        elif has_cursor and self.is_on:
            pass
        elif has_cursor and self._is_ready:
            # Producers have published without deduplication since: the snapshot is of no use.
            await self._switch_off()
        elif has_cursor:
            await self._recover()
        else:
            await self._switch_on()
        self._set_ready()

    async def _confirm_target(self, *, has_cursor: bool) -> bool:
        """Return whether it must be on. Raises `BrokerError` if the present policies are needed and can't be read."""
        is_as_before = self._must_be_on is has_cursor or (self._must_be_on and self._log.last <= self._log.before_first)
        if is_as_before or await self._live_settings.read_now():
            return self._must_be_on
        if self._is_ready:
            raise BrokerError(ErrorCode.METADATA_ERROR, "its present policies can't be read")
        return True

    async def _switch_on(self) -> None:
        # Entries that are decided from now on are after the cursor's position.
        self._is_recording = True
        self._names.clear_stored()
        self._apply_limits()
        await self._cursors.create_internal(DEDUPLICATION_CURSOR, self._log.last)
        self._begin()

    async def _switch_off(self) -> None:
        self.is_on = self._is_recording = self._snapshots.is_active = False
        for producer in self._names.live.values():
            producer.end_deduplication()
        self._names.clear_stored()
        await self._cursors.delete_internal(DEDUPLICATION_CURSOR)

    def _begin(self, replayed_entries: int = 0, replayed_bytes: int = 0) -> None:
        self.is_on = self._is_recording = True
        for name, producer in self._names.live.items():
            producer.begin_deduplication(self._names.find_stored(name))
        self._snapshots.begin(replayed_entries, replayed_bytes)

    def _apply_limits(self) -> None:
        self._names.max_remembered = self._settings.broker_deduplication_max_number_of_producers
        self._names.max_remembered_bytes = MAX_ATTACHMENT_BYTES

    # Replaying.

    async def _recover(self) -> None:
        try:
            # Producers are notified if the first attempt takes long.
            await self._cursors.wait_until_open(DEDUPLICATION_CURSOR, wait_again=False)
            cursor = self._get_cursor()
        except DamagedCursor as error:
            _log.error("%s; duplicates are found by the last entries of the log only", error)
            cursor = await self._cursors.replace_internal(DEDUPLICATION_CURSOR, find_last_entries(self._log))
        self._names.clear_stored()
        self._apply_limits()
        try:
            restored = list(decode_stored_ids(cursor.attachment))
        except BadSnapshot as error:
            _log.error("%s: the snapshot of the deduplication can't be decoded: %s", self._log.name, error)
            restored = []
        # Names that had a producer count as closed until they are reopened: `tick` applies the limit.
        self._names.max_remembered = max(self._names.max_remembered, len(restored))
        for ids in restored:
            self._names.restore_ids(ids)
        self._snapshots.last_names = len(restored)
        self._begin(*await replay(self._log, cursor.mark_delete, self._names, self._pause))

    def _get_cursor(self) -> DurableCursor:
        cursor = self._cursors.get_internal(DEDUPLICATION_CURSOR)
        if cursor is None:
            raise TopicUnloaded(f"{self._log.name} was closed")
        return cursor

    # Opening producers.

    @property
    def is_ready(self) -> bool:
        return self._is_ready

    async def wait_until_ready(self, report: Callable[[str], object]) -> None:
        """Return when producers may be opened. `report` is called if that takes long, with the reason, and with an
        empty text at the end. Raises `BrokerError`."""
        if self._stopped is not None:
            raise self._stopped.again()
        if self.waiting_for:
            report(self.waiting_for)
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters[waiter] = report
        try:
            await waiter
        finally:
            self._waiters.pop(waiter, None)
        if self._stopped is not None:
            raise self._stopped.again()

    def _report_waiting(self, reason: str) -> None:
        self.waiting_for = reason
        for report in list(self._waiters.values()):
            report(reason)

    def _set_ready(self) -> None:
        self._is_ready = True
        if self.waiting_for:
            self._report_waiting("")
        self._wake_waiters()

    def _wake_waiters(self) -> None:
        for waiter in list(self._waiters):
            if not waiter.done():
                waiter.set_result(None)

    # Recording and snapshots.

    def record_stored(self, name: str, last_sequence_id: int, entries: Sequence[EntryIds], size_bytes: int) -> None:
        """Record that entries of this name, of this size together, are persisted."""
        self._names.record_stored(name, last_sequence_id)
        if self._is_recording:
            stored = self._names.find_stored(name)
            for ids in entries:
                record(stored, ids)
            self._snapshots.count_new(len(entries), size_bytes)

    def take_snapshot(self) -> None:
        """Store a snapshot, if there is something new."""
        self._snapshots.take()

    async def save_snapshot(self) -> None:
        """Store a snapshot, durably. Raises `BrokerError`, also while it is not known what is stored."""
        if not self._is_ready and self._cursors.has_internal(DEDUPLICATION_CURSOR):
            raise BrokerError(
                ErrorCode.SERVICE_NOT_READY,
                f"deduplication still reads the entries of {self._log.name}: {self.waiting_for or 'retry soon'}",
            )
        self.take_snapshot()
        if self.is_on and (cursor := self._cursors.get_internal(DEDUPLICATION_CURSOR)) is not None:
            await cursor.wait_until_saved()

    def tick(self, now: float) -> None:
        """Take a snapshot if the time has come, and forget unused names. Housekeeping calls it at intervals."""
        self.follow_settings()
        settings = self._settings
        frequency_s = settings.broker_deduplication_snapshot_frequency_in_seconds
        if not self.is_on or not frequency_s or now - self._looked_at < frequency_s:
            return
        self._looked_at = now
        self._apply_limits()
        if (unused_minutes := settings.broker_deduplication_producer_inactivity_timeout_minutes) > 0:
            self._snapshots.count_new(self._names.forget_unused_since(self._clock.time_ms() - unused_minutes * 60_000))
        if now - self._snapshots.taken_at >= settings.broker_deduplication_snapshot_interval_seconds:
            self.take_snapshot()

    # The end.

    def stop(self, error: BrokerError) -> None:
        """Stop: the topic has ended."""
        if self._stopped is None:
            self._stopped = error
            self._snapshots.is_active = False
            self._tasks.cancel(error)
            self._wake_waiters()

    def _task_failed(self, error: BaseException) -> None:
        _log.error("The deduplication of %s failed because of an internal error", self._log.name, exc_info=error)
