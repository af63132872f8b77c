"""Acknowledgements of one topic, or partition, gathered until they are sent.

Entries are merged into ranges, ledger by ledger. Messages of batches are bits of a set per entry, and an entry of which
all are acknowledged becomes a whole one. Of cumulative acknowledgements only the highest counts, and what it covers of
the others is left out.

**Epochs.** An acknowledgement is sent with the epoch in which its messages were delivered, so they are gathered by era
(_message.py), and the broker decides which eras are over: `Eras` is this end's knowledge of that. An acknowledgement of
an era that is over is dropped, and whoever waits for its receipt meets StaleEpoch.

**Receipts.** Whoever wants one has the acknowledgements that go out with his answered. Those that were sent and have no
answer when the connection breaks are sent again in the next opening: they are places, and to acknowledge one twice is
to acknowledge it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from magnetar._consume_link import Gathered
from magnetar._errors import from_problem
from magnetar._message import Delivered, Era
from magnetar.exceptions import ServiceUnitNotReady, StaleEpoch
from magnetar_protos.broker_pb2 import Acknowledge, BatchMessages, Done, EntryRange

__all__ = ["Eras", "PendingAcks", "Receipt"]

# What one message acknowledges at most: of either kind, and of the sets' bytes.
_MAX_RANGES: Final = 2_000
_MAX_SET_BYTES: Final = 262_144
# The place behind all messages of a batch.
_WHOLE: Final = 2**31


class Eras:
    """Which eras may still be acknowledged, and as what.

    Within one opening the broker says from which epoch on (`EpochBegan.acknowledged_from`). A new opening begins with
    an epoch of its own, and the broker may be another, which knows nothing of earlier ones. What was delivered before
    the opening counts as delivered in its first epoch, if the subscription was not moved meanwhile: to acknowledge a
    place that one has processed is right whoever serves it now. If it was moved, a late acknowledgement could undo
    that, and is dropped.
    """

    __slots__ = ("_first_epoch", "_over", "epoch", "moves", "opening")

    def __init__(self) -> None:
        # Openings are counted by this end.
        self.opening = 0
        self.epoch = 0
        self.moves = 0
        self._first_epoch = 0
        # All eras before this one are over: (opening, epoch).
        self._over = (0, 0)

    def opened(self, epoch: int, moves: int) -> None:
        self.opening += 1
        self.epoch = self._first_epoch = epoch
        if moves != self.moves:
            self._over = (self.opening, 0)
        self.moves = moves

    def began(self, epoch: int, acknowledged_from: int, moves: int) -> None:
        self.epoch = epoch
        if acknowledged_from > self._first_epoch:
            self._over = max(self._over, (self.opening, acknowledged_from))
        self.moves = moves

    def all_over(self) -> None:
        """Nothing that was delivered so far may be acknowledged any more."""
        self._over = (self.opening + 1, 0)

    def epoch_of(self, opening: int, epoch: int) -> int | None:
        """What to say to the broker; None: it is over."""
        if (opening, epoch) < self._over:
            return None
        return epoch if opening == self.opening else self._first_epoch


class Receipt:
    """What somebody waits for: all parts of one acknowledgement."""

    __slots__ = ("_left", "future")

    def __init__(self, future: asyncio.Future[None]) -> None:
        self.future = future
        self._left = 0

    def expect(self) -> None:
        self._left += 1

    def settle(self, error: Exception | None) -> None:
        """One part is done, or failed."""
        self._left -= 1
        if self.future.done():
            return
        if error is not None:
            self.future.set_exception(error)
        elif self._left <= 0:
            self.future.set_result(None)


@dataclass(slots=True)
class _Group:
    """Of one era."""

    # Ledger → entries.
    entries: dict[int, list[int]] = field(default_factory=dict)
    # (ledger, entry) → which messages, and how many the batch has.
    messages: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    # (ledger, entry, last batch index or _WHOLE, batch size)
    cumulative: tuple[int, int, int, int] | None = None
    receipts: list[Receipt] = field(default_factory=list)


class PendingAcks:
    """On the I/O loop."""

    def __init__(self, *, by_message: bool = True) -> None:
        # Otherwise batches are acknowledged as a whole, when all their messages are.
        self._by_message = by_message
        self._groups: dict[tuple[int, int], _Group] = {}
        # To be sent, first what was sent before and has no answer: era, what it says, who waits.
        self._outbox: deque[tuple[tuple[int, int], Acknowledge, list[Receipt]]] = deque()
        # Sent, and an answer is wanted, by request id.
        self._sent: dict[int, tuple[tuple[int, int], Acknowledge, list[Receipt]]] = {}
        self._last_request = 0

    def __bool__(self) -> bool:
        return bool(self._groups or self._outbox)

    @property
    def pending(self) -> bool:
        """Something has not left yet, or somebody waits for its receipt."""
        return bool(self) or bool(self._sent)

    def _group(self, era: Era) -> _Group:
        key = (era.opening, era.epoch)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = _Group()
        return group

    def add(self, delivered: Delivered, places: Iterable[int]) -> None:
        """These messages of the entry, by their places in its columns."""
        group = self._group(delivered.era)
        size = delivered.batch_size
        if not size:
            group.entries.setdefault(delivered.ledger_id, []).append(delivered.entry_id)
            return
        done = bytearray((size + 7) // 8)
        for at in places:
            index = delivered.batch_index(at)
            done[index >> 3] |= 1 << (index & 7)
        delivered.acknowledged |= int.from_bytes(done, "little")
        self._add_messages(group, (delivered.ledger_id, delivered.entry_id), delivered.acknowledged, size)

    def add_place(self, era: Era, ledger_id: int, entry_id: int, batch_index: int, batch_size: int) -> None:
        """A place that the application names; batch index -1: the whole entry."""
        group = self._group(era)
        if batch_index < 0 or batch_size <= 0:
            group.entries.setdefault(ledger_id, []).append(entry_id)
        else:
            self._add_messages(group, (ledger_id, entry_id), 1 << batch_index, batch_size)

    def _add_messages(self, group: _Group, place: tuple[int, int], done: int, size: int) -> None:
        before, _ = group.messages.get(place, (0, 0))
        done |= before
        if done == (1 << size) - 1:
            group.messages.pop(place, None)
            group.entries.setdefault(place[0], []).append(place[1])
        else:
            group.messages[place] = (done, size)

    def add_cumulative(self, era: Era, ledger_id: int, entry_id: int, batch_index: int, batch_size: int) -> None:
        """All up to and with this place."""
        group = self._group(era)
        if batch_index < 0 or batch_index >= batch_size - 1:
            batch_index = _WHOLE
        elif not self._by_message:
            entry_id, batch_index = entry_id - 1, _WHOLE
            if entry_id < 0:
                return
        place = (ledger_id, entry_id, batch_index, batch_size)
        if group.cumulative is None or group.cumulative < place:
            group.cumulative = place

    def want_receipt(self, eras: Iterable[Era], receipt: Receipt) -> None:
        """The receipt covers all that is pending of these eras."""
        for era in eras:
            receipt.expect()
            self._group(era).receipts.append(receipt)

    def take(self, consumer_id: int, eras: Eras, gathered: Gathered) -> list[Acknowledge]:
        """What is to be sent now, while there is room. What is over is dropped on the way."""
        groups, self._groups = self._groups, {}
        for key, group in groups.items():
            pieces = list(self._pieces(group))
            for _ in pieces[1:]:
                for receipt in group.receipts:
                    receipt.expect()
            if not pieces:
                _settle(group.receipts, None)
            self._outbox.extend((key, piece, group.receipts) for piece in pieces)
        taken: list[Acknowledge] = []
        while self._outbox and not gathered.full:
            key, piece, receipts = self._outbox.popleft()
            epoch = eras.epoch_of(*key)
            if epoch is None:
                _settle(receipts, _stale())
            else:
                taken.append(self._send(key, piece, receipts, consumer_id, epoch))
                gathered.count(1 + len(piece.entries) + len(piece.messages), piece.ByteSize())
        return taken

    def _send(
        self, key: tuple[int, int], acknowledge: Acknowledge, receipts: list[Receipt], consumer_id: int, epoch: int
    ) -> Acknowledge:
        acknowledge.consumer_id = consumer_id
        acknowledge.epoch = epoch
        if receipts:
            self._last_request += 1
            acknowledge.request_id = self._last_request
            self._sent[self._last_request] = (key, acknowledge, receipts)
        return acknowledge

    def drop_over(self, eras: Eras) -> None:
        """Whoever waits for what is over learns it now, also while there is no connection."""
        for key in [key for key in self._groups if eras.epoch_of(*key) is None]:
            _settle(self._groups.pop(key).receipts, _stale())

    def done(self, answer: Done) -> bool:
        """The broker's answer; whether it was to one of these."""
        sent = self._sent.pop(answer.request_id, None)
        if sent is None:
            return False
        error = from_problem(answer.problem) if answer.HasField("problem") else None
        if isinstance(error, ServiceUnitNotReady):  # the topic moves: it is said again where it goes
            self._outbox.append(sent)
        else:
            _settle(sent[2], error)
        return True

    def next_request(self) -> int:
        """A request id that no acknowledgement has."""
        self._last_request += 1
        return self._last_request

    def disconnected(self) -> None:
        """What has no answer is sent again in the next opening."""
        self._outbox.extendleft(reversed(self._sent.values()))
        self._sent = {}

    def fail(self, error: Exception) -> None:
        """Nothing of this will be sent any more."""
        for _, _, receipts in (*self._outbox, *self._sent.values()):
            _settle(receipts, error)
        for group in self._groups.values():
            _settle(group.receipts, error)
        self._outbox.clear()
        self._sent, self._groups = {}, {}

    def _pieces(self, group: _Group) -> Iterator[Acknowledge]:
        covered = (-1, -1, -1)
        if group.cumulative is not None:
            ledger_id, entry_id, index, size = group.cumulative
            covered = (ledger_id, entry_id, index)
            piece = Acknowledge(cumulative=True)
            if index == _WHOLE:
                piece.entries.add(ledger_id=ledger_id, first_entry_id=entry_id, last_entry_id=entry_id)
            else:
                piece.messages.append(_bits(ledger_id, entry_id, (2 << index) - 1, size))
            yield piece
        ranges = list(_ranges(group.entries, covered))
        piece = Acknowledge(entries=ranges[:_MAX_RANGES])
        for at in range(_MAX_RANGES, len(ranges), _MAX_RANGES):
            yield piece
            piece = Acknowledge(entries=ranges[at : at + _MAX_RANGES])
        set_bytes = 0
        for place, (done, size) in self._parts_of_batches(group, covered):
            if set_bytes > _MAX_SET_BYTES or len(piece.messages) >= _MAX_RANGES:
                yield piece
                piece, set_bytes = Acknowledge(), 0
            piece.messages.append(_bits(*place, done, size))
            set_bytes += size // 8
        if piece.entries or piece.messages:
            yield piece

    def _parts_of_batches(
        self, group: _Group, covered: tuple[int, int, int]
    ) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
        """Of batches that are not done by what else is acknowledged."""
        if not group.messages or not self._by_message:
            return
        whole = {(ledger_id, entry_id) for ledger_id, entries in group.entries.items() for entry_id in entries}
        for place, (done, size) in sorted(group.messages.items()):
            if place not in whole and (*place, size - 1) > covered:
                yield place, (done, size)


def _bits(ledger_id: int, entry_id: int, done: int, size: int) -> BatchMessages:
    messages = done.to_bytes((size + 7) // 8, "little")
    return BatchMessages(ledger_id=ledger_id, entry_id=entry_id, messages=messages, batch_size=size)


def _ranges(entries: dict[int, list[int]], covered: tuple[int, int, int]) -> Iterator[EntryRange]:
    """In order, each as long as it may be, without what is covered."""
    for ledger_id in sorted(entries):
        first = last = -2
        for entry_id in sorted(set(entries[ledger_id])):
            if (ledger_id, entry_id, _WHOLE) <= covered:
                continue
            if entry_id == last + 1:
                last = entry_id
                continue
            if last >= 0:
                yield EntryRange(ledger_id=ledger_id, first_entry_id=first, last_entry_id=last)
            first = last = entry_id
        if last >= 0:
            yield EntryRange(ledger_id=ledger_id, first_entry_id=first, last_entry_id=last)


def _settle(receipts: Iterable[Receipt], error: Exception | None) -> None:
    for receipt in receipts:
        receipt.settle(error)


def _stale() -> StaleEpoch:
    return StaleEpoch(
        "the message was delivered before the subscription was moved, or taken over by another consumer: "
        "it is not acknowledged, and comes again if it is still to come"
    )
