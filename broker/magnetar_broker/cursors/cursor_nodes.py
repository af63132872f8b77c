"""The nodes of a topic's cursors in the metadata store, as the topic's owner changes them.

Theory of operation
-------------------
A broker that opens the cursors claims them first: it writes its owner epoch into the table's node, the parent of the
cursors' nodes. Then it reads them. From then on each change of a cursor's node is a transaction which checks that the
table's node still has that version. So a broker that has lost the topic, and does not know it yet, can't create or
delete a cursor, or point it at another ledger, which the new owner would not see. Its acknowledgements fail, too, since
the new owner fences the ledgers that it reads.

No other broker changes a cursor's node. So a change is refused unless the node has the bytes that this owner has read
or written last.

A topic can be deleted and recreated under the same name, and its new nodes have the same versions as the old ones had.
So each transaction also checks that the node of the topic's incarnation exists (topic_node.py).

A cursor's node that can't be decoded affects that cursor only. It is changed only by an administrator's reset or
deletion, which replaces or deletes it at the version that was read. If the table's node can't be decoded, nothing is
lost: a claim logs its bytes and replaces it at the version that was read.

A change raises `TopicUnloaded` if another broker has claimed the cursors or the outcome is unknown, and `BrokerError`
METADATA_ERROR if nothing was changed: try again.
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
from magnetar_broker.cursors.subscription_limits import DEDUPLICATION_CURSOR
from magnetar_broker.errors import BrokerError, TopicUnloaded
from magnetar_broker.position import Position
from magnetar_metadata import compare_and_set
from magnetar_metadata.errors import ForeignValue, MetadataError, NotSent, Refused, StoreFull, Unavailable
from magnetar_metadata.store import Check, Delete, Node, Put
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.cursor_pb2 import CursorNode, CursorPosition, CursorTableNode
from magnetar_wire.clock import Clock
from magnetar_wire.path_component import decode_path_component
from magnetar_wire.randomness import Randomness
from magnetar_wire.topic_name import TopicName

__all__ = ["LOGGED_BYTES", "CursorNodes", "StoredNode", "point_node"]

_log = logging.getLogger(__name__)
# How many bytes of a node that can't be decoded are logged.
LOGGED_BYTES: Final = 1_024

_OWNER_EPOCH_BYTES: Final = 16


class StoredNode:
    """A cursor's node as this owner has read or written it last."""

    __slots__ = ("decode_error", "decoded", "former_ledger_count", "ledger_id", "undecoded", "unused_ms")

    def __init__(
        self, decoded: compare_and_set.StoredValue | None = None, decode_error: str = "", undecoded: Node | None = None
    ) -> None:
        self.record(decoded, decode_error, undecoded)

    def record(
        self, decoded: compare_and_set.StoredValue | None, decode_error: str = "", undecoded: Node | None = None
    ) -> None:
        """Record what the node has been read or written as."""
        # None: the node does not exist, or compare_and_set.py can't decode its value.
        self.decoded = decoded
        # Why the node can't be decoded; empty: it can.
        self.decode_error = decode_error
        # The node, if compare_and_set.py can't decode its value.
        self.undecoded = undecoded
        node = self.node
        # The ledger that the node points at; 0: none.
        self.ledger_id = node.ledger_id
        # The number of former ledgers that it names for deletion.
        self.former_ledger_count = len(node.deleting)
        # Until when the subscription counts as used; 0: unknown.
        self.unused_ms = node.unused_ms

    @property
    def exists(self) -> bool:
        return self.decoded is not None or self.undecoded is not None

    @property
    def value(self) -> bytes:
        """All bytes of the node, for log lines."""
        if self.undecoded is not None:
            return self.undecoded.value
        return self.decoded.value if self.decoded is not None else b""

    @property
    def payload(self) -> bytes | None:
        return self.decoded.payload if self.decoded is not None else None

    @property
    def node(self) -> CursorNode:
        return CursorNode() if self.decode_error else CursorNode.FromString(self.payload or b"")


class CursorNodes:
    __slots__ = ("_checks", "_client", "_clock", "_randomness", "_topic", "has_deduplication")

    def __init__(self, topic: TopicName, client: LedgerClient, clock: Clock, randomness: Randomness) -> None:
        self._topic = topic
        self._client = client
        self._clock = clock
        self._randomness = randomness
        # The checks of each transaction: the table's node's version, the topic's incarnation. Empty: not claimed.
        self._checks: tuple[Check, ...] = ()
        # Whether there was a cursor of deduplication at the claim.
        self.has_deduplication = False

    async def claim(
        self,
        incarnation: str,
        ownership_checks: Callable[[], Sequence[Check]],
        prefetched: compare_and_set.StoredValue | None = None,
    ) -> None:
        """Claim the cursors of this incarnation of the topic. `prefetched` is the table's node if it was read before.

        `ownership_checks` returns checks that hold while the topic is this owner's: a late claim would recreate the
        node of a deleted topic, or claim the cursors of a later topic of the same name.
        """
        while True:
            checks = ownership_checks()
            try:
                version = await self._write_owner_epoch(checks, prefetched) or await self._write_owner_epoch(checks)
                self._checks = (
                    Check(paths.cursors(self._topic), version),
                    Check(paths.incarnation(self._topic, incarnation), 0),
                )
                self.has_deduplication = (await self.read(DEDUPLICATION_CURSOR)).exists
                return
            except TopicUnloaded:
                if ownership_checks() == checks:
                    raise  # else the log has changed the topic's node in between

    async def _write_owner_epoch(
        self, checks: Sequence[Check], prefetched: compare_and_set.StoredValue | None = None
    ) -> int:
        """Write the owner epoch into the table's node. Return the node's version.

        The caller writes again if it is 0: a node that the store creates as the parent of a cursor's node has this
        version, too. After a deletion of the topic such a node would pass the check of a broker that has lost it.
        """
        node = CursorTableNode(owner_epoch=self._randomness.token(_OWNER_EPOCH_BYTES)).SerializeToString()
        try:
            stored = await self._compare_and_set(paths.cursors(self._topic), lambda _: node, checks, prefetched)
        except ForeignValue as error:
            return await self._replace_undecodable_table(node, checks, error)
        except MetadataError as error:
            raise _translate_error(error, self._topic) from error
        assert stored is not None
        return stored.version

    async def _replace_undecodable_table(self, payload: bytes, checks: Sequence[Check], problem: ForeignValue) -> int:
        """Replace a table's node that can't be decoded. Return the new version."""
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

    async def list_names(self) -> list[str]:
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

    async def read(self, name: str) -> StoredNode:
        path = paths.cursor(self._topic, name)
        try:
            node = await self._client.ledgers.store.get(path)
        except MetadataError as error:
            raise _translate_error(error, self._topic) from error
        if node is None:
            return StoredNode()
        try:
            stored = compare_and_set.decode_stored(node.value, node.version)
        except ForeignValue as error:
            return StoredNode(None, f"{path} is not a valid cursor: {error}", node)
        try:
            CursorNode.FromString(stored.payload)
        except DecodeError as error:
            return StoredNode(stored, f"{path} is not a valid cursor: {error}")
        return StoredNode(stored)

    async def write(self, name: str, stored: StoredNode, node: CursorNode, new_ledger: NewLedger | None = None) -> None:
        """Replace the node, and claim the new ledger in the same transaction. Raises `LedgerNotClaimed`, too."""
        payload = node.SerializeToString()

        def update(found: bytes | None) -> bytes:
            self._check_unchanged(name, stored, found)
            return payload

        path = paths.cursor(self._topic, name)
        if (undecoded := stored.undecoded) is not None:
            assert new_ledger is None, "a cursor whose node can't be decoded has no new ledger"
            value = compare_and_set.encode_first_value(payload, self._randomness)
            await self._change_undecoded(Put(path, value, undecoded.version), self._claimed)
            stored.record(compare_and_set.decode_stored(value, undecoded.version + 1))
        elif new_ledger is None:
            stored.record(await self._change(path, update, self._claimed, stored.decoded))
        else:
            try:
                stored.record(
                    await self._client.ledgers.claim_ledger(new_ledger, path, update, self._claimed, stored.decoded)
                )
            except (MetadataError, BrokerError) as error:
                raise _translate_error(error, self._topic) from error

    async def remove(self, name: str, stored: StoredNode) -> None:
        def update(found: bytes | None) -> compare_and_set.UpdateAction:
            if found is None:
                return compare_and_set.LEAVE
            self._check_unchanged(name, stored, found)
            return compare_and_set.DELETE

        path = paths.cursor(self._topic, name)
        if stored.undecoded is not None:
            await self._change_undecoded(Delete(path, stored.undecoded.version), self._claimed)
        else:
            await self._change(path, update, self._claimed, stored.decoded)
        stored.record(None)

    async def remove_table(self) -> None:
        """Delete the table's node. The topic is being deleted and has no cursors any more."""
        _, this_topic = self._claimed
        self._checks = ()
        await self._change(paths.cursors(self._topic), lambda _: compare_and_set.DELETE, [this_topic])

    @property
    def _claimed(self) -> Sequence[Check]:
        assert self._checks, "the cursors are not claimed"
        return self._checks

    def _check_unchanged(self, name: str, stored: StoredNode, found: bytes | None) -> None:
        if found != stored.payload:
            raise TopicUnloaded(
                f"cursor {name!r} of {self._topic} was changed by another broker, which owns the topic now"
            )

    async def _change_undecoded(self, change: Put | Delete, checks: Sequence[Check]) -> None:
        """Make the change, without a retry. If its outcome is unknown, the topic is unloaded."""
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


def point_node(
    node: CursorNode, ledger_id: int, mark_delete: Position, moves: int, take_overs: int, attachment: bytes = b""
) -> None:
    """Point the node at another ledger, or at none (0), with the state at its beginning. The former ledger is named for
    deletion."""
    if node.ledger_id:
        node.deleting.append(node.ledger_id)
    node.ledger_id, node.moves, node.take_overs, node.attachment = ledger_id, moves, take_overs, attachment
    node.mark_delete.CopyFrom(CursorPosition(ledger_id=mark_delete.ledger_id, entry_id=mark_delete.entry_id))


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
