"""A topic's log on honest bookies in memory, on a manual clock; and what became of what was appended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TypeVar

from magnetar_bookie import paths as bookie_paths
from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_bookie.ledger.ledger_metadata_store import LedgerMetadataStore
from magnetar_bookie.read.striping import Striping
from magnetar_broker import paths
from magnetar_broker.cursors.cursor_table import CursorTable
from magnetar_broker.errors import BrokerError, TopicUnloaded
from magnetar_broker.managed_ledger.entry_cache import EntryCache
from magnetar_broker.managed_ledger.interface import Log
from magnetar_broker.managed_ledger.log_entry import Chunk, LogEntry, NewEntry
from magnetar_broker.managed_ledger.managed_ledger import ManagedLedger
from magnetar_broker.managed_ledger.topic_node import NewTopic
from magnetar_broker.position import EARLIEST, Position
from magnetar_broker.settings.managed_ledgers import CursorSettings, ManagedLedgerSettings
from magnetar_broker.topics.topic_deletion import finish_deletion
from magnetar_metadata import compare_and_set
from magnetar_metadata.store import Change
from magnetar_protos import managed_ledger_pb2 as pb
from magnetar_protos.entry_pb2 import MessageMetadata
from magnetar_testing.randomness import SeededRandomness
from magnetar_wire.entry import decode_entry, encode_entry
from magnetar_wire.topic_name import TopicName
from tests.registered_bookies import register_bookie
from tests.unit.bookie.honest_bookie import HonestBookie
from tests.unit.bookie.patience import PassingTime
from tests.unit.bookie.small_cluster import SmallCluster
from tests.unit.broker.cursor_scene import open_cursors, wait_for_first_attempts

__all__ = ["SMALL", "TOPIC", "Outcomes", "Scene", "entry", "numbered", "payload", "running_log_scene"]

T = TypeVar("T")
_TURNS, _LONGEST_S = 60, 600.0
TOPIC = TopicName.parse("persistent://public/default/orders")
# Ledgers of three entries, that end as soon as they are full. Without a durable subscription they are not retained.
SMALL = ManagedLedgerSettings(
    managed_ledger_max_entries_per_ledger=3,
    managed_ledger_min_ledger_rollover_time_minutes=0,
    default_retention_without_subscription_minutes=0,
)


def entry(payload: bytes, messages: int = 0) -> bytes:
    """One as a client sends it; with `messages` a batch of so many, as far as a broker looks."""
    metadata = MessageMetadata(producer_name="p", sequence_id=0, publish_time=1)
    if messages:
        metadata.num_messages_in_batch = messages
    return encode_entry(metadata, payload)


def numbered(count: int, first: int = 0) -> list[bytes]:
    return [b"message %d" % number for number in range(first, first + count)]


def payload(one: LogEntry) -> bytes:
    return decode_entry(one.stored).payload


class Outcomes:
    """What was told of each append, in the order of the telling."""

    def __init__(self) -> None:
        self.told: list[tuple[bytes, Position | BrokerError]] = []
        self.appended = 0

    def append(self, log: ManagedLedger, *payloads: bytes, messages: int = 0, chunk: Chunk | None = None) -> None:
        for one in payloads:
            self.appended += 1
            log.append([NewEntry(entry(one, messages), messages or 1, messages, chunk)], partial(self._tell, one))

    def _tell(self, one: bytes, result: Sequence[Position] | BrokerError) -> None:
        self.told.append((one, result if isinstance(result, BrokerError) else result[0]))

    @property
    def are_all_reported(self) -> bool:
        return len(self.told) == self.appended

    @property
    def stored(self) -> list[tuple[bytes, Position]]:
        return [(one, result) for one, result in self.told if isinstance(result, Position)]

    @property
    def refused(self) -> list[BrokerError]:
        return [result for _, result in self.told if isinstance(result, BrokerError)]


class Scene(SmallCluster):
    def __init__(self, bookies: int = 4) -> None:
        super().__init__(bookies)
        self.outcomes = Outcomes()
        self.lost: list[TopicUnloaded] = []
        self._lives = 0
        # Of the log that was opened last.
        self.cache = EntryCache(0)
        self.registry = self.server.connect()

    async def open(
        self,
        client: LedgerClient | None = None,
        options: ManagedLedgerSettings = SMALL,
        *,
        create: bool = True,
        cache_bytes: int = 1_048_576,
        name: TopicName = TOPIC,
        along: Sequence[Change] = (),
        read_ahead: int = 16,
        read_striping: Callable[[], Awaitable[Striping]] | None = None,
        are_policies_known: Callable[[], bool] = lambda: True,
    ) -> ManagedLedger:
        self._lives += 1
        self.cache = EntryCache(cache_bytes, read_ahead)
        client, clock, randomness = client or self.client, self.clock, SeededRandomness(f"life {self._lives}")
        log = await self.patiently(
            ManagedLedger.open(
                name,
                client,
                self.cache,
                options,
                clock,
                randomness,
                finish_deletion=partial(finish_deletion, name, client=client, clock=clock, randomness=randomness),
                if_absent=NewTopic(along) if create else None,
                read_striping=read_striping,
                are_policies_known=are_policies_known,
            )
        )
        log.on_lost = self.lost.append
        return log

    async def another(self) -> LedgerClient:
        """Another broker's way to the ledgers."""
        client = self.another_client()
        self.clients.append(client)
        await client.start()
        return client

    async def append(self, log: ManagedLedger, *payloads: bytes, messages: int = 0, chunk: Chunk | None = None) -> None:
        """Returns when all that was ever appended is decided."""
        self.outcomes.append(log, *payloads, messages=messages, chunk=chunk)
        await self.decided()

    async def decided(self) -> None:
        await self.wait(lambda: self.outcomes.are_all_reported)

    async def wait(self, condition: Callable[[], bool]) -> None:
        """Have time pass until the condition holds."""
        time, end = PassingTime(self.clock), self.clock.monotonic() + _LONGEST_S
        while self.clock.monotonic() < end:
            for _ in range(_TURNS):
                if condition():
                    return
                await asyncio.sleep(0)
            time.step()
        raise AssertionError(f"{_LONGEST_S} s have passed in vain")

    async def idle(self) -> None:
        """Long enough for all that happens without time passing."""
        for _ in range(_TURNS):
            await asyncio.sleep(0)

    async def read_all(self, log: Log, start: Position = EARLIEST, at_a_time: int = 100) -> list[LogEntry]:
        found: list[LogEntry] = []
        while True:
            more = await self.patiently(log.read(start, at_a_time, 1_048_576))
            if not more:
                return found
            found += more
            last = more[-1].position
            start = Position(last.ledger_id, last.entry_id + 1)

    async def payloads(self, log: Log) -> list[bytes]:
        return [payload(one) for one in await self.read_all(log)]

    async def join(self, bookie_id: str) -> None:
        """One more bookie comes."""
        bookie = self.bookies[bookie_id] = HonestBookie(bookie_id, self.clock)
        await self.transport.listen(f"{bookie_id}:1", bookie)
        await register_bookie(self.registry, bookie_id, f"{bookie_id}:1")

    async def every_ledger_is_accounted_for(self) -> None:
        """Each ledger there is stands in the list, is to be deleted or is, or has its intent still."""
        node = await self.node()
        assert node is not None
        listed = {one.ledger_id for one in node.ledgers}
        fresh = self.server.connect()
        intents = [int(name, 16) for name in await fresh.children(bookie_paths.INTENTS)]
        ledgers = LedgerMetadataStore(fresh, self.clock, SeededRandomness(0))
        async for ledger_id in ledgers.ledger_ids():
            deleted = (await ledgers.read_metadata(ledger_id)).state.name == "TOMBSTONE"
            assert (ledger_id in listed) != (deleted or ledger_id in node.deleting or ledger_id in intents), ledger_id

    async def every_ledger_is_deleted(self) -> None:
        ledgers = LedgerMetadataStore(self.server.connect(), self.clock, SeededRandomness(0))
        async for ledger_id in ledgers.ledger_ids():
            assert (await ledgers.read_metadata(ledger_id)).state.name == "TOMBSTONE", ledger_id

    async def cursors(self, log: ManagedLedger) -> CursorTable:
        table = await open_cursors(log, self.client, CursorSettings(), self.clock, SeededRandomness(5))
        await wait_for_first_attempts(table)
        return table

    async def subscribe(self, log: ManagedLedger) -> CursorTable:
        """A durable cursor, `s`, with something acknowledged behind a hole."""
        cursors = await self.patiently(self.cursors(log))
        cursor = await self.patiently(cursors.create("s", log.before_first, {}))
        cursor.acknowledge([(log.last.ledger_id, 1, 1)])
        await self.patiently(cursor.wait_until_saved())
        return cursors

    async def node(self, name: TopicName = TOPIC) -> pb.ManagedLedgerNode | None:
        await self.store.sync()
        stored = await compare_and_set.read(self.store, paths.topic(name))
        return None if stored is None else pb.ManagedLedgerNode.FromString(stored.payload)


@asynccontextmanager
async def running_log_scene(bookies: int = 4) -> AsyncIterator[Scene]:
    """Yield a scene whose cluster has started, and close it."""
    scene = Scene(bookies)
    await scene.start()
    try:
        yield scene
    finally:
        await scene.close()
