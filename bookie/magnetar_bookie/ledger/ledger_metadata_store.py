"""The ledgers in the metadata store: creates, reads and changes their metadata, by compare-and-set.

All changes of a ledger's node are made by `change_metadata` with one of the functions of `ledger_metadata.py`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from magnetar_bookie import paths
from magnetar_bookie.errors import EnsembleOutdated, LedgerError, LedgerNotClaimed, NoSuchLedger, OutcomeNotKnown
from magnetar_bookie.ledger import ledger_metadata
from magnetar_bookie.ledger.ledger_id_generator import LedgerIdGenerator
from magnetar_bookie.ledger.ledger_metadata import LedgerMetadata, LedgerState
from magnetar_bookie.read.striping import Fragment, Striping
from magnetar_metadata import compare_and_set
from magnetar_metadata.errors import BadVersion, NodeExists, NoNode, OutcomeUnknown
from magnetar_metadata.store import ABSENT, Change, Check, Delete, MetadataStore, Put
from magnetar_metadata.undecodable_nodes import UndecodableNodes, decode_node
from magnetar_protos.ledger_pb2 import LedgerIdCounter, LedgerIntent
from magnetar_wire.clock import Clock
from magnetar_wire.randomness import Randomness

__all__ = ["LedgerMetadataStore", "LedgerNodeCache", "NewLedger"]

_MASTER_KEY_BYTES: Final = 16

Update = Callable[[LedgerMetadata | None], LedgerMetadata]


class LedgerNodeCache:
    """A ledger's node as it was read or changed last. A change that starts from it saves a read."""

    __slots__ = ("stored",)

    def __init__(self, stored: compare_and_set.StoredValue | None = None) -> None:
        self.stored = stored


@dataclass(frozen=True, slots=True)
class NewLedger:
    """A new ledger. It is deleted unless its owner claims it, with `intent_deletion` in the same transaction."""

    ledger_id: int
    metadata: LedgerMetadata
    # The node as it was created.
    stored: compare_and_set.StoredValue | None = None

    @property
    def intent_deletion(self) -> Delete:
        """A change for the transaction in which the owner claims the ledger."""
        return Delete(paths.intent(self.ledger_id), 0)


class LedgerMetadataStore:
    """The access of one process to the metadata of all ledgers."""

    def __init__(self, store: MetadataStore, clock: Clock, randomness: Randomness) -> None:
        self.store = store
        self.undecodable_nodes = UndecodableNodes()
        self._clock = clock
        self._randomness = randomness
        self._ids = LedgerIdGenerator(self._raise_counter)

    async def create_ledger(
        self,
        ensemble: Sequence[str],
        striping: Striping,
        *,
        wanted_ensemble_size: int,
        purpose: str,
        cookie_checks: Sequence[Check],
        properties: Mapping[str, bytes] | None = None,
    ) -> NewLedger:
        """Create a ledger and its intent. Its id is higher than those of all earlier ledgers.

        `cookie_checks` are those of the ensemble (`Bookies.cookie_checks`). Raises `EnsembleOutdated` if one fails.
        """
        now_ms = self._clock.time_ms()
        metadata = LedgerMetadata(
            state=LedgerState.OPEN,
            striping=striping,
            master_key=self._randomness.token(_MASTER_KEY_BYTES),
            fragments=(Fragment(0, tuple(ensemble)),),
            created_ms=now_ms,
            wanted_ensemble_size=wanted_ensemble_size,
            properties=properties or {},
        )
        intent = LedgerIntent(created_ms=now_ms, purpose=purpose)
        while True:
            ledger_id = await self._ids.generate_ledger_id()
            nodes = {paths.intent(ledger_id): intent.SerializeToString(), paths.ledger(ledger_id): metadata.encode()}
            values = {
                path: compare_and_set.encode_first_value(payload, self._randomness) for path, payload in nodes.items()
            }
            puts = [Put(path, value, ABSENT) for path, value in values.items()]
            try:
                await self.store.transaction([*puts, *cookie_checks])
            except OutcomeUnknown:
                continue  # if both nodes were or will be created, the intent is found, and the ledger deleted
            except NodeExists as error:
                raise LedgerError(f"ledger {ledger_id} already exists, though its id is new: {error}") from None
            except (BadVersion, NoNode) as error:
                if error.index < len(puts):
                    raise
                raise _ensemble_outdated(f"ledger {ledger_id} was not created", ensemble) from error
            return NewLedger(ledger_id, metadata, compare_and_set.decode_stored(values[paths.ledger(ledger_id)]))

    async def _raise_counter(self, count: int) -> int:
        """Raise the counter of ledger ids by `count`, and return its value."""

        def update(payload: bytes | None) -> bytes:
            last = decode_node(LedgerIdCounter, paths.LEDGER_IDS, payload or b"").last_ledger_id
            return LedgerIdCounter(last_ledger_id=last + count).SerializeToString()

        while True:
            try:
                stored = await self._change(paths.LEDGER_IDS, update)
            except OutcomeUnknown:
                continue  # perhaps raised: those ids are not used
            assert stored is not None
            return LedgerIdCounter.FromString(stored.payload).last_ledger_id

    async def last_ledger_id(self) -> int:
        """Return an id that no ledger created before this call exceeds."""
        await self.store.sync()
        stored = await compare_and_set.read(self.store, paths.LEDGER_IDS)
        return decode_node(LedgerIdCounter, paths.LEDGER_IDS, stored.payload).last_ledger_id if stored else 0

    async def claim_ledger(
        self,
        new_ledger: NewLedger,
        owner_path: str,
        update: compare_and_set.Update,
        along: Sequence[Change] = (),
        known: compare_and_set.StoredValue | None = None,
    ) -> compare_and_set.StoredValue | None:
        """Record a new ledger in its owner's node by `update` and delete its intent, in one transaction with `along`.

        `known` is the owner's node as it was read or changed last, if known. Raises `LedgerNotClaimed`, and changes
        nothing, if the ledger was not claimed in time.
        """
        try:
            return await self._change(owner_path, update, along=[new_ledger.intent_deletion, *along], known=known)
        except (BadVersion, NoNode) as error:
            if error.index != 1:
                raise
            raise LedgerNotClaimed(
                f"ledger {new_ledger.ledger_id} was not claimed in time and is being deleted: create another one"
            ) from None

    async def read_metadata(
        self, ledger_id: int, *, fresh: bool = False, known: LedgerNodeCache | None = None
    ) -> LedgerMetadata:
        """Return a ledger's metadata, which may be stale unless `fresh`. Updates `known`. Raises `NoSuchLedger`."""
        stored = await compare_and_set.read(self.store, paths.ledger(ledger_id), fresh=fresh)
        if known is not None:
            known.stored = stored
        if stored is None:
            raise NoSuchLedger(f"there is no ledger {ledger_id}")
        return ledger_metadata.decode_metadata(stored.payload)

    async def change_metadata(
        self,
        ledger_id: int,
        update: Update,
        cookie_checks: Sequence[Check] = (),
        known: LedgerNodeCache | None = None,
    ) -> LedgerMetadata:
        """Change a ledger's metadata by `update`, and return the result. Starts from `known`, and updates it.

        `cookie_checks` are those of the bookies that the change adds (`Bookies.cookie_checks`). Raises
        `EnsembleOutdated` if one fails, what `update` raises for the current metadata, and `OutcomeNotKnown`.
        """
        result: LedgerMetadata | None = None

        def update_node(payload: bytes | None) -> bytes | compare_and_set.UpdateAction:
            nonlocal result
            current = None if payload is None else ledger_metadata.decode_metadata(payload)
            result = update(current)
            return compare_and_set.LEAVE if result is current or result == current else result.encode()

        try:
            stored = await self._change(
                paths.ledger(ledger_id), update_node, cookie_checks, known.stored if known is not None else None
            )
        except OutcomeUnknown as error:
            raise OutcomeNotKnown(f"unknown whether ledger {ledger_id} was changed: {error}") from error
        except (BadVersion, NoNode) as error:
            if not error.index:
                raise
            bookie_ids = [check.path.rpartition("/")[2] for check in cookie_checks]
            raise _ensemble_outdated(f"ledger {ledger_id} was not changed", bookie_ids) from error
        assert result is not None
        if known is not None:
            known.stored = stored
        return result

    async def remove_tombstone_holders(self, ledger_id: int, bookies: Sequence[str]) -> None:
        """Remove bookies from a tombstone that have dropped the ledger, or don't exist any more.

        A tombstone without holders is deleted. If there is no tombstone, nothing is changed. Raises `OutcomeUnknown`:
        the call may be repeated.
        """

        def remove(payload: bytes | None) -> bytes | compare_and_set.UpdateAction:
            if payload is None:
                return compare_and_set.LEAVE
            current = ledger_metadata.decode_metadata(payload)
            if current.state is not LedgerState.TOMBSTONE:
                return compare_and_set.LEAVE
            left = ledger_metadata.remove_holders(current, bookies)
            if not left.holders:
                return compare_and_set.DELETE
            return compare_and_set.LEAVE if left == current else left.encode()

        await self._change(paths.ledger(ledger_id), remove)

    async def ledger_ids(self) -> AsyncIterator[int]:
        """Iterate over the ids of all ledgers, in order. Ledgers that are created in the meantime may be missing."""
        async for name in self._names(paths.LEDGERS, 4):
            yield paths.parse_ledger_id(name)

    async def list_ledger_ids(self, path: str) -> list[int]:
        """Return the ledger ids that the names of this node's children stand for."""
        ledger_ids = []
        for name in await self.store.children(path):
            try:
                ledger_ids.append(paths.parse_ledger_id(name))
            except ValueError as error:
                self.undecodable_nodes.log_once(f"{path}/{name}", error)
        return ledger_ids

    async def _names(self, path: str, levels: int) -> AsyncIterator[str]:
        for name in await self.store.children(path):
            if len(name) != 4 or not paths.is_hexadecimal(name):
                self.undecodable_nodes.log_once(
                    f"{path}/{name}", "its name does not consist of four hexadecimal digits of a ledger id"
                )
            elif levels == 1:
                yield name
            else:
                async for rest in self._names(f"{path}/{name}", levels - 1):
                    yield name + rest

    async def _change(
        self,
        path: str,
        update: compare_and_set.Update,
        along: Sequence[Change] = (),
        known: compare_and_set.StoredValue | None = None,
    ) -> compare_and_set.StoredValue | None:
        return await compare_and_set.change(
            self.store, path, update, clock=self._clock, randomness=self._randomness, along=along, known=known
        )


def _ensemble_outdated(outcome: str, bookie_ids: Sequence[str]) -> EnsembleOutdated:
    return EnsembleOutdated(f"{outcome}: one of {', '.join(bookie_ids)} is being decommissioned", bookie_ids)
