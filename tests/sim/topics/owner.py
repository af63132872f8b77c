"""A broker's process, as far as topics' logs go: it opens one, appends, reads, trims, and lets it go or loses it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from magnetar_bookie.client.ledger_client import LedgerClient
from magnetar_bookie.client.ledger_store import MadeLedger
from magnetar_bookie.client.ledger_writer import LedgerWriter
from magnetar_bookie.errors import AddFailed
from magnetar_bookie.read.striping import Striping
from magnetar_broker.core.position import EARLIEST, Position
from magnetar_broker.errors import BrokerError
from magnetar_broker.managed_ledger.entry_cache import EntryCache
from magnetar_broker.managed_ledger.managed_ledger import ManagedLedger, delete_topic
from magnetar_metadata.errors import MetadataError
from magnetar_metadata.store import MetadataStore
from magnetar_protos.entry_pb2 import MessageMetadata
from magnetar_wire.entry import decode_entry, encode_entry
from magnetar_wire.topic_name import TopicName
from tests.sim.invariants import Checker
from tests.sim.world.chain_writer import ChainWriter

if TYPE_CHECKING:
    from tests.sim.topics.world import TopicWorld

__all__ = ["TopicOwner"]

_METADATA = MessageMetadata(producer_name="p", sequence_id=0, publish_time=1)


class _WatchedClient(LedgerClient):
    """Tells the checker what is appended to which ledger, and what was acknowledged."""

    checker: Checker

    async def create(
        self, striping: Striping, purpose: str, properties: Mapping[str, bytes] | None = None
    ) -> tuple[MadeLedger, LedgerWriter]:
        made, writer = await super().create(striping, purpose, properties)
        append, checker = writer.append, self.checker

        def watched(entry: bytes, done: object) -> int:
            def told(result: int | AddFailed) -> None:
                if isinstance(result, int):
                    checker.acked(made.ledger_id, result)
                done(result)  # type: ignore[operator]

            entry_id = append(entry, told)
            checker.appended(made.ledger_id, entry_id, entry)
            return entry_id

        writer.append = watched  # type: ignore[method-assign]
        return made, writer


class TopicOwner(ChainWriter):
    world: TopicWorld

    async def main(self) -> None:
        while True:
            store = await self.open_metadata()
            client = _WatchedClient(store, self.transport, self.clock, self.chance, self.world.plan.client)
            client.checker = self.world.checker
            self.client = client
            try:
                await client.start()
                await self.work(client, store)
                return
            except MetadataError as error:
                self.trace(f"{type(error).__name__}: {error}")
            finally:
                await client.close()
                await store.close()
            await self.clock.sleep(0.2 + self.chance.random())

    async def work(self, client: LedgerClient, store: MetadataStore) -> None:
        world, chance = self.world, self.chance
        while world.entries_left > 0 and store.session.state.name != "LOST":
            name = chance.choice(world.topics)
            if chance.random() < world.deletes:
                await self._delete(client, name)
            log = await self.opened(client, name)
            if log is not None:
                await self._own(log)
            await self.clock.sleep(0.1 + chance.random() * chance.choice((0.5, 3.0)))

    async def opened(self, client: LedgerClient, name: TopicName) -> ManagedLedger | None:
        options = self.world.options
        cache = EntryCache(self.chance.choice((0, 2_000, 1_000_000)), 2)
        try:
            log = await ManagedLedger.open(name, client, cache, options, self.clock, self.chance, create=True)
        except BrokerError as error:
            self.trace(f"could not open {name}: {error}")
            self.world.count("could not open a topic")
            return None
        self.trace(f"has {name}, from {log.before_first} to {log.last}")
        self.world.count("opened")
        return log

    async def _delete(self, client: LedgerClient, name: TopicName) -> None:
        try:
            await delete_topic(name, client, self.clock, self.chance)
            self.world.count("topics deleted")
        except (BrokerError, MetadataError) as error:
            self.trace(f"could not delete {name}: {error}")

    async def _own(self, log: ManagedLedger) -> None:
        world, chance = self.world, self.chance
        lost: list[object] = []
        log.on_lost = lost.append
        ends = self.clock.monotonic() + chance.random() * chance.choice((1.0, 5.0, 15.0))
        while not lost and world.entries_left > 0 and self.clock.monotonic() < ends:
            for _ in range(1 + chance.below(8)):
                self.append(log)
            await self.clock.sleep(chance.random() * chance.choice((0.002, 0.1, 0.5)))
            log.tick(self.clock.monotonic())
            try:
                if chance.random() < 0.15:
                    await self.read(log, most=1 + chance.below(20))
                if chance.random() < 0.05:
                    await self._trim(log)
            except BrokerError as error:
                self.trace(f"{type(error).__name__}: {error}")
        if lost:
            self.trace(f"lost it: {lost[0]}")
            world.count("lost")
        elif chance.random() < 0.5:
            await log.close()
        else:
            log.abandon()

    async def _trim(self, log: ManagedLedger) -> None:
        acknowledged = list(self.world.history(log.incarnation).acknowledged.values())
        if acknowledged and await log.trim(self.chance.choice(acknowledged)):
            self.world.count("trimmed")

    def append(self, log: ManagedLedger) -> None:
        world = self.world
        world.entries_left -= 1
        self.made += 1
        owner = f"{self.name}.{self.lives}".encode()
        payload = b"%s %d %s" % (owner, self.made, b"." * self.chance.below(40))
        history = world.history(log.incarnation)
        history.appended[payload] = None
        log.append(encode_entry(_METADATA, payload), 1, 0, partial(self._told, log.incarnation, owner, payload))

    def _told(self, incarnation: str, owner: bytes, payload: bytes, result: Position | BrokerError) -> None:
        if isinstance(result, BrokerError):
            self.world.count(f"refused: {type(result).__name__}")
            return
        self.world.count("entries acknowledged")
        self.world.guarded(self.world.history(incarnation).was_acknowledged, owner, payload, result)

    async def read(self, log: ManagedLedger, most: int) -> list[tuple[Position, bytes, int]]:
        found: list[tuple[Position, bytes, int]] = []
        start = EARLIEST
        while len(found) < most:
            entries = await log.read(start, 1 + self.chance.below(5), 1_000_000)
            if not entries:
                break
            for entry in entries:
                self.world.checker.was_read(*entry.position, entry.stored)
                found.append((entry.position, decode_entry(entry.stored).payload, entry.index))
            start = Position(found[-1][0].ledger_id, found[-1][0].entry_id + 1)
        self.world.count("read", len(found))
        return found


class LastOwner(TopicOwner):
    """When all has healed: opens each topic, appends, and reads it whole."""

    def __init__(self, world: TopicWorld, name: str) -> None:
        super().__init__(world, name)
        self.doing = "starts"
        self.done = False

    async def work(self, client: LedgerClient, store: MetadataStore) -> None:
        for name in self.world.topics:
            while not await self._whole(client, name):
                await self.clock.sleep(0.5)
        self.done = True

    async def _whole(self, client: LedgerClient, name: TopicName) -> bool:
        self.doing = f"opens {name}"
        log = await self.opened(client, name)
        if log is None:
            return False
        try:
            self.doing = f"writes {name}"
            self.append(log)
            while log.pending_bytes:
                await self.clock.sleep(0.05)
            self.doing = f"reads {name}"
            found = await self.read(log, most=10**9)
            await log.trim(EARLIEST)  # finishes what deletions there are
            await log.close()
        except BrokerError as error:
            self.doing += f": {error}"
            self.trace(self.doing)
            log.abandon()
            return False
        self.world.guarded(self.world.history(log.incarnation).check, log.before_first, found)
        self.world.count("found at the end", len(found))
        return True
