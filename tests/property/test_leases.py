"""Leases against a plain model: for owners of any behaviour and speed, no promised ledger is deleted before its time.

Any number of brokers believe to have the topic. Each is slow: time passes between the moment when it begins a change,
when the metadata store makes or refuses it, and when it gets the result. The store takes changes of the last one that
claimed the topic alone. A reader gets the ledgers of its broker's list, for half of the lease's time.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from magnetar_broker.managed_ledger.lease_rules import Lease, Leases, encode_lease
from magnetar_protos.managed_ledger_pb2 import LedgerLease
from magnetar_testing.randomness import SeededRandomness

_IDS = [bytes([number]) * 16 for number in range(2)]
_MS = (2000, 2000, 3000)
_SEEDS, _STEPS = 200, 300


@dataclass
class Change:
    requested_at: float
    retained: list[Lease]
    lease: Lease | None = None
    trimmed: list[int] = field(default_factory=list)
    made: bool | None = None


@dataclass
class Owner:
    epoch: int
    # None: it has requested the topic, and does not know yet whether it has it.
    ledgers: list[int] | None = None
    requested_at: float = 0.0
    has: bool = False
    found: list[LedgerLease] = field(default_factory=list)
    leases: Leases = field(default_factory=Leases)
    change: Change | None = None
    ended: bool = False


class Brokers:
    def __init__(self, chance: SeededRandomness) -> None:
        self.chance = chance
        self.promises = self.checked = 0
        self.now = 100.0
        self.epochs = 0
        # The node.
        self.epoch = 0
        self.ledgers = [1, 2, 3]
        self.records: list[LedgerLease] = []
        self.owners: list[Owner] = []
        # What each reader was promised: ledgers, until when; and from where it has read on by now.
        self.promised: dict[bytes, tuple[list[int], float]] = {}
        self.reached: dict[bytes, int] = {}

    def step(self) -> None:
        """One of the things that may happen next."""
        chance = self.chance
        serving = [one for one in self.owners if one.ledgers is not None and not one.ended]
        free = [one for one in serving if one.change is None]
        changing = [one for one in self.owners if one.change is not None]
        what = chance.below(20)
        if what < 3:
            self.now += chance.choice((0.1, 0.4, 1.0))
        elif what < 5:
            self.claim()
        elif what < 9 and free:
            self.trim(chance.choice(free))
        elif what < 12 and serving:
            self.take(chance.choice(serving), chance.choice(_IDS), chance.below(3), chance.choice(_MS))
        elif what < 14 and serving:
            self.renew(chance.choice(serving), chance.choice(_IDS), chance.choice(_MS))
        elif what == 14 and len(self.owners) > 2:
            del self.owners[chance.below(len(self.owners))]
        elif changing:
            owner = chance.choice(changing)
            assert owner.change is not None
            if owner.change.made is None:
                self.decide(owner, owner.change)
            else:
                self.hear(owner, owner.change)

    def claim(self) -> None:
        """A broker asks for the topic; or the store gives it; or the broker hears of that."""
        waiting = [one for one in self.owners if one.ledgers is None]
        if not waiting:
            self.epochs += 1
            self.owners.append(Owner(self.epochs, requested_at=self.now))
            return
        owner = waiting[0]
        if not owner.has:
            owner.has = True
            self.epoch, owner.found = owner.epoch, list(self.records)
        else:
            owner.ledgers = list(self.ledgers)
            owner.leases.load(owner.found, owner.requested_at, self.now)

    def take(self, owner: Owner, lease_id: bytes, ahead: int, lease_ms: int) -> None:
        assert owner.ledgers is not None
        first = max(self.reached.get(lease_id, 0), owner.ledgers[0]) + (ahead if self.chance.random() < 0.3 else 0)
        if owner.leases.renew(lease_id, first, lease_ms, self.now) is not None:
            self.promise(owner, lease_id, first, lease_ms)
        elif owner.change is None:
            lease = Lease(lease_id, first, lease_ms, "", 0)
            owner.change = Change(self.now, owner.leases.begin_change(lease, self.now), lease)
        else:
            return
        self.reached[lease_id] = first

    def renew(self, owner: Owner, lease_id: bytes, lease_ms: int) -> None:
        if lease_id not in self.promised:
            return
        if owner.leases.renew(lease_id, None, lease_ms, self.now) is not None:
            ledgers, until = self.promised[lease_id]
            if self.now < until:
                self.promised[lease_id] = (ledgers, max(until, self.now + lease_ms / 2000))

    def promise(self, owner: Owner, lease_id: bytes, first: int, lease_ms: int) -> None:
        assert owner.ledgers is not None
        held = [one for one in owner.ledgers if one >= first and one in self.ledgers]
        if owner.epoch == self.epoch:
            assert held == [one for one in owner.ledgers if one >= first]
        self.promises += 1
        self.promised[lease_id] = (held, self.now + lease_ms / 2000)

    # ── changes ──

    def trim(self, owner: Owner) -> None:
        assert owner.ledgers is not None
        trimmed: list[int] = []
        for ledger_id in owner.ledgers[:-1]:
            if owner.leases.protects(ledger_id, self.now):
                break
            trimmed.append(ledger_id)
        owner.change = Change(self.now, owner.leases.begin_change(None, self.now), trimmed=trimmed)

    def decide(self, owner: Owner, change: Change) -> None:
        """The store makes the change, or refuses it."""
        change.made = owner.epoch == self.epoch
        if change.made:
            for ledger_id in change.trimmed:
                for ledgers, until in self.promised.values():
                    self.checked += 1
                    assert ledger_id not in ledgers or until <= self.now, (ledger_id, until, self.now)
            self.ledgers = [one for one in self.ledgers if one not in change.trimmed]
            self.ledgers.append(self.ledgers[-1] + 1)
            self.records = [encode_lease(lease) for lease in change.retained]
            assert len(self.records) <= len(_IDS)

    def hear(self, owner: Owner, change: Change) -> None:
        """Its broker hears of it."""
        assert owner.ledgers is not None
        owner.change = None
        if not change.made:
            owner.ended = True
            return
        owner.ledgers = [one for one in owner.ledgers if one not in change.trimmed]
        owner.ledgers.append(owner.ledgers[-1] + 1)
        owner.leases.commit_change(change.retained, change.lease, change.requested_at, self.now)
        lease = change.lease
        # Not those that the reader has requested again in the meantime.
        if lease is None or self.reached[lease.lease_id] != lease.from_ledger_id:
            return
        if owner.leases.renew(lease.lease_id, None, lease.lease_ms, self.now) is not None:
            self.promise(owner, lease.lease_id, lease.from_ledger_id, lease.lease_ms)


def test_leased_ledgers_are_retained_across_owner_changes() -> None:
    """SPK-5: trims, take-overs and brokers that do not know yet that they were replaced, each at its own pace."""
    promises = checked = 0
    for seed in range(_SEEDS):
        brokers = Brokers(SeededRandomness(seed))
        for _ in range(_STEPS):
            brokers.step()
        promises += brokers.promises
        checked += brokers.checked
    assert min(promises, checked) > 5 * _SEEDS
