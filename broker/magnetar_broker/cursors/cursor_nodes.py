"""The nodes of a topic's cursors in the metadata store, as the topic's owner changes them.

Theory of operation
-------------------
A broker that opens the cursors claims them: it writes its owner epoch into the table's node. From then on each change
of a cursor's node is one transaction with a check that the table's node is still at that version. So a broker that was
replaced, and does not know it yet, creates no cursor, points none at another ledger, and deletes none: its successor
has read the nodes before and would not see the change. Its acknowledgements fail, since the successor fences the
ledgers that it reads. All changes before the claim are visible to reads after it.

No other broker changes a cursor's node, so a change is refused unless the node has the bytes that this owner
has read or written last.

A topic can be deleted and created again under the same name, and a new node has the same versions as the old one had.
So the version alone does not identify the table's node or a cursor's node: each transaction also checks that the node
of the topic's incarnation exists (topic_node.py).

A cursor's node that compare_and_set.py can't decode is damage of that cursor alone. Only an administrator's reset or
deletion changes it: it is replaced or deleted at the version that was read, whatever it holds.

The table's node holds nothing but the owner's epoch, so one that can't be decoded loses nothing. A claim logs its bytes
and replaces it at the version that was read. The new version refuses every earlier owner, as that of any claim does.

A change raises the broker's errors. `TopicUnloaded`: another broker has claimed the cursors, or the outcome is unknown.
`BrokerError` METADATA_ERROR: nothing was done; try again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

from google.protobuf.message import DecodeError

from magnetar_bookie.errors import LedgerNotClaimed
from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_bookie.ledger.ledger_metadata_store import NewLedger
from magnetar_broker import paths
from magnetar_broker.errors import BrokerError, TopicUnloaded
from magnetar_broker.managed_ledger.position import Position
from magnetar_metadata import compare_and_set
from magnetar_metadata.errors import ForeignValue, MetadataError, NotSent, Refused, StoreFull, Unavailable
from magnetar_metadata.store import Check, Delete, Node, Put
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.cursor_pb2 import CursorNode, CursorPlace, CursorTableNode
from magnetar_wire.clock import Clock
from magnetar_wire.path_component import decode_path_component
from magnetar_wire.randomness import Randomness
from magnetar_wire.topic_name import TopicName

__all__ = ["LOGGED_BYTES", "CursorNodes", "KnownNode", "point_node"]

_log = logging.getLogger(__name__)
# How many bytes of a node that can't be decoded are logged.
LOGGED_BYTES: Final = 1_024

_OWNER_EPOCH_BYTES: Final = 16


class KnownNode:
    """A cursor's node as this owner has read or written it last."""

    __slots__ = ("foreign", "ledger_id", "left_ledgers", "stored", "undecoded")

    def __init__(
        self, stored: compare_and_set.StoredValue | None = None, foreign: str = "", undecoded: Node | None = None
    ) -> None:
        self.set(stored, foreign, undecoded)

    def set(self, stored: compare_and_set.StoredValue | None, foreign: str = "", undecoded: Node | None = None) -> None:
        # None: there is none, or it can't be decoded.
        self.stored = stored
        # Why the bytes are no cursor's node; empty: they are one.
        self.foreign = foreign
        # The node, where compare_and_set.py can't decode its value.
        self.undecoded = undecoded
        node = self.node
        # The ledger that the node points at; 0: none.
        self.ledger_id = node.ledger_id
        # The number of former ledgers that it names.
        self.left_ledgers = len(node.deleting)

    @property
    def exists(self) -> bool:
        return self.stored is not None or self.undecoded is not None

    @property
    def value(self) -> bytes:
        """All bytes that are stored, to be logged."""
        if self.undecoded is not None:
            return self.undecoded.value
        return self.stored.value if self.stored is not None else b""

    @property
    def payload(self) -> bytes | None:
        return self.stored.payload if self.stored is not None else None

    @property
    def node(self) -> CursorNode:
        return CursorNode() if self.foreign else CursorNode.FromString(self.payload or b"")


class CursorNodes:
    __slots__ = ("_checks", "_client", "_clock", "_randomness", "_topic")

    def __init__(self, topic: TopicName, client: LedgerClient, clock: Clock, randomness: Randomness) -> None:
        self._topic = topic
        self._client = client
        self._clock = clock
        self._randomness = randomness
        # The checks of each transaction: the table's node's version, the topic's incarnation. Empty: not claimed.
        self._checks: tuple[Check, ...] = ()

    async def claim(
        self,
        incarnation: str,
        ownership_checks: Callable[[], Sequence[Check]],
        prefetched: compare_and_set.StoredValue | None = None,
    ) -> None:
        """Claim the cursors of this incarnation of the topic for this owner. `prefetched` is the table's node as it was
        read before.

        `ownership_checks` returns checks that hold while the topic is this owner's: a claim that came late would create
        the node of a deleted topic again, empty, or claim the cursors of a later topic of that name.
        """
        while True:
            checks = ownership_checks()
            try:
                version = await self._write_owner_epoch(checks, prefetched) or await self._write_owner_epoch(checks)
                self._checks = (
                    Check(paths.cursors(self._topic), version),
                    Check(paths.incarnation(self._topic, incarnation), 0),
                )
                return
            except TopicUnloaded:
                if ownership_checks() == checks:
                    raise  # else the log has changed the topic's node meanwhile

    async def _write_owner_epoch(
        self, checks: Sequence[Check], prefetched: compare_and_set.StoredValue | None = None
    ) -> int:
        """Write the owner epoch into the table's node. Returns the node's version.

        0 is no version to check: a node that the store creates as the parent of a cursor's node has it, too. After the
        topic was deleted such a node would pass the check of a broker that does not know it yet.
        """
        node = CursorTableNode(life=self._randomness.token(_OWNER_EPOCH_BYTES)).SerializeToString()
        try:
            stored = await self._compare_and_set(paths.cursors(self._topic), lambda _: node, checks, prefetched)
        except ForeignValue as error:
            return await self._replace_undecodable_table(node, checks, error)
        except MetadataError as error:
            raise _translate_error(error, self._topic) from error
        assert stored is not None
        return stored.version

    async def _replace_undecodable_table(self, payload: bytes, checks: Sequence[Check], problem: ForeignValue) -> int:
        """Returns the version that the table's node has then."""
        path = paths.cursors(self._topic)
        try:
            node = await self._client.ledgers.store.get_after_sync(path)
        except MetadataError as error:
            raise _translate_error(error, self._topic) from error
        if node is None or _decodes(node):
            return await self._write_owner_epoch(checks)
        value = compare_and_set.encode_first_value(payload, self._randomness)
        await self._change_undecoded(Put(path, value, node.version), checks)
        _log.error(
            "%s: the topic's owner has replaced the node, and no cursor is affected; its %d bytes began with %s",
            problem, len(node.value), node.value[:LOGGED_BYTES].hex(),
        )  # fmt: skip
        return node.version + 1

    async def names(self) -> list[str]:
        folder = paths.cursors(self._topic)
        try:
            children = await self._client.ledgers.store.children(folder)
        except MetadataError as error:
            raise _translate_error(error, self._topic) from error
        names = []
        for child in children:
            try:
                names.append(decode_path_component(child))
            except ValueError as error:
                self._client.ledgers.undecodable_nodes.log_once(f"{folder}/{child}", error)
        return names

    async def read(self, name: str) -> KnownNode:
        path = paths.cursor(self._topic, name)
        try:
            node = await self._client.ledgers.store.get(path)
        except MetadataError as error:
            raise _translate_error(error, self._topic) from error
        if node is None:
            return KnownNode()
        try:
            stored = compare_and_set.decode_stored(node.value, node.version)
        except ForeignValue as error:
            return KnownNode(None, f"{path} is not a valid cursor: {error}", node)
        try:
            CursorNode.FromString(stored.payload)
        except DecodeError as error:
            return KnownNode(stored, f"{path} is not a valid cursor: {error}")
        return KnownNode(stored)

    async def write(self, name: str, known: KnownNode, node: CursorNode, made: NewLedger | None = None) -> None:
        """Replace the node `known` by `node`, and record the new ledger with it. Raises `LedgerNotClaimed`, too."""
        payload = node.SerializeToString()

        def update(found: bytes | None) -> bytes:
            self._compare(name, known, found)
            return payload

        path = paths.cursor(self._topic, name)
        if (undecoded := known.undecoded) is not None:
            assert made is None, "a cursor whose node can't be decoded has no new ledger"
            value = compare_and_set.encode_first_value(payload, self._randomness)
            await self._change_undecoded(Put(path, value, undecoded.version), self._claimed)
            known.set(compare_and_set.decode_stored(value, undecoded.version + 1))
        elif made is None:
            known.set(await self._change(path, update, self._claimed, known.stored))
        else:
            try:
                known.set(await self._client.ledgers.claim_ledger(made, path, update, self._claimed, known.stored))
            except (MetadataError, BrokerError) as error:
                raise _translate_error(error, self._topic) from error

    async def remove(self, name: str, known: KnownNode) -> None:
        def update(found: bytes | None) -> compare_and_set.UpdateAction:
            if found is None:
                return compare_and_set.LEAVE
            self._compare(name, known, found)
            return compare_and_set.DELETE

        path = paths.cursor(self._topic, name)
        if known.undecoded is not None:
            await self._change_undecoded(Delete(path, known.undecoded.version), self._claimed)
        else:
            await self._change(path, update, self._claimed, known.stored)
        known.set(None)

    async def remove_table(self) -> None:
        """Delete the table's node, of a topic that is being deleted and has no cursor any more."""
        _, this_topic = self._claimed
        self._checks = ()
        await self._change(paths.cursors(self._topic), lambda _: compare_and_set.DELETE, [this_topic])

    @property
    def _claimed(self) -> Sequence[Check]:
        assert self._checks, "the cursors are not claimed"
        return self._checks

    def _compare(self, name: str, known: KnownNode, found: bytes | None) -> None:
        if found != known.payload:
            raise TopicUnloaded(
                f"cursor {name!r} of {self._topic} was changed by another broker, which owns the topic now"
            )

    async def _change_undecoded(self, change: Put | Delete, checks: Sequence[Check]) -> None:
        """Makes the change once. An unknown outcome closes the topic, and the next opening reads the node."""
        try:
            await self._client.ledgers.store.transaction([change, *checks])
        except MetadataError as error:
            raise _translate_error(error, self._topic) from error

    async def _change(
        self,
        path: str,
        update: Callable[[bytes | None], bytes | compare_and_set.UpdateAction],
        checks: Sequence[Check],
        prefetched: compare_and_set.StoredValue | None = None,
    ) -> compare_and_set.StoredValue | None:
        try:
            return await self._compare_and_set(path, update, checks, prefetched)
        except MetadataError as error:
            raise _translate_error(error, self._topic) from error

    async def _compare_and_set(
        self,
        path: str,
        update: Callable[[bytes | None], bytes | compare_and_set.UpdateAction],
        checks: Sequence[Check],
        prefetched: compare_and_set.StoredValue | None,
    ) -> compare_and_set.StoredValue | None:
        return await compare_and_set.change(
            self._client.ledgers.store,
            path,
            update,
            clock=self._clock,
            randomness=self._randomness,
            along=checks,
            known=prefetched,
        )


def point_node(node: CursorNode, ledger_id: int, mark_delete: Position, moves: int, take_overs: int) -> None:
    """Has the node name another ledger, or none (0), and the state at its beginning; its former ledger is to be
    deleted."""
    if node.ledger_id:
        node.deleting.append(node.ledger_id)
    node.ledger_id, node.moves, node.take_overs = ledger_id, moves, take_overs
    node.mark_delete.CopyFrom(CursorPlace(ledger_id=mark_delete.ledger_id, entry_id=mark_delete.entry_id))


def _decodes(node: Node) -> bool:
    try:
        compare_and_set.decode_stored(node.value, node.version)
    except ForeignValue:
        return False
    return True


def _translate_error(error: Exception, topic: TopicName) -> Exception:
    if isinstance(error, BrokerError | LedgerNotClaimed):
        return error
    if isinstance(error, Refused) and error.index > 0:
        return TopicUnloaded(f"the cursors of {topic} were opened by another broker")
    if isinstance(error, NotSent | StoreFull):
        return BrokerError(ErrorCode.METADATA_ERROR, f"the cursors of {topic} were not changed: {error}")
    if isinstance(error, Unavailable):
        return TopicUnloaded(f"unknown whether the cursors of {topic} were changed: {error}")
    return TopicUnloaded(f"the cursors of {topic} can't be changed: {error}")
