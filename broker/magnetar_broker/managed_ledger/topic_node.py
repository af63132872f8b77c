"""A topic's node in the metadata store, as one life of its owner changes it.

A **life** is one opening of the topic by one broker. It puts a number of its own, drawn at random, into the node before
it looks at anything else, and from then on every other life's change is refused: also that of a broker that had
made, but not recorded, the next ledger. So the list that a life took over is its own, and what it knows of it stays
true until it changes it or is refused. Which entries the last ledger holds its fence decides.

A topic may be deleted and made again under its path, and versions of the two nodes look alike to the metadata store: a
change that was on its way for long could land on the wrong one. So each incarnation has a node of its own below, made
and deleted with it, and each change checks that it is there.

Changes are made one at a time, each whole whatever becomes of its caller: who is cancelled leaves the change under way,
so that list and node never differ. One whose outcome can't be found out ends the life.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_bookie.ledger.ledger_metadata_store import NewLedger
from magnetar_broker import paths
from magnetar_broker.errors import BrokerError, TopicUnloaded
from magnetar_broker.managed_ledger.lease_rules import Leases, encoded
from magnetar_broker.managed_ledger.ledger_list import ForeignList, LedgerList, ListChange
from magnetar_broker.managed_ledger.namespace_leases import read_leases_for
from magnetar_metadata import compare_and_set
from magnetar_metadata.compare_and_set import LEAVE, StoredValue, Update, UpdateAction, encode_first_value
from magnetar_metadata.errors import BadVersion, ForeignValue, NoNode, OutcomeUnknown, Refused, StoreFull
from magnetar_metadata.store import ABSENT, ANY, Change, Check, Delete, MetadataStore, Put
from magnetar_metadata.undecodable_nodes import decode_node
from magnetar_protos import managed_ledger_pb2 as pb
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_wire.clock import Clock
from magnetar_wire.randomness import Randomness
from magnetar_wire.topic_name import TopicName

__all__ = ["BeingDeleted", "TopicNode", "decode_topic", "page_path", "read_pages"]

_OWNER_EPOCH_BYTES: Final = 8
_UUID_BYTES: Final = 16


class BeingDeleted(Exception):
    """The deletion of this incarnation was begun, and must be finished before anything else."""


class TopicNode:
    __slots__ = (
        "_changing",
        "_client",
        "_clock",
        "_incarnation",
        "_owner_epoch",
        "_path",
        "_randomness",
        "_stored",
        "leases",
        "ledger_list",
        "name",
    )

    def __init__(self, name: TopicName, client: LedgerClient, clock: Clock, randomness: Randomness) -> None:
        self.name = name
        self._path = paths.topic(name)
        self._client = client
        self._clock = clock
        self._randomness = randomness
        self._owner_epoch = randomness.token(_OWNER_EPOCH_BYTES)
        self.ledger_list = LedgerList("")
        self.leases = Leases()
        # The topic's, and the node as this life has left it.
        self._incarnation = ""
        self._stored = StoredValue(b"", 0, b"")
        # The change under way, if any; whoever comes next waits for it.
        self._changing: asyncio.Task[None] | None = None

    @property
    def owner_epoch(self) -> bytes:
        return self._owner_epoch

    async def claim(self, *, create: bool, along: Sequence[Change] = (), prefetched: StoredValue | None = None) -> None:
        """Begins this life: from here on nobody else's changes the node. `along` goes with the making of a topic.
        `prefetched` is the node as it was read before, if it was.

        Raises `BeingDeleted`, TOPIC_NOT_FOUND, SERVICE_NOT_READY where one of `along` was refused, and what the
        metadata store raises.
        """
        stored, node = None, pb.ManagedLedgerNode()
        asked_at = self._clock.monotonic()
        while stored is None or node.life != self._owner_epoch:
            stored, prefetched = prefetched or await compare_and_set.read(self._store, self._path), None
            if stored is None:
                stored = await compare_and_set.read(self._store, self._path, fresh=True)
            if stored is None:
                if not create:
                    raise BrokerError(ErrorCode.TOPIC_NOT_FOUND, f"there is no topic {self.name}")
                await self._make(along)
                continue
            self._incarnation = decode_topic(self._path, stored.payload).incarnation
            stored = await self._claimed(stored)
            if stored is not None:
                node = decode_topic(self._path, stored.payload)
                if node.state == pb.DELETING:
                    raise BeingDeleted(node.incarnation)
        self._stored = stored
        pages = await read_pages(self._store, self.name, node)
        try:
            self.ledger_list = LedgerList.decode(node, pages)
        except ForeignList as error:
            raise ForeignValue(f"{self._path!r}: {error}") from None
        self.leases.found(node.leases, asked_at, self._clock.monotonic())

    async def _make(self, along: Sequence[Change]) -> None:
        """Make the topic, with the leases that its namespace has for it, unless somebody else does."""
        incarnation = self._randomness.token(_UUID_BYTES).hex()
        # After a sync, so it is no less than what whoever had the name before has drawn and used.
        floor = await self._client.ledgers.last_ledger_id()
        leases: list[pb.LedgerLease] = []

        def made(payload: bytes | None) -> bytes | UpdateAction:
            if payload is not None:
                return LEAVE
            return pb.ManagedLedgerNode(
                incarnation=incarnation, life=self._owner_epoch, floor=floor, leases=leases
            ).SerializeToString()

        allowed, changes = len(along), list(along)
        try:
            leases, leases_unchanged = await read_leases_for(
                self.name, self._store, self._clock, self._randomness, along
            )
            changes += [Put(paths.incarnation(self.name, incarnation), b"", ABSENT), leases_unchanged]
            await self._changed_to(made, changes)
        except StoreFull:
            raise
        except Refused as error:
            if not error.index:
                raise
            if error.index > allowed + 1:
                return  # a lease on the namespace was taken, renewed or ended meanwhile: the caller tries again
            text = f"topic {self.name} was not created, since its namespace was changed at the same time: try again"
            raise BrokerError(ErrorCode.SERVICE_NOT_READY, text) from error

    async def _claimed(self, known: StoredValue) -> StoredValue | None:
        """What stands there, with this life in it unless it is being deleted; None: it is another topic by now."""

        def claimed(payload: bytes | None) -> bytes | UpdateAction:
            node = None if payload is None else decode_topic(self._path, payload)
            if node is None or node.state == pb.DELETING or node.incarnation != self._incarnation:
                return LEAVE
            node.life = self._owner_epoch
            return node.SerializeToString()

        try:
            return await self._changed_to(claimed, [self._is_this_one], known)
        except (BadVersion, NoNode) as error:
            if not error.index:
                raise
            await self._store.sync()
            return None

    @property
    def _is_this_one(self) -> Check:
        return Check(paths.incarnation(self.name, self._incarnation), 0)

    async def _changed_to(
        self, update: Update, along: Sequence[Change] = (), known: StoredValue | None = None
    ) -> StoredValue | None:
        return await compare_and_set.change(
            self._store, self._path, update, clock=self._clock, randomness=self._randomness, along=along, known=known
        )

    @property
    def ownership_checks(self) -> Sequence[Check]:
        """What goes into a transaction that is to be made only if the topic is still this life's."""
        return Check(self._path, self._stored.version), self._is_this_one

    async def check_current(self) -> None:
        """Read the node afresh. Raises `TopicUnloaded` if it is not this life's any more, and `MetadataError`."""
        stored = await compare_and_set.read(self._store, self._path, fresh=True)
        if stored is None or decode_topic(self._path, stored.payload).life != self._owner_epoch:
            raise TopicUnloaded(f"topic {self.name} was opened by another broker, or deleted")

    async def change(self, change: ListChange, made: NewLedger | None = None) -> None:
        """Makes the change, durably, and then in `list`. With `made` the new ledger's intent goes at the same time.

        Raises `TopicUnloaded` if the node is not this life's any more or nobody can tell, and `LedgerNotClaimed`; of
        other errors of the metadata store nothing was changed.
        """
        await self.settled()
        task = self._changing = asyncio.create_task(self._change(change, made))
        task.add_done_callback(self._changed)
        await asyncio.shield(task)

    async def settled(self) -> None:
        """Returns when no change is under way. Who makes one in the same turn of the loop has decided on it by what
        there then is: nothing comes between."""
        while self._changing is not None:
            await asyncio.wait([self._changing])

    def _changed(self, task: asyncio.Task[None]) -> None:
        self._changing = None
        if not task.cancelled():
            task.exception()  # prefetched, should its caller have been cancelled

    async def _change(self, change: ListChange, made: NewLedger | None) -> None:
        known, result = self.ledger_list, pb.ManagedLedgerNode()
        asked_at = self._clock.monotonic()
        leases = self.leases.begin(change.lease, asked_at)

        def changed(payload: bytes | None) -> bytes:
            nonlocal result
            node = None if payload is None else decode_topic(self._path, payload)
            if node is None or node.state == pb.DELETING:
                raise TopicUnloaded(f"topic {self.name} is being deleted")
            if node.life != self._owner_epoch:
                raise TopicUnloaded(f"topic {self.name} was reopened by this broker or another one")
            known.encode(change, node)
            del node.leases[:]
            node.leases.extend(map(encoded, leases))
            result = node
            return node.SerializeToString()

        new, gone = known.encode(change, pb.ManagedLedgerNode())
        along: list[Change] = [self._is_this_one]
        along += [
            Put(page_path(self.name, page.number), encode_first_value(page.payload, self._randomness), ABSENT)
            for page in new
        ]
        along += [Delete(page_path(self.name, number), ANY) for number in gone]
        try:
            if made is not None:
                stored = await self._client.ledgers.claim_ledger(made, self._path, changed, along, self._stored)
            else:
                stored = await self._changed_to(changed, along, self._stored)
        except OutcomeUnknown as error:
            raise TopicUnloaded(f"unknown whether the ledgers of topic {self.name} were changed: {error}") from error
        except (BadVersion, NoNode) as error:
            raise TopicUnloaded(f"topic {self.name} was deleted: {error}") from error
        assert stored is not None
        self._stored = stored
        known.apply(change, result)
        self.leases.made(leases, change.lease, asked_at, self._clock.monotonic())

    @property
    def _store(self) -> MetadataStore:
        return self._client.ledgers.store


def page_path(name: TopicName, number: int) -> str:
    return f"{paths.pages(name)}/{number}"


def decode_topic(path: str, payload: bytes) -> pb.ManagedLedgerNode:
    return decode_node(pb.ManagedLedgerNode, path, payload)


async def read_pages(store: MetadataStore, name: TopicName, node: pb.ManagedLedgerNode) -> list[pb.LedgerPage]:
    """Those that there still are: a deletion takes them away before the node that names them."""
    pages = []
    for page in node.pages:
        path = page_path(name, page.number)
        stored = await compare_and_set.read(store, path)
        if stored is not None:
            pages.append(decode_node(pb.LedgerPage, path, stored.payload))
        elif node.state != pb.DELETING:
            raise ForeignValue(f"{path!r} does not exist, but {paths.topic(name)!r} names it")
    return pages
