"""The owner of a chain of ledgers, like the owner of a topic: it appends for ever and logs what it does.

A chain is a node with the list of its ledgers. One **run** of an owner takes the chain over: it finishes the deletions
that were begun, recovers the last ledger, creates a new one and records it behind the others, in the transaction that
deletes the ledger's intent. Then it appends. A ledger that is long enough, is rolled or has failed is closed, and
another follows. Failed entries are resent only after the writer's own close has returned: if the close is lost, its
result is unknown, so the run ends. It also ends when the list is not as it left it: then another owner has the chain.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from magnetar_bookie.errors import (
    AddFailed,
    LedgerNotClaimed,
    NoSuchLedger,
    NotEnoughBookies,
    OutcomeNotKnown,
    TooManyPending,
)
from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_bookie.ledger.ledger_writer import LedgerWriter
from magnetar_bookie.read.striping import Striping
from magnetar_metadata import compare_and_set
from magnetar_metadata.store import MetadataStore
from magnetar_wire.clock import Clock
from magnetar_wire.randomness import Randomness
from tests.faults.ledger_history import Log, payload
from tests.sim.invariants.history import Chain

__all__ = ["CHAINS", "ChainOwner", "ChainPlan", "ChainTakenOver", "read_chain"]

CHAINS: Final = "/chains/"
_PAUSE_S: Final = 0.2


class ChainTakenOver(Exception):
    """The chain is somebody else's, or will be."""


@dataclass(frozen=True, slots=True)
class ChainPlan:
    """How a chain is written."""

    striping: Striping
    # Maximum number of entries of a ledger.
    roll_entries: int = 400
    # Maximum number of ledgers of a chain before its oldest is deleted, once it was read back; 0: none is deleted.
    keep_ledgers: int = 0
    # Between two bursts, at most.
    rest_s: float = 0.05
    # The largest burst.
    burst: int = 32


class ChainOwner:
    """One run of an owner."""

    def __init__(
        self,
        client: LedgerClient,
        chain: str,
        run_name: str,
        plan: ChainPlan,
        log: Log,
        clock: Clock,
        chance: Randomness,
        read_back: Callable[[], Sequence[int]] = tuple,
    ) -> None:
        self._client = client
        self._store: MetadataStore = client.ledgers.store
        self._chain = chain
        self._run_name = run_name
        self._plan = plan
        self._log = log
        self._clock = clock
        self._chance = chance
        # The ledgers that a tail has read whole. No others are deleted, since their content could not be checked.
        self._read_back = read_back
        self._list = Chain()
        # The number of the next new payload.
        self._next = 0
        # What failed and is sent again, in order: number and size. Of the ledger before, and of the present one.
        self._again: list[tuple[int, int]] = []
        self._failed: list[tuple[int, int]] = []
        # Finishes what it is at, and returns.
        self.stopping = False
        # For tests and logs.
        self.writer: LedgerWriter | None = None
        self.waits_for = ""

    async def own(self) -> None:
        """Append until `stopping`. Raises `ChainTakenOver`, and the errors of ledgers and the metadata store."""
        self._log.say("life", self._chain, self._run_name)
        await self._take_over()
        while not self.stopping:
            self.writer = writer = await self._next_ledger()
            try:
                await self._write(writer)
                await self._close(writer)
            finally:
                writer.abandon()
                self.writer = None
            await self._trim()

    async def _take_over(self) -> None:
        self._list = await read_chain(self._store, self._chain)
        await self._delete(self._list.deleting)
        if self._list.ledgers:
            metadata = await self._client.recover(self._list.ledgers[-1])
            self._log.say("note", "recovered", self._list.ledgers[-1], "which ends at", metadata.last_entry_id)

    # ── the list ──

    def _update(
        self, made: int | None = None, deleting: list[int] | None = None, deleted: list[int] | None = None
    ) -> compare_and_set.Update:
        """Change the list only if it is as this run left it."""
        known = self._list

        def update(before: bytes | None) -> bytes:
            current = Chain.of(before) if before is not None else Chain()
            if current.ledgers[-1:] != known.ledgers[-1:]:
                raise ChainTakenOver(
                    f"{self._chain} has other ledgers by now: {current.ledgers}, and not {known.ledgers}"
                )
            going = [*current.deleting, *(deleting or ())]
            return Chain(
                [one for one in current.ledgers if one not in going] + ([] if made is None else [made]),
                [one for one in dict.fromkeys(going) if one not in (deleted or ())],
            ).encode()

        return update

    async def _change_list(self, update: compare_and_set.Update) -> None:
        stored = await compare_and_set.change(
            self._store, CHAINS + self._chain, update, clock=self._clock, randomness=self._chance
        )
        assert stored is not None
        self._list = Chain.of(stored.payload)

    async def _trim(self) -> None:
        keep = self._plan.keep_ledgers
        if not keep or len(self._list.ledgers) <= keep:
            return
        read = self._read_back()
        going = [one for one in self._list.ledgers[:-keep] if one in read]
        if not going:
            return
        for ledger_id in going:
            self._log.say("deleting", ledger_id)
        await self._change_list(self._update(deleting=going))
        await self._delete(going)

    async def _delete(self, ledgers: list[int]) -> None:
        for ledger_id in ledgers:
            try:
                await self._client.delete(ledger_id)
            except NoSuchLedger:
                continue
        if ledgers:
            await self._change_list(self._update(deleted=ledgers))

    async def _next_ledger(self) -> LedgerWriter:
        while True:
            try:
                made, writer = await self._client.create(self._plan.striping, f"{self._chain} of {self._run_name}")
            except NotEnoughBookies as error:
                self.waits_for = str(error)
                self._log.say("waits", error)
                await self._client.wait_for_bookies(self._plan.striping)
                continue
            self.waits_for = ""
            self._log.say("made", made.ledger_id)
            try:
                stored = await self._client.ledgers.claim_ledger(
                    made, CHAINS + self._chain, self._update(made=made.ledger_id)
                )
            except LedgerNotClaimed:
                writer.abandon()
                self._log.say("note", "the intent of", made.ledger_id, "was swept")
                continue
            except BaseException:
                writer.abandon()
                raise
            assert stored is not None
            self._list = Chain.of(stored.payload)
            return writer

    # ── the entries ──

    async def _write(self, writer: LedgerWriter) -> None:
        """Returns when the ledger is to be closed."""
        plan, chance, appended = self._plan, self._chance, 0
        roll = 1 + chance.below(plan.roll_entries)
        while writer.failure is None and (self._again or (appended < roll and not self.stopping)):
            if writer.should_roll and appended:
                self._log.say("note", writer.ledger_id, "rolls, since it was made with too few bookies")
                return
            for _ in range(1 + chance.below(plan.burst)):
                number, size = self._again[0] if self._again else (self._next, self._size())
                try:
                    self._append(writer, number, size)
                except TooManyPending:
                    await writer.wait_for_capacity()
                    break
                if self._again:
                    self._again.pop(0)
                else:
                    self._next += 1
                appended += 1
            if chance.below(3):
                await self._clock.sleep(chance.random() * plan.rest_s)
            else:  # all of it is decided before anything follows
                while writer.pending_entries and writer.failure is None and not self.stopping:
                    await self._clock.sleep(0.005)

    def _size(self) -> int:
        chance = self._chance
        kind = chance.below(200)
        if kind == 0:
            return 1_048_576
        if kind < 8:
            return 131_072
        if kind < 60:
            return 1024
        return 0 if kind < 80 else chance.below(200)

    def _append(self, writer: LedgerWriter, number: int, size: int) -> None:
        ledger_id = writer.ledger_id

        def done(result: int | AddFailed) -> None:
            if isinstance(result, AddFailed):
                self._log.say("failed", ledger_id, entry_id, type(result).__name__, result)
                self._failed.append((number, size))
            else:
                self._log.say("acked", ledger_id, result)

        # Nothing leaves the process within this turn of the loop: the log is earlier.
        entry_id = writer.append(payload(self._run_name, number, size), done)
        self._log.say("append", ledger_id, entry_id, number, size)

    async def _close(self, writer: LedgerWriter) -> None:
        while True:
            try:
                metadata = await writer.close()
                break
            except OutcomeNotKnown as error:
                self._log.say("note", "closes", writer.ledger_id, "again:", error)
                await self._clock.sleep(_PAUSE_S)
            except BaseException as error:
                self._log.say("note", "the close of", writer.ledger_id, "raised", type(error).__name__, error)
                raise
        self._log.say("closed", writer.ledger_id, metadata.last_entry_id)
        # It returned: what failed will never be read.
        self._again, self._failed = self._failed + self._again, []


async def read_chain(store: MetadataStore, chain: str) -> Chain:
    """As it stands now."""
    await store.sync()
    stored = await compare_and_set.read(store, CHAINS + chain)
    return Chain.of(stored.payload) if stored else Chain()
