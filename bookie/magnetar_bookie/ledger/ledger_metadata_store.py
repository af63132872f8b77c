"""The ledgers' metadata: made with an intent, read, and changed by compare-and-set.

Everybody who changes a ledger's node does it through `change` with one of the functions of ledger/ledger_metadata.py.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from magnetar_bookie import paths
from magnetar_bookie.errors import EnsembleOutdated, IntentSwept, LedgerError, NoSuchLedger, OutcomeNotKnown
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
    """A ledger's node as its holder last read or changed it. `LedgerMetadataStore` starts from it, which saves a read."""

    __slots__ = ("stored",)

    def __init__(self, stored: compare_and_set.StoredValue | None = None) -> None:
        self.stored = stored


@dataclass(frozen=True, slots=True)
class NewLedger:
    """A new ledger. Until its owner has recorded it, with `release` in the same transaction, it may be swept."""

    ledger_id: int
    metadata: LedgerMetadata
    # The node as it was made.
    stored: compare_and_set.StoredValue | None = None

    @property
    def release(self) -> Delete:
        """The change that belongs into the transaction with which the owner records the ledger."""
        return Delete(paths.intent(self.ledger_id), 0)


class LedgerMetadataStore:
    """One process' access to the ledgers' metadata."""

    def __init__(self, store: MetadataStore, clock: Clock, randomness: Randomness) -> None:
        self.store = store
        self.foreign = UndecodableNodes()
        self._clock = clock
        self._randomness = randomness
        self._ids = LedgerIdGenerator(self._draw)

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
        """Makes a ledger and its intent, under an id above all there ever were.

        `cookie_checks` are those of the ensemble (`Bookies.cookie_checks`): `EnsembleOutdated` if one is refused.
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
            ledger_id = await self._ids.next()
            nodes = {paths.intent(ledger_id): intent.SerializeToString(), paths.ledger(ledger_id): metadata.encode()}
            values = {
                path: compare_and_set.encode_first_value(payload, self._randomness) for path, payload in nodes.items()
            }
            puts = [Put(path, value, ABSENT) for path, value in values.items()]
            try:
                await self.store.transaction([*puts, *cookie_checks])
            except OutcomeUnknown:
                continue  # if both nodes are there, or come to be, the sweeper finds the intent
            except NodeExists as error:
                raise LedgerError(f"ledger {ledger_id} already exists, though its id is new: {error}") from None
            except (BadVersion, NoNode) as error:
                if error.index < len(puts):
                    raise
                raise _outdated(f"ledger {ledger_id} was not created", ensemble) from error
            return NewLedger(ledger_id, metadata, compare_and_set.decode_stored(values[paths.ledger(ledger_id)]))

    async def _draw(self, count: int) -> int:
        """The last of so many ids."""

        def raised(payload: bytes | None) -> bytes:
            last = decode_node(LedgerIdCounter, paths.LEDGER_IDS, payload or b"").last_ledger_id
            return LedgerIdCounter(last_ledger_id=last + count).SerializeToString()

        while True:
            try:
                stored = await self._change(paths.LEDGER_IDS, raised)
            except OutcomeUnknown:
                continue  # perhaps raised: those numbers are nobody's
            assert stored is not None
            return LedgerIdCounter.FromString(stored.payload).last_ledger_id

    async def last_ledger_id(self) -> int:
        """No ledger made before this call has a higher id."""
        await self.store.sync()
        stored = await compare_and_set.read(self.store, paths.LEDGER_IDS)
        return decode_node(LedgerIdCounter, paths.LEDGER_IDS, stored.payload).last_ledger_id if stored else 0

    async def claim_ledger(
        self,
        made: NewLedger,
        owner: str,
        update: compare_and_set.Update,
        along: Sequence[Change] = (),
        known: compare_and_set.StoredValue | None = None,
    ) -> compare_and_set.StoredValue | None:
        """Records a new ledger in its owner's node and takes its intent away, in one transaction, and `along` with it.
        `known` is the owner's node as it was read or changed last, if it was.

        Raises `IntentSwept`, and changes nothing, where the sweeper was faster.
        """
        try:
            return await self._change(owner, update, along=[made.release, *along], known=known)
        except (BadVersion, NoNode) as error:
            if error.index != 1:
                raise
            raise IntentSwept(
                f"ledger {made.ledger_id} was not claimed in time and is being deleted: create another one"
            ) from None

    async def read_metadata(
        self, ledger_id: int, *, fresh: bool = False, known: LedgerNodeCache | None = None
    ) -> LedgerMetadata:
        """What stands there, possibly stale unless it is to be fresh. Raises `NoSuchLedger`. Fills in `known`."""
        stored = await compare_and_set.read(self.store, paths.ledger(ledger_id), fresh=fresh)
        if known is not None:
            known.stored = stored
        if stored is None:
            raise NoSuchLedger(f"there is no ledger {ledger_id}")
        return ledger_metadata.decode(stored.payload)

    async def change_metadata(
        self,
        ledger_id: int,
        update: Update,
        cookie_checks: Sequence[Check] = (),
        known: LedgerNodeCache | None = None,
    ) -> LedgerMetadata:
        """Changes what stands there to what `update` makes of it, and returns that. Starts from `known`, and fills it
        in.

        `cookie_checks` are those of the bookies that the change adds (`Bookies.cookie_checks`). Raises
        `EnsembleOutdated` if one is refused, what `update` raises of a fresh value, and `OutcomeNotKnown` where it
        can't be found out.
        """
        result: LedgerMetadata | None = None

        def changed(payload: bytes | None) -> bytes | compare_and_set.UpdateAction:
            nonlocal result
            current = None if payload is None else ledger_metadata.decode(payload)
            result = update(current)
            return compare_and_set.LEAVE if result is current or result == current else result.encode()

        try:
            stored = await self._change(
                paths.ledger(ledger_id), changed, cookie_checks, known.stored if known is not None else None
            )
        except OutcomeUnknown as error:
            raise OutcomeNotKnown(f"unknown whether ledger {ledger_id} was changed: {error}") from error
        except (BadVersion, NoNode) as error:
            if not error.index:
                raise
            bookie_ids = [check.path.rpartition("/")[2] for check in cookie_checks]
            raise _outdated(f"ledger {ledger_id} was not changed", bookie_ids) from error
        assert result is not None
        if known is not None:
            known.stored = stored
        return result

    async def ledger_ids(self) -> AsyncIterator[int]:
        """All ledgers, in order: those there are during the whole walk, and perhaps some that come or go."""
        async for name in self._names(paths.LEDGERS, 4):
            yield paths.parse_ledger_id(name)

    async def list_ledger_ids(self, path: str) -> list[int]:
        """The ledgers that this node's children are about."""
        ledger_ids = []
        for name in await self.store.children(path):
            try:
                ledger_ids.append(paths.parse_ledger_id(name))
            except ValueError as error:
                self.foreign.pass_over(f"{path}/{name}", error)
        return ledger_ids

    async def _names(self, path: str, levels: int) -> AsyncIterator[str]:
        for name in await self.store.children(path):
            if len(name) != 4 or not paths.is_hexadecimal(name):
                self.foreign.pass_over(
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


def _outdated(what: str, bookie_ids: Sequence[str]) -> EnsembleOutdated:
    return EnsembleOutdated(f"{what}: one of {', '.join(bookie_ids)} is being decommissioned", bookie_ids)
