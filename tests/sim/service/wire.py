"""What brokers and clients send on the `consume` streams, and the checks of it.

- **Acknowledged** (34, CON-3): an entry whose acknowledgement has a receipt is not delivered by the topic's owner to a
  consumer that was opened after the receipt, nor on the same stream behind it.
- **One owner of acknowledgements** (OWN-2): once the owner has opened a consumer of a subscription, no other broker
  gives a receipt for any new acknowledgement that arrives later.
- **Epochs**: an acknowledgement of an epoch that ended before it arrived gets no receipt (52), nor does one of a
  Failover consumer that was notified that it is inactive (SUB-3). Within an epoch deliveries go forward (SUB-3). The
  client hands out only what was delivered in the present epoch (52).
- **Shared** (SUB-4): one broker delivers an entry to no consumer while another one has it.
- **Key_Shared** (35, 53, SUB-6): `held_keys.py`.

A client's ids are taken from `ConsumerSeen.name`, which it opens its consumers with. Positions are ledger and entry;
messages of a batch are bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from magnetar_protos.broker_pb2 import (
    FAILOVER,
    KEY_SHARED,
    SHARED,
    Acknowledge,
    ConsumeAnswer,
    ConsumeRequest,
    OpenConsumer,
)
from magnetar_wire.frame import find_entry_ids
from tests.sim.invariants.history import Violation
from tests.sim.process import Process
from tests.sim.service.held_keys import ArrivedKeys, HeldKeys, KeyedEntry, keyed_entry
from tests.sim.service.published import Position
from tests.sim.service.subscription_acks import Entry, SubscriptionAcks, WireAck
from tests.sim.service.topic_incarnations import TopicIncarnations, short

if TYPE_CHECKING:
    from tests.sim.service.history import ConsumerSeen

__all__ = ["Wire"]


_Serving = tuple[tuple[str, str], Process, int]


@dataclass(slots=True, eq=False)
class _Opening:
    """One consumer at one broker, from its opening to its end, as the broker's end of the stream knows it."""

    stream: int
    server: Process
    request: OpenConsumer
    topic: str
    at: int
    claimed: int
    opened: int = 0
    acknowledged_from: int = 0
    # The first epoch that the client has not left.
    epoch: int = 0
    # Of Failover: the last state that it was notified of.
    active: bool = True
    # The last entry that was delivered, and in which epoch.
    last: tuple[int, Entry] = (0, (-1, -1))
    # Of Shared: what it has.
    has: dict[Entry, None] = field(default_factory=dict)
    # Acknowledgements that a receipt is wanted for; and whether they came too late.
    pending_receipts: dict[int, tuple[WireAck, str]] = field(default_factory=dict)

    @property
    def subscription(self) -> tuple[str, str]:
        return self.topic, self.request.subscription

    @property
    def serving(self) -> _Serving:
        """One broker's time as the topic's owner, as far as the subscription is concerned."""
        return self.subscription, self.server, self.claimed

    def begin_epoch(self, epoch: int) -> None:
        self.epoch = max(self.epoch, epoch)
        self.has.clear()

    def __str__(self) -> str:
        return f"{self.request.consumer_name} at {self.server.name}"


@dataclass(frozen=True, slots=True)
class _Name:
    """A consumer that a client requested a broker to open."""

    requested_at: int
    name: str
    topic: str
    durable: bool
    has_keys: bool


@dataclass(slots=True)
class _Handing:
    """The entries that a client has taken for one consumer of a topic in the present epoch."""

    requested_at: int
    stream: int
    consumer_id: int
    epoch: int
    durable: bool
    began_s: float
    taken: dict[Entry, None] = field(default_factory=dict)
    before: dict[Entry, None] = field(default_factory=dict)
    keys: ArrivedKeys = field(default_factory=ArrivedKeys)


class Wire:
    """A `StreamTap` of the network."""

    def __init__(
        self,
        incarnations: TopicIncarnations,
        is_unchanged: Callable[[str, str, int], bool],
        keeps_backlog: Callable[[str, str, int], bool],
        may_be_skipped: Callable[[str, str], bool],
        tick: Callable[[], int],
        look: Callable[[str], None],
        now: Callable[[], float],
    ) -> None:
        self.on_violation: Callable[[Violation], object] = lambda violation: None
        self._incarnations = incarnations
        # Nothing has moved or deleted this subscription since.
        self._is_unchanged = is_unchanged
        # Nor has a truncation acknowledged all of it.
        self._keeps_backlog = keeps_backlog
        # An administrator may have acknowledged something of it.
        self._may_be_skipped = may_be_skipped
        self._tick = tick
        self._look = look
        self._now = now
        # By stream and consumer id.
        self._openings: dict[tuple[int, int], _Opening] = {}
        self._of_subscription: dict[tuple[str, str], list[_Opening]] = {}
        self._acks: dict[tuple[str, str], SubscriptionAcks] = {}
        self._keys: dict[_Serving, HeldKeys] = {}
        # When the owner has opened a consumer first since it owns the topic.
        self._served: dict[tuple[str, str], tuple[Process, int]] = {}
        # By consumer name and topic; and by stream and consumer id.
        self._handing: dict[tuple[str, str], _Handing] = {}
        self._names: dict[tuple[int, int], _Name] = {}

    # ── the tap of the network ──

    def sent(self, stream: int, source: Process, target: Process, method: str, message: bytes, *, served: bool) -> None:
        if method == "consume":
            if served:
                self._guarded(self._answers, stream, ConsumeAnswer.FromString(message))
            else:
                for one in ConsumeRequest.FromString(message).open:
                    topic, has_keys = short(one.topic), one.type == KEY_SHARED
                    name = _Name(self._tick(), one.consumer_name, topic, one.durable, has_keys)
                    self._names[stream, one.consumer_id] = name

    def arrived(
        self, stream: int, source: Process, target: Process, method: str, message: bytes, *, served: bool
    ) -> None:
        if method == "consume" and not served:
            self._guarded(self._requests, stream, target, ConsumeRequest.FromString(message))

    def taken(self, stream: int, by: Process, method: str, message: bytes, *, served: bool) -> None:
        if method == "consume" and served:
            self._client_takes(stream, ConsumeAnswer.FromString(message))

    def ended(self, stream: int) -> None:
        for key in [key for key in self._openings if key[0] == stream]:
            self._leaves(key)

    def _guarded(self, work: Callable[..., None], *arguments: object) -> None:
        """Report violations at once: production code must not take them for faults of its own."""
        try:
            work(*arguments)
        except Violation as violation:
            self.on_violation(violation)

    def _leaves(self, key: tuple[int, int]) -> None:
        opening = self._openings.pop(key, None)
        if opening is None:
            return
        of_subscription = self._of_subscription[opening.subscription]
        of_subscription.remove(opening)
        if (keys := self._keys.get(opening.serving)) is not None:
            keys.leave(opening)
            if not any(other.serving == opening.serving for other in of_subscription):
                del self._keys[opening.serving]

    # ── what comes to a broker ──

    def _requests(self, stream: int, server: Process, request: ConsumeRequest) -> None:
        tick = self._tick()
        for wanted in request.open:
            incarnation = self._incarnations.now(wanted.topic)
            claimed = 0 if incarnation is None else incarnation.claimed
            opening = _Opening(stream, server, wanted, short(wanted.topic), tick, claimed)
            self._openings[stream, wanted.consumer_id] = opening
            self._of_subscription.setdefault(opening.subscription, []).append(opening)
        for acknowledge in request.acknowledge:
            opening_of = self._openings.get((stream, acknowledge.consumer_id))
            if opening_of is not None:
                self._acknowledges(opening_of, acknowledge, tick)
        for redeliver in request.redeliver:
            opening_of = self._openings.get((stream, redeliver.consumer_id))
            if opening_of is not None and not redeliver.entries:
                opening_of.begin_epoch(redeliver.epoch + 1)
            elif opening_of is not None:
                for run in redeliver.entries:
                    for entry_id in range(run.first_entry_id, run.last_entry_id + 1):
                        opening_of.has.pop((run.ledger_id, entry_id), None)
        for seek in request.seek:
            if (opening_of := self._openings.get((stream, seek.consumer_id))) is not None:
                self._forget_held(opening_of.subscription)
        for closed in request.close:
            self._leaves((stream, closed.consumer_id))

    def _forget_held(self, subscription: tuple[str, str]) -> None:
        for opening in self._of_subscription.get(subscription, ()):
            opening.has.clear()

    def _acknowledges(self, opening: _Opening, request: Acknowledge, tick: int) -> None:
        acks = self._acks.setdefault(opening.subscription, SubscriptionAcks())
        ack = acks.came(request, tick)
        if opening.request.durable and request.request_id:
            opening.pending_receipts[request.request_id] = ack, self._too_late(opening, request, ack, tick)
        if (keys := self._keys.get(opening.serving)) is not None:
            keys.acknowledge(ack)
        for other in self._of_subscription[opening.subscription] if opening.request.type == SHARED else ():
            for entry in ack.whole:
                other.has.pop(entry, None)

    def _too_late(self, opening: _Opening, request: Acknowledge, ack: WireAck, tick: int) -> str:
        """Return why it must get no receipt, with the item before it; empty: it may get one."""
        self._look("52")
        if opening.opened and request.epoch < opening.acknowledged_from:
            return f"52: {opening} was notified that acknowledgements count from epoch {opening.acknowledged_from} on"
        if opening.request.type == FAILOVER:
            self._look("SUB-3")
            if opening.opened and not opening.active:
                return f"SUB-3: {opening} was notified that it is inactive"
        incarnation = self._incarnations.now(opening.topic)
        owner, since = self._served.get(opening.subscription, (None, 0))
        is_new = ack.is_new and not self._may_be_skipped(*opening.subscription)
        if incarnation is not None and owner is incarnation.owner and since > incarnation.claimed and is_new:
            self._look("OWN-2")
            if owner is not opening.server:
                return f"OWN-2: {owner} owns the topic, and had opened a consumer of the subscription before"
        return ""

    # ── a broker's answers ──

    def _answers(self, stream: int, answer: ConsumeAnswer) -> None:
        tick = self._tick()
        for opened in answer.opened:
            opening = self._openings.get((stream, opened.consumer_id))
            if opening is not None:
                self._opened(opening, tick)
                opening.active = opened.active
        for epoch in answer.epochs:
            if (opening := self._openings.get((stream, epoch.consumer_id))) is not None:
                opening.acknowledged_from = max(opening.acknowledged_from, epoch.acknowledged_from)
                opening.begin_epoch(epoch.epoch)
                moved = epoch.acknowledged_from == epoch.epoch
                if moved and (keys := self._keys.get(opening.serving)) is not None:
                    keys.forget(opening)
        for active in answer.active:
            if (opening := self._openings.get((stream, active.consumer_id))) is not None:
                opening.active = active.active
        stored = iter(answer.frame.entries)
        for consumer_id, epoch_number, entries, bits in _runs(answer):
            opening = self._openings.get((stream, consumer_id))
            for entry, one in zip(entries, stored, strict=False):
                if opening is not None and opening.request.type == KEY_SHARED:
                    self._delivers_key(opening, keyed_entry(entry, one), bits, tick)
                elif opening is not None:
                    self._delivers(opening, epoch_number, entry, bits)
        for done in answer.done:
            opening = self._openings.get((stream, done.consumer_id))
            pending = None if opening is None else opening.pending_receipts.pop(done.request_id, None)
            if opening is None or pending is None or done.HasField("problem"):
                continue
            ack, too_late = pending
            if too_late:
                item, _, why = too_late.partition(": ")
                raise Violation(item, f"{opening} of {opening.subscription} had a receipt for {ack}, though {why}")
            self._acks[opening.subscription].receipted(ack, tick, stream)
        for ended in answer.ended:
            self._leaves((stream, ended.consumer_id))

    def _opened(self, opening: _Opening, tick: int) -> None:
        opening.opened = tick
        incarnation = self._incarnations.now(opening.topic)
        if incarnation is None or incarnation.owner is not opening.server:
            return
        opening.claimed = incarnation.claimed
        owner, since = self._served.get(opening.subscription, (None, 0))
        if owner is not opening.server or since < incarnation.claimed:
            self._served[opening.subscription] = opening.server, tick

    def _delivers(self, opening: _Opening, epoch: int, entry: Entry, bits: int) -> None:
        if opening.request.durable:
            self._look("34, CON-3")
            self._not_done(opening, entry, bits)
        if opening.request.type == SHARED:
            if epoch >= opening.epoch:
                self._nobody_has(opening, entry)
            return
        self._look("SUB-3")
        if opening.last[0] == epoch and entry <= opening.last[1]:
            raise Violation("SUB-3", f"{opening} is delivered {entry} behind {opening.last[1]}, in one epoch, {epoch}")
        opening.last = epoch, entry

    def _delivers_key(self, opening: _Opening, entry: KeyedEntry, bits: int, tick: int) -> None:
        if opening.request.durable:
            self._look("34, CON-3")
            self._not_done(opening, entry.position, bits)
        keys = self._keys.get(opening.serving)
        if keys is None or not self._keeps_backlog(*opening.subscription, keys.since):
            keys = self._keys[opening.serving] = HeldKeys(tick, self._look, keys)
        if self._keeps_backlog(*opening.subscription, tick):
            keys.deliver(entry, bits, opening)
        else:
            keys.see(entry)

    def _not_done(self, opening: _Opening, entry: Entry, bits: int) -> None:
        incarnation = self._incarnations.now(opening.topic)
        if incarnation is None or incarnation.owner is not opening.server or opening.claimed != incarnation.claimed:
            return  # it may not know yet
        for ack in self._acks.get(opening.subscription, SubscriptionAcks()).covering(entry, bits):
            if not (ack.done < opening.at or ack.stream == opening.stream):
                continue
            if self._is_unchanged(*opening.subscription, ack.came):
                raise Violation(
                    "34, CON-3", f"{opening} is delivered {entry} of {opening.subscription}: {ack} had a receipt before"
                )

    def _nobody_has(self, opening: _Opening, entry: Entry) -> None:
        self._look("SUB-4")
        for other in self._of_subscription[opening.subscription]:
            same = other.server is opening.server and other.claimed == opening.claimed
            if other is not opening and same and entry in other.has:
                raise Violation(
                    "SUB-4", f"{opening} is delivered {entry} of {opening.subscription}, and {other} has it"
                )
        opening.has[entry] = None

    # ── what a client takes, and hands out ──

    def _client_takes(self, stream: int, answer: ConsumeAnswer) -> None:
        for opened in answer.opened:
            if known := self._names.get((stream, opened.consumer_id)):
                present = self._handing.get((known.name, known.topic))
                if present is not None and present.requested_at > known.requested_at:
                    continue  # the client gave this opening up, and opened the consumer elsewhere
                self._handing[known.name, known.topic] = _Handing(
                    known.requested_at, stream, opened.consumer_id, opened.epoch, known.durable, self._now()
                )
        for epoch in answer.epochs:
            if (now := self._handing_of(stream, epoch.consumer_id)) is not None:
                now.before = now.taken if now.began_s < self._now() else {**now.before, **now.taken}
                now.taken, now.epoch, now.began_s, now.keys = {}, epoch.epoch, self._now(), ArrivedKeys()
        stored = iter(answer.frame.entries)
        for consumer_id, epoch_number, entries, _ in _runs(answer):
            run = list(zip(entries, stored, strict=False))
            if (now := self._handing_of(stream, consumer_id)) is not None and now.epoch == epoch_number:
                now.taken.update(dict.fromkeys(entries))
                for entry, one in run if self._names[stream, consumer_id].has_keys else ():
                    now.keys.arrive(keyed_entry(entry, one))

    def _handing_of(self, stream: int, consumer_id: int) -> _Handing | None:
        known = self._names.get((stream, consumer_id))
        now = None if known is None else self._handing.get((known.name, known.topic))
        return now if now is not None and (now.stream, now.consumer_id) == (stream, consumer_id) else None

    def handed_out(self, consumer: ConsumerSeen, topic: str, position: Position, *, has_letters: bool = False) -> None:
        """The application gets a message of the topic or partition. `has_letters`: the client withholds some."""
        now = self._handing.get((consumer.name, topic))
        if now is None or not now.durable:
            return  # what is not durable keeps what it has over a reconnect
        self._look("52")
        entry = position[:2]
        # Who waited for it may get it in the same moment in which an epoch begins.
        if entry not in now.taken and not (now.began_s == self._now() and entry in now.before):
            raise Violation(
                "52",
                f"{consumer.name} was given {position} of {topic}, which was not delivered in its epoch {now.epoch}",
            )
        other = now.keys.hand_out(entry)
        if other is not None and not has_letters:
            raise Violation("SUB-6", f"{consumer.name} was given {position} of {topic} before {other} of the same key")


def _runs(answer: ConsumeAnswer) -> Iterator[tuple[int, int, list[Entry], int]]:
    """Yield the consumer, epoch and entries of each delivery, and the messages of a single entry that don't count."""
    for run, delivery in zip(answer.frame.runs, answer.deliveries, strict=True):
        entry_ids = find_entry_ids(delivery.first_entry_id, delivery.gaps, run.count)
        entries = [(delivery.ledger_id, entry_id) for entry_id in entry_ids]
        bits = int.from_bytes(delivery.acknowledged, "little") if run.count == 1 else 0
        yield run.channel, delivery.epoch, entries, bits
