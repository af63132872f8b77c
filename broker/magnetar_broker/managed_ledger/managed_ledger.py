"""A topic's log, and the interface of this package, whose docstring has the theory.

Its parts: the node with the list of ledgers (topic_node.py), appends (appender.py), the cache of the newest entries
(entry_cache.py), reads (log_reader.py), leases (log_leases.py) and trimming (trimmer.py). None of them
has a task or a timer while nothing happens on the topic.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Self

from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_bookie.read.striping import Striping
from magnetar_broker.errors import BrokerError, TopicUnloaded
from magnetar_broker.managed_ledger.appender import Appender
from magnetar_broker.managed_ledger.chunk_search import MessageEnds, find_ends
from magnetar_broker.managed_ledger.entry_cache import CachedEntries, EntryCache
from magnetar_broker.managed_ledger.ledger_list import LedgerList, ListChange, ListedLedger
from magnetar_broker.managed_ledger.ledger_striping import LedgerStriping
from magnetar_broker.managed_ledger.log_entry import LogEntry
from magnetar_broker.managed_ledger.log_leases import LogLeases
from magnetar_broker.managed_ledger.log_reader import LogReader
from magnetar_broker.managed_ledger.log_recovery import recover_log
from magnetar_broker.managed_ledger.lost_entries import LostEntries
from magnetar_broker.managed_ledger.prefetched_topic import PrefetchedTopic
from magnetar_broker.managed_ledger.readable_entries import find_first_at_time, find_last_readable, read_if_readable
from magnetar_broker.managed_ledger.termination import create_terminated_error
from magnetar_broker.managed_ledger.topic_node import NewTopic, TopicNode
from magnetar_broker.managed_ledger.trimmer import LogRetention, Trimmer
from magnetar_broker.position import Position
from magnetar_broker.settings.managed_ledgers import ManagedLedgerSettings
from magnetar_metadata.errors import MetadataError
from magnetar_metadata.store import Check
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.managed_ledger_pb2 import TopicEpoch
from magnetar_wire.clock import Clock
from magnetar_wire.randomness import Randomness
from magnetar_wire.topic_name import TopicName

__all__ = ["ManagedLedger", "ManagedLedgerStats"]


@dataclass(frozen=True, slots=True)
class ManagedLedgerStats:
    # `written`: there is a current ledger; `idle`: none, until the next append; `waiting`: see `waiting_for`;
    # `terminated`: nothing is appended any more; `ended`: the log is closed, or the broker has lost the topic.
    state: str
    waiting_for: str
    # Oldest first, with the current ledger and without those being deleted. Empty before the first append.
    ledgers: Sequence[ListedLedger]
    # The readable entries of these ledgers, and their bytes, broker metadata included.
    stored_entries: int
    stored_bytes: int
    ledgers_to_delete: int
    pending_appends: int
    pending_bytes: int
    next_index: int


class ManagedLedger:
    """Created by `open`. Implements `Log`."""

    __slots__ = (
        "_appender",
        "_node",
        "_settings",
        "_trimmer",
        "append",
        "cache",
        "leases",
        "lost_entries",
        "read",
        "read_at",
        "read_nowait",
        "reads",
        "retention",
        "striping",
    )

    def __init__(
        self,
        node: TopicNode,
        client: LedgerClient,
        cache: EntryCache,
        settings: ManagedLedgerSettings,
        clock: Clock,
        lost: LostEntries | None = None,
        read_striping: Callable[[], Awaitable[Striping]] | None = None,
        are_policies_known: Callable[[], bool] = lambda: True,
    ) -> None:
        # The lost entries that were found.
        self.lost_entries = lost or LostEntries(node.name)
        self._node = node
        self._settings = settings
        self.cache = cache
        cached = CachedEntries(cache)
        self._trimmer = Trimmer(node, client, self._fail)
        # The striping of the next ledgers, also of its cursors.
        self.striping = LedgerStriping(settings.striping, read_striping)
        self._appender = Appender(
            node, client, cached, settings, self.striping, clock, self._trimmer.finish_soon, self._free_caches
        )
        self.reads = LogReader(node, client, cached, self._appender, self.lost_entries)
        # Without a call in between, as publishes and deliveries make them.
        self.append = self._appender.append
        self.read, self.read_nowait, self.read_at = self.reads.read, self.reads.read_nowait, self.reads.read_at
        self.leases = LogLeases(node, settings, clock, self._appender.check_open, self._fail)
        self.retention = LogRetention(node, self.leases, settings, clock, self._fail, are_policies_known)

    @classmethod
    async def open(
        cls,
        name: TopicName,
        client: LedgerClient,
        cache: EntryCache,
        settings: ManagedLedgerSettings,
        clock: Clock,
        randomness: Randomness,
        *,
        finish_deletion: Callable[[str], Awaitable[None]],
        if_absent: NewTopic | None = None,
        prefetched: PrefetchedTopic | None = None,
        on_claimed: Callable[[TopicNode], Awaitable[None]] | None = None,
        on_lost_entry: Callable[[], object] = lambda: None,
        find_settings: Callable[[], Awaitable[ManagedLedgerSettings]] | None = None,
        read_striping: Callable[[], Awaitable[Striping]] | None = None,
        are_policies_known: Callable[[], bool] = lambda: True,
    ) -> Self:
        """Open the topic's log, and fence the broker that had it before.

        `find_settings` is called when the log is recovered, which needs no settings, and returns what replaces
        `settings`.
        `finish_deletion` is called where a deletion of the topic was begun, with its incarnation, and finishes it.
        `if_absent`: create the topic so if it does not exist; None: it must exist. `prefetched` are its nodes.
        `on_claimed` is called as soon as no other broker can change the topic's node any more, `on_lost_entry` for each
        entry that is found lost, now or later. `read_striping` returns the present striping by the policies; it is
        called for each ledger, and while one waits for bookies. `are_policies_known`: whether `settings` are by all
        policies of the topic; as long as they are not, nothing is trimmed.

        Raises `BrokerError`: TOPIC_NOT_FOUND where there is none and `if_absent` is None, SERVICE_NOT_READY where a
        check of `if_absent` was refused, METADATA_ERROR or PERSISTENCE_ERROR where it can't be opened now.
        """
        lost = LostEntries(name, on_lost_entry)
        node = await recover_log(
            name,
            client,
            clock,
            randomness,
            lost,
            finish_deletion=finish_deletion,
            if_absent=if_absent,
            prefetched=prefetched.log if prefetched is not None else None,
            on_claimed=on_claimed,
        )
        if find_settings is not None:
            settings = await find_settings()
        self = cls(node, client, cache, settings, clock, lost, read_striping, are_policies_known)
        if self.has_ledgers_to_delete:
            self._trimmer.finish_soon()
        return self

    # ── state ──

    @property
    def name(self) -> TopicName:
        return self._node.name

    @property
    def ledger_list(self) -> LedgerList:
        """The list of ledgers. Only this object changes it."""
        return self._node.ledger_list

    @property
    def owner_epoch(self) -> bytes:
        """The token that the topic's node has while this broker owns the topic."""
        return self._node.owner_epoch

    @property
    def previous_owner_epoch(self) -> bytes:
        """The token of the last owner before. If that is one of this broker's, nobody has opened the topic since."""
        return self._node.previous_owner_epoch

    @property
    def incarnation(self) -> str:
        return self._node.ledger_list.incarnation

    @property
    def floor(self) -> int:
        return self._node.ledger_list.floor

    @property
    def ownership_checks(self) -> Sequence[Check]:
        """Checks of a transaction which hold only while this broker owns the topic."""
        return self._node.ownership_checks

    @property
    def is_terminated(self) -> bool:
        """Whether no entry is ever appended any more."""
        return self._node.ledger_list.is_terminated

    def check_not_terminated(self) -> None:
        """Raises `BrokerError`."""
        if self.is_terminated:
            raise create_terminated_error(self.name)

    @property
    def before_first(self) -> Position:
        return self._node.ledger_list.before_first

    @property
    def last(self) -> Position:
        return self._node.ledger_list.last

    @property
    def next_index(self) -> int:
        return self._appender.queue.next_index

    @property
    def last_time_ms(self) -> int:
        """The broker time of the last accepted entry, in ms since 1970; 0: there was none."""
        return self._appender.queue.last_time_ms

    @property
    def closed_ledgers(self) -> int:
        """The number of closed ledgers. When it changes, a trim may delete something."""
        ledger_list = self._node.ledger_list
        return len(ledger_list.ledgers) - (ledger_list.current_ledger is not None)

    @property
    def has_ledgers_to_delete(self) -> bool:
        """Whether ledgers that left the list, or are empty, are not deleted yet: the next trim deletes them."""
        return bool(self._node.ledger_list.deleting) or self._node.ledger_list.empty_ledger_id is not None

    async def check_current(self) -> None:
        """Check that no other broker had opened the topic when this was called. So `ledger_list` has all entries that
        were persisted by then. Raises `TopicUnloaded`, METADATA_ERROR."""
        self._appender.check_open()
        try:
            await self._node.check_current()
        except TopicUnloaded as error:
            self._fail(error)
            raise
        except MetadataError as error:
            text = f"unknown whether this broker still owns topic {self.name}: {error}"
            raise BrokerError(ErrorCode.METADATA_ERROR, text) from error
        self._appender.check_open()

    def ledger_end(self, ledger_id: int) -> int | None:
        """As in `Log`."""
        found = self._node.ledger_list.find(ledger_id)
        return found.entries - 1 if found is not None and found.is_closed else None

    def next_ledger(self, ledger_id: int) -> int | None:
        """As in `Log`."""
        return self._node.ledger_list.next_ledger(ledger_id)

    def first_after(self, position: Position) -> Position:
        return self._node.ledger_list.first_after(position)

    def entries_between(self, after: Position, up_to: Position) -> int:
        return self._node.ledger_list.entries_between(after, up_to)

    @property
    def waiting_for(self) -> str:
        """Why appends wait; empty: they don't, or for nothing but the bookies' answers."""
        return self._appender.waiting_for

    def stats(self) -> ManagedLedgerStats:
        ledger_list, queue = self._node.ledger_list, self._appender.queue
        return ManagedLedgerStats(
            state=self._appender.state,
            waiting_for=self.waiting_for,
            ledgers=tuple(ledger_list.ledgers),
            stored_entries=ledger_list.entries,
            stored_bytes=sum(ledger.length_bytes for ledger in ledger_list.ledgers),
            ledgers_to_delete=len(ledger_list.deleting),
            pending_appends=len(queue),
            pending_bytes=queue.pending_bytes,
            next_index=queue.next_index,
        )

    # ── callbacks ──

    @property
    def on_appended(self) -> Callable[[], object] | None:
        """Called after entries became readable, once for all of one turn of the event loop."""
        return self._appender.on_appended

    @on_appended.setter
    def on_appended(self, called: Callable[[], object] | None) -> None:
        self._appender.on_appended = called

    @property
    def on_lost(self) -> Callable[[TopicUnloaded], object] | None:
        """Called once, when the broker has lost the topic or can't write it."""
        return self._appender.on_lost

    @on_lost.setter
    def on_lost(self, called: Callable[[TopicUnloaded], object] | None) -> None:
        self._appender.on_lost = called

    @property
    def topic_epoch(self) -> TopicEpoch | None:
        """Return the epoch of exclusive producers as it is stored; None: there was none."""
        return self._node.topic_epoch

    async def change_topic_epoch(self, choose: Callable[[], TopicEpoch | None]) -> None:
        """Store the epoch of exclusive producers that `choose` returns when the change begins; None: change nothing.

        Raises `TopicUnloaded`; METADATA_ERROR: it is not stored.
        """
        await self._node.wait_until_unchanged()
        epoch = choose()
        if epoch is not None:
            await self._change_node(ListChange(topic_epoch=epoch), "the topic epoch")

    async def read_first_partition_epoch(self) -> int | None:
        """Return the epoch number that the topic's first partition has; None: it has none. Raises METADATA_ERROR."""
        try:
            return await self._node.read_first_partition_epoch()
        except MetadataError as error:
            text = f"the epoch of the first partition of {self.name.base} can't be read now: {error}"
            raise BrokerError(ErrorCode.METADATA_ERROR, text) from error

    async def change_properties(self, properties: Mapping[str, bytes | None]) -> None:
        """Set these properties of the topic, durably; None: remove it. Raises `TopicUnloaded`, METADATA_ERROR."""
        await self._change_node(ListChange(properties=properties), "the properties")

    async def _change_node(self, change: ListChange, what: str) -> None:
        self._appender.check_open()
        try:
            await self._node.change(change)
        except TopicUnloaded as error:
            self._fail(error)
            raise
        except MetadataError as error:
            text = f"{what} of {self.name} can't be changed now: {error}"
            raise BrokerError(ErrorCode.METADATA_ERROR, text) from error

    # ── appending ──

    @property
    def pending_bytes(self) -> int:
        return self._appender.queue.pending_bytes

    def pending_sizes(self) -> list[int]:
        """Return the stored bytes of each appended entry that is not decided, oldest first.

        The simulation compares them with the bound, which goes by `pending_bytes`.
        """
        return self._appender.queue.pending_sizes()

    def tick(self) -> None:
        """Roll the ledger if that is due. Called every second or so."""
        self._appender.roll_if_due(self._settings.managed_ledger_inactive_ledger_rollover_time_seconds)

    # ── reading ──

    async def read_last_readable(self) -> LogEntry | None:
        """Return the last entry that can be read, or None. Raises `BrokerError`."""
        return await find_last_readable(self.reads, self.ledger_list)

    async def find_ends(self, chunk: LogEntry) -> MessageEnds | None:
        """As in `Log`. Raises `BrokerError`."""
        return await find_ends(chunk, partial(read_if_readable, self.reads), self.ledger_list.last_before)

    async def find_first_at_time(self, time_ms: int) -> Position:
        """As in `Log`. Raises `BrokerError`."""
        return await find_first_at_time(self.reads, self.ledger_list, time_ms)

    # ── trimming and closing ──

    def may_trim(self, up_to: Position | None) -> bool:
        """Whether `trim` would delete something."""
        return self.has_ledgers_to_delete or next(self.retention.deletable(up_to), None) is not None

    async def trim(self, up_to: Callable[[], Position | None]) -> bool:
        """Delete the closed ledgers that no durable subscription needs and that are not retained (trimmer.py), up to
        the first that a lease protects. Return whether the list changed.

        Durable subscriptions have acknowledged everything up to `up_to()`; None: the topic has none. It is called again
        before each change of the list. A ledger that can't be deleted now is deleted by a later call. Raises
        `TopicUnloaded`.
        """
        return await self._trim(lambda: self.retention.deletable(up_to()))

    async def _trim(self, deletable: Callable[[], Iterator[int]]) -> bool:
        self._appender.check_open()
        trimmed = await self._trimmer.trim(deletable)
        if trimmed:
            self.reads.forget_up_to(self._node.ledger_list.trimmed_up_to)
        return trimmed

    async def truncate(self, prepare: Callable[[], Awaitable[None]] | None = None) -> None:
        """Delete all entries that were stored before this call, whether acknowledged, retained or not. Ledgers that
        leases protect are left to later trims. `prepare` is called when nothing is added to what will be deleted.
        Raises `TopicUnloaded`, and what `prepare` raises."""
        last = self._node.ledger_list.ledgers[-1].ledger_id if self._node.ledger_list.ledgers else -1
        await self.roll_ledger()
        if prepare is not None:
            await prepare()
        await self._trim(lambda: self.retention.deletable_up_to(last))

    async def roll_ledger(self) -> None:
        """Close the current ledger, so that the next append creates another one. Raises `TopicUnloaded`."""
        await self._appender.roll_ledger()
        self._appender.check_open()

    async def trim_before(self, ledger_id: int) -> None:
        """Delete the ledgers before this one, whether acknowledged, retained or not, up to the first that a lease
        protects. Raises `TopicUnloaded`."""
        await self._trim(lambda: self.retention.deletable_up_to(ledger_id - 1))

    async def terminate(self) -> Position:
        """Accept no entry any more, durably. Return the last one that the topic has. Raises `BrokerError`."""
        await self._appender.terminate()
        return self.last

    async def close(self) -> None:
        """Accept no more appends, wait for those in flight, and close the ledger. May be called again."""
        await self._appender.close()

    def abandon(self) -> None:
        """Stop at once. The outcome of pending appends is unknown."""
        self._appender.stop(TopicUnloaded(f"topic {self.name} was closed by this broker"))

    def _fail(self, error: TopicUnloaded) -> None:
        self._appender.fail(error)

    def _free_caches(self) -> None:
        """Free the caches and stop the background trim: the log has ended."""
        self._trimmer.stop()
        self.reads.close()
