"""A topic's node in the metadata store, with the list of ledgers and the leases, as the topic's owner changes it.

Theory of operation
-------------------
A broker that opens the topic draws a random token, its **owner epoch**, and writes it into the node before it reads
anything else. From then on the changes of all other brokers, and of earlier epochs of this one, are refused: also that
of a broker that has created the next ledger and not recorded it yet. So only the owner changes the list, and what it
knows of the list is true until it changes it or is refused. Which entries the last ledger has is decided by its fence.

A topic can be deleted and created again under its path, and the two nodes have the same versions: a change that was in
flight for long could be applied to the wrong node. So each incarnation has a node of its own below, created and deleted
with the topic's, and each change checks that it exists.

Changes are made one at a time. If the caller is cancelled, its change continues, so list and node never differ. If the
outcome of a change is unknown, the broker unloads the topic.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_bookie.ledger.ledger_metadata_store import NewLedger
from magnetar_broker import paths
from magnetar_broker.errors import BrokerError, NamespaceChanged, TopicUnloaded
from magnetar_broker.managed_ledger.lease_rules import Leases, encode_lease
from magnetar_broker.managed_ledger.ledger_list import ForeignList, LedgerList, ListChange
from magnetar_broker.managed_ledger.namespace_leases import read_leases_for
from magnetar_broker.topic_properties import check_properties
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

__all__ = ["BeingDeleted", "NewTopic", "TopicNode", "decode_topic", "page_path", "read_pages"]

_OWNER_EPOCH_BYTES: Final = 8
_UUID_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class NewTopic:
    """What a topic is created with, where it does not exist."""

    # Checks of the transaction that creates it.
    checks: Sequence[Change] = ()
    properties: Mapping[str, bytes] = field(default_factory=dict)


class BeingDeleted(Exception):
    """The topic is being deleted: finish that first. The argument is its incarnation."""


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
        "previous_owner_epoch",
    )

    def __init__(self, name: TopicName, client: LedgerClient, clock: Clock, randomness: Randomness) -> None:
        self.name = name
        self._path = paths.topic(name)
        self._client = client
        self._clock = clock
        self._randomness = randomness
        self._owner_epoch = randomness.token(_OWNER_EPOCH_BYTES)
        # The one that it has replaced: of the last owner before.
        self.previous_owner_epoch = b""
        self.ledger_list = LedgerList("")
        self.leases = Leases()
        # The topic's incarnation, and the node as this owner has written it last.
        self._incarnation = ""
        self._stored = StoredValue(b"", 0, b"")
        # The change in flight, if any. The next one waits for it.
        self._changing: asyncio.Task[None] | None = None

    @property
    def owner_epoch(self) -> bytes:
        """The token that the node has while this broker owns the topic."""
        return self._owner_epoch

    @property
    def topic_epoch(self) -> pb.TopicEpoch | None:
        """Return the epoch of exclusive producers as it is stored; None: there was none."""
        node = decode_topic(self._path, self._stored.payload)
        return node.topic_epoch if node.HasField("topic_epoch") else None

    async def claim(self, if_absent: NewTopic | None = None, prefetched: StoredValue | None = None) -> None:
        """Write the owner epoch into the node, and read it. From then on no other broker changes it.

        `if_absent`: create the topic so if it does not exist; None: it must exist. `prefetched` is the node if it was
        read before.
        Raises `BeingDeleted`, TOPIC_NOT_FOUND, `NamespaceChanged` if a check of `if_absent` was refused, and the errors
        of the metadata store.
        """
        stored, node = None, pb.ManagedLedgerNode()
        begun_at = self._clock.monotonic()
        while stored is None or node.owner_epoch != self._owner_epoch:
            stored, prefetched = prefetched or await compare_and_set.read(self._store, self._path), None
            if stored is None:
                stored = await compare_and_set.read(self._store, self._path, fresh=True)
            if stored is None:
                if if_absent is None:
                    raise BrokerError(ErrorCode.TOPIC_NOT_FOUND, f"there is no topic {self.name}")
                await self._create(if_absent)
                continue
            self._incarnation = decode_topic(self._path, stored.payload).incarnation
            stored = await self._write_epoch(stored)
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
        self.leases.load(node.leases, begun_at, self._clock.monotonic())

    async def _create(self, new: NewTopic) -> None:
        """Create the topic, with the leases that its namespace has for it, unless another broker does."""
        incarnation = self._randomness.token(_UUID_BYTES).hex()
        # After a sync, so it is at least the highest ledger id of an earlier topic with this name.
        floor = await self._client.ledgers.last_ledger_id()
        leases: list[pb.LedgerLease] = []

        def create(payload: bytes | None) -> bytes | UpdateAction:
            if payload is not None:
                return LEAVE
            return pb.ManagedLedgerNode(
                incarnation=incarnation,
                owner_epoch=self._owner_epoch,
                floor=floor,
                leases=leases,
                properties=new.properties,
            ).SerializeToString()

        allowed, changes = len(new.checks), list(new.checks)
        try:
            leases, leases_unchanged = await read_leases_for(
                self.name, self._store, self._clock, self._randomness, new.checks
            )
            changes += [Put(paths.incarnation(self.name, incarnation), b"", ABSENT), leases_unchanged]
            await self._change_node(create, changes)
        except StoreFull:
            raise
        except Refused as error:
            if not error.index:
                raise
            if error.index > allowed + 1:
                return  # a lease on the namespace changed since it was read: the caller tries again
            raise NamespaceChanged(
                f"topic {self.name} was not created, since its namespace was changed at the same time: try again"
            ) from error

    async def _write_epoch(self, known: StoredValue) -> StoredValue | None:
        """Write the owner epoch into the node, unless the topic is being deleted. Return the node; None: it is another
        topic by now."""

        def write_epoch(payload: bytes | None) -> bytes | UpdateAction:
            node = None if payload is None else decode_topic(self._path, payload)
            if node is None or node.state == pb.DELETING or node.incarnation != self._incarnation:
                return LEAVE
            if node.owner_epoch != self._owner_epoch:
                self.previous_owner_epoch = node.owner_epoch
            node.owner_epoch = self._owner_epoch
            return node.SerializeToString()

        try:
            return await self._change_node(write_epoch, [self._is_this_one], known)
        except (BadVersion, NoNode) as error:
            if not error.index:
                raise
            await self._store.sync()
            return None

    @property
    def _is_this_one(self) -> Check:
        return Check(paths.incarnation(self.name, self._incarnation), 0)

    async def _change_node(
        self, update: Update, along: Sequence[Change] = (), known: StoredValue | None = None
    ) -> StoredValue | None:
        return await compare_and_set.change(
            self._store, self._path, update, clock=self._clock, randomness=self._randomness, along=along, known=known
        )

    @property
    def ownership_checks(self) -> Sequence[Check]:
        """Checks of a transaction which hold only while this broker owns the topic."""
        return Check(self._path, self._stored.version), self._is_this_one

    async def check_current(self) -> None:
        """Read the node after a sync. Raises `TopicUnloaded` if it has another owner epoch, and `MetadataError`."""
        stored = await compare_and_set.read(self._store, self._path, fresh=True)
        if stored is None or decode_topic(self._path, stored.payload).owner_epoch != self._owner_epoch:
            raise TopicUnloaded(f"topic {self.name} was opened by another broker, or deleted")

    async def read_first_partition_epoch(self) -> int | None:
        """Return the epoch number of the topic's first partition, after a sync; None: it has none."""
        path = paths.topic(self.name.base.partition(0))
        stored = await compare_and_set.read(self._store, path, fresh=True)
        node = None if stored is None else decode_topic(path, stored.payload)
        return node.topic_epoch.number if node is not None and node.HasField("topic_epoch") else None

    async def change(self, change: ListChange, new_ledger: NewLedger | None = None) -> None:
        """Make the change in the node, and then in `ledger_list`. `new_ledger` is the one that it adds: its intent is
        deleted in the same transaction.

        Raises `TopicUnloaded` if the topic has another owner or the outcome is unknown, and `LedgerNotClaimed`. After
        other errors of the metadata store nothing is changed.
        """
        await self.wait_until_unchanged()
        task = self._changing = asyncio.create_task(self._change(change, new_ledger))
        task.add_done_callback(self._on_changed)
        await asyncio.shield(task)

    async def wait_until_unchanged(self) -> None:
        """Wait until no change is in flight. A change that the caller makes in the same turn of the event loop is made
        of the state that it sees now."""
        while self._changing is not None:
            await asyncio.wait([self._changing])

    def _on_changed(self, task: asyncio.Task[None]) -> None:
        self._changing = None
        if not task.cancelled():
            task.exception()  # asyncio does not log it, should the caller have been cancelled

    async def _change(self, change: ListChange, new_ledger: NewLedger | None) -> None:
        known, result = self.ledger_list, pb.ManagedLedgerNode()
        begun_at = self._clock.monotonic()
        leases = self.leases.begin_change(change.lease, begun_at)

        def update(payload: bytes | None) -> bytes:
            nonlocal result
            node = None if payload is None else decode_topic(self._path, payload)
            if node is None or node.state == pb.DELETING:
                raise TopicUnloaded(f"topic {self.name} is being deleted")
            if node.owner_epoch != self._owner_epoch:
                raise TopicUnloaded(f"topic {self.name} was reopened by this broker or another one")
            known.encode(change, node)
            del node.leases[:]
            node.leases.extend(map(encode_lease, leases))
            for name, value in change.properties.items():
                if value is None:
                    node.properties.pop(name, None)
                else:
                    node.properties[name] = value
            if change.properties:
                check_properties(node.properties)
            if change.topic_epoch is not None:
                node.topic_epoch.CopyFrom(change.topic_epoch)
            result = node
            return node.SerializeToString()

        new, deleted = known.encode(change, pb.ManagedLedgerNode())
        along: list[Change] = [self._is_this_one]
        along += [
            Put(page_path(self.name, page.number), encode_first_value(page.payload, self._randomness), ABSENT)
            for page in new
        ]
        along += [Delete(page_path(self.name, number), ANY) for number in deleted]
        try:
            if new_ledger is not None:
                stored = await self._client.ledgers.claim_ledger(new_ledger, self._path, update, along, self._stored)
            else:
                stored = await self._change_node(update, along, self._stored)
        except OutcomeUnknown as error:
            raise TopicUnloaded(f"unknown whether the ledgers of topic {self.name} were changed: {error}") from error
        except (BadVersion, NoNode) as error:
            raise TopicUnloaded(f"topic {self.name} was deleted: {error}") from error
        assert stored is not None
        self._stored = stored
        known.apply(change, result)
        self.leases.commit_change(leases, change.lease, begun_at, self._clock.monotonic())

    @property
    def _store(self) -> MetadataStore:
        return self._client.ledgers.store


def page_path(name: TopicName, number: int) -> str:
    return f"{paths.pages(name)}/{number}"


def decode_topic(path: str, payload: bytes) -> pb.ManagedLedgerNode:
    return decode_node(pb.ManagedLedgerNode, path, payload)


async def read_pages(store: MetadataStore, name: TopicName, node: pb.ManagedLedgerNode) -> list[pb.LedgerPage]:
    """Return the pages that exist: a deletion deletes them before the node that names them."""
    pages = []
    for page in node.pages:
        path = page_path(name, page.number)
        stored = await compare_and_set.read(store, path)
        if stored is not None:
            pages.append(decode_node(pb.LedgerPage, path, stored.payload))
        elif node.state != pb.DELETING:
            raise ForeignValue(f"{path!r} does not exist, but {paths.topic(name)!r} names it")
    return pages
