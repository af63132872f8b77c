"""Acknowledgements of one topic or partition that are not sent, or not answered yet.

Entries are merged into ranges, ledger by ledger. Messages of a batch are bits of a set per entry, and an entry of which
all messages are acknowledged is acknowledged as a whole. Of cumulative acknowledgements only the highest is sent, and
individual ones that it covers are left out. An acknowledged message that was sent in chunks is acknowledged with all of
them (`unacked_chunks.py`).

**Epochs.** An acknowledgement is sent with the epoch in which its messages were delivered, so acknowledgements are
grouped by epoch. The broker decides which epochs are stale, and `EpochTracker` is the client's knowledge of that. An
acknowledgement of a stale epoch is dropped. If the application waits for its receipt, it gets StaleEpoch.

**Receipts.** A receipt covers all acknowledgements of its epoch that are sent with it. Those that were sent and are not
answered when the connection breaks are sent again in the next opening. That is safe: to acknowledge a message twice is
to acknowledge it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from magnetar._acknowledging.unacked_chunks import EntryRun, UnackedChunks
from magnetar._errors import from_problem
from magnetar._message import DeliveredEntry, DeliveryEpoch
from magnetar.exceptions import ServiceUnitNotReady, StaleEpoch
from magnetar_protos.broker_pb2 import Acknowledge, BatchMessages, Done, EntryRange

__all__ = ["AckReceipt", "EpochTracker", "PendingAcks", "make_ranges"]

# The maximum of one `Acknowledge`: of ranges, of batches, and of the bytes of their sets.
_MAX_RANGES: Final = 2_000
_MAX_SET_BYTES: Final = 262_144
# A batch index behind all messages of a batch.
_WHOLE_ENTRY: Final = 2**31
# Before every position.
_NOWHERE: Final = (-1, -1, -1)


class PendingAcks:
    """The acknowledgements of one partition. Used on the I/O loop only."""

    def __init__(self, *, by_message: bool = True, chunks: UnackedChunks | None = None) -> None:
        self._chunks = chunks or UnackedChunks()
        # If false, a batch is acknowledged as a whole, once all its messages are.
        self._by_message = by_message
        # By opening and epoch.
        self._groups: dict[tuple[int, int], _AckGroup] = {}
        # Acknowledgements to send. Those that were sent before without an answer are at the front.
        self._outbox: deque[_OutboundAck] = deque()
        # Acknowledgements that wait for a receipt, by request id.
        self._sent: dict[int, _OutboundAck] = {}
        self._last_request_id = 0
        # Why nothing is sent any more. What is added then is dropped.
        self._closed: Exception | None = None

    @property
    def has_unsent(self) -> bool:
        return bool(self._groups or self._outbox)

    @property
    def has_pending(self) -> bool:
        """Whether acknowledgements are not sent, or wait for a receipt."""
        return self.has_unsent or bool(self._sent)

    # Adding.

    def add_rows(self, entry: DeliveredEntry, rows: Collection[int]) -> None:
        """Acknowledge these rows of an entry's columns."""
        group = self._get_group(entry.epoch)
        size = entry.batch_size
        if not size:
            entry.acknowledged = 1
            self._add_whole(group, entry.ledger_id, entry.entry_id, entry.chunks)
            return
        entry.acknowledged |= entry.make_bits(rows)
        self._add_bits(group, (entry.ledger_id, entry.entry_id), entry.acknowledged, size)

    def add_message(
        self, epoch: DeliveryEpoch, ledger_id: int, entry_id: int, batch_index: int, batch_size: int
    ) -> None:
        """Acknowledge one message; with a negative batch index the whole entry."""
        if batch_index < 0 or batch_size <= 0:
            self.add_entry(epoch, ledger_id, entry_id)
        else:
            self._add_bits(self._get_group(epoch), (ledger_id, entry_id), 1 << batch_index, batch_size)

    def add_entry(self, epoch: DeliveryEpoch, ledger_id: int, entry_id: int) -> None:
        """Acknowledge all messages of an entry."""
        self._add_whole(self._get_group(epoch), ledger_id, entry_id)

    def add_entries(self, epoch: DeliveryEpoch, positions: Iterable[tuple[int, int]]) -> None:
        """Acknowledge entries that are chunks, and no others of their messages."""
        entries = self._get_group(epoch).entries
        for ledger_id, entry_id in positions:
            entries.setdefault(ledger_id, []).append(entry_id)

    def _add_whole(
        self, group: _AckGroup, ledger_id: int, entry_id: int, chunks: Sequence[tuple[int, int]] = ()
    ) -> None:
        """Add an entry, or all chunks of the message of which it is the last one."""
        known = self._chunks.remove_message((ledger_id, entry_id))
        for chunk in chunks or known:
            group.entries.setdefault(chunk[0], []).append(chunk[1])

    def _add_bits(self, group: _AckGroup, position: tuple[int, int], bits: int, size: int) -> None:
        before, _ = group.batches.get(position, (0, 0))
        bits |= before
        if bits == (1 << size) - 1:
            group.batches.pop(position, None)
            group.entries.setdefault(position[0], []).append(position[1])
        else:
            group.batches[position] = (bits, size)

    def add_cumulative(
        self, epoch: DeliveryEpoch, ledger_id: int, entry_id: int, batch_index: int, batch_size: int
    ) -> None:
        """Acknowledge all messages up to and including this one."""
        group = self._get_group(epoch)
        split = self._chunks.split_cumulative((ledger_id, entry_id))
        is_whole = batch_index < 0 or batch_index >= batch_size - 1
        if split is not None:
            before, runs = split
            self._add_runs(group, runs, None if is_whole else (ledger_id, entry_id))
            if not is_whole:
                self._add_bits(group, (ledger_id, entry_id), (2 << batch_index) - 1, batch_size)
            if before is None:
                return
            (ledger_id, entry_id), batch_index = before, _WHOLE_ENTRY
        elif is_whole:
            batch_index = _WHOLE_ENTRY
        elif not self._by_message:
            entry_id, batch_index = entry_id - 1, _WHOLE_ENTRY
            if entry_id < 0:
                return
        end = (ledger_id, entry_id, batch_index, batch_size)
        if group.cumulative is None or group.cumulative < end:
            group.cumulative = end

    def _add_runs(self, group: _AckGroup, runs: Iterable[EntryRun], omitted: tuple[int, int] | None) -> None:
        for ledger_id, first, last in runs:
            entries = range(first, last + 1)
            if omitted is not None and omitted[0] == ledger_id and omitted[1] in entries:
                entries = range(first, last)  # it is the last one
            group.entries.setdefault(ledger_id, []).extend(entries)

    def request_receipt(self, epochs: Iterable[DeliveryEpoch], receipt: AckReceipt) -> None:
        """Complete the receipt when all that is unsent of these epochs is durable."""
        for epoch in epochs:
            receipt.expect_part()
            if self._closed is None:
                self._get_group(epoch).receipts.append(receipt)
            else:
                _settle([receipt], self._closed)

    def _get_group(self, epoch: DeliveryEpoch) -> _AckGroup:
        if self._closed is not None:
            return _AckGroup()
        key = (epoch.opening, epoch.number)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = _AckGroup()
        return group

    # Sending.

    def pop_request(self, consumer_id: int, epochs: EpochTracker) -> Acknowledge | None:
        """Return the next request to be sent, if there is one. Drop those of stale epochs."""
        if self._groups:
            self._merge_groups()
        while self._outbox:
            outbound = self._outbox.popleft()
            epoch = epochs.find_epoch(*outbound.key)
            if epoch is None:
                _settle(outbound.receipts, _stale_epoch())
                continue
            request = outbound.request
            request.consumer_id = consumer_id
            request.epoch = epoch
            if outbound.receipts:
                request.request_id = self.next_request_id()
                self._sent[request.request_id] = outbound
            return request
        return None

    def _merge_groups(self) -> None:
        groups, self._groups = self._groups, {}
        for key, group in groups.items():
            requests = list(self._make_requests(group))
            for _ in requests[1:]:
                for receipt in group.receipts:
                    receipt.expect_part()
            if not requests:
                _settle(group.receipts, None)
            self._outbox.extend(_OutboundAck(key, request, group.receipts) for request in requests)

    def next_request_id(self) -> int:
        """Return an id that no other request of this consumer has."""
        self._last_request_id += 1
        return self._last_request_id

    # Answers, and the end.

    def handle_done(self, answer: Done) -> bool:
        """Settle the receipts of the request that the broker has answered. False: it is not one of these requests."""
        sent = self._sent.pop(answer.request_id, None)
        if sent is None:
            return False
        error = from_problem(answer.problem) if answer.HasField("problem") else None
        if isinstance(error, ServiceUnitNotReady):  # the topic moves to another broker: send it again there
            self._outbox.append(sent)
        else:
            _settle(sent.receipts, error)
        return True

    def resend_unanswered(self) -> None:
        """The connection broke: send requests that are not answered again in the next opening."""
        self._outbox.extendleft(reversed(self._sent.values()))
        self._sent = {}

    def drop_stale(self, epochs: EpochTracker) -> None:
        """Raise StaleEpoch in those who wait for a stale epoch now, even if there is no connection."""
        for key in [key for key in self._groups if epochs.find_epoch(*key) is None]:
            _settle(self._groups.pop(key).receipts, _stale_epoch())

    def fail(self, error: Exception) -> None:
        """Drop everything, and raise the error in those who wait for a receipt."""
        for outbound in (*self._outbox, *self._sent.values()):
            _settle(outbound.receipts, error)
        for group in self._groups.values():
            _settle(group.receipts, error)
        self._outbox.clear()
        self._sent, self._groups = {}, {}

    def close(self, error: Exception) -> None:
        """Drop everything, and all that is added later."""
        self._closed = error
        self.fail(error)

    # Merging.

    def _make_requests(self, group: _AckGroup) -> Iterator[Acknowledge]:
        covered = _NOWHERE
        if group.cumulative is not None:
            ledger_id, entry_id, index, size = group.cumulative
            covered = (ledger_id, entry_id, index)
            request = Acknowledge(cumulative=True)
            if index == _WHOLE_ENTRY:
                request.entries.add(ledger_id=ledger_id, first_entry_id=entry_id, last_entry_id=entry_id)
            else:
                request.messages.append(_make_batch(ledger_id, entry_id, (2 << index) - 1, size))
            yield request
        ranges = list(make_ranges(group.entries, covered))
        request = Acknowledge(entries=ranges[:_MAX_RANGES])
        for at in range(_MAX_RANGES, len(ranges), _MAX_RANGES):
            yield request
            request = Acknowledge(entries=ranges[at : at + _MAX_RANGES])
        set_bytes = 0
        for position, (bits, size) in self._find_partial_batches(group, covered):
            if set_bytes > _MAX_SET_BYTES or len(request.messages) >= _MAX_RANGES:
                yield request
                request, set_bytes = Acknowledge(), 0
            request.messages.append(_make_batch(*position, bits, size))
            set_bytes += size // 8
        if request.entries or request.messages:
            yield request

    def _find_partial_batches(
        self, group: _AckGroup, covered: tuple[int, int, int]
    ) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
        """Yield the batches that are not covered by the cumulative acknowledgement, or acknowledged as a whole."""
        if not group.batches or not self._by_message:
            return
        whole = {(ledger_id, entry_id) for ledger_id, entries in group.entries.items() for entry_id in entries}
        for position, (bits, size) in sorted(group.batches.items()):
            if position not in whole and (*position, size - 1) > covered:
                yield position, (bits, size)


@dataclass(slots=True)
class _AckGroup:
    """The unsent acknowledgements of one epoch."""

    # Ledger id → entry ids.
    entries: dict[int, list[int]] = field(default_factory=dict)
    # (ledger id, entry id) → the acknowledged messages, one bit each, and the batch size.
    batches: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    # (ledger id, entry id, last batch index or _WHOLE_ENTRY, batch size)
    cumulative: tuple[int, int, int, int] | None = None
    receipts: list[AckReceipt] = field(default_factory=list)


class _OutboundAck(NamedTuple):
    # Opening and epoch.
    key: tuple[int, int]
    request: Acknowledge
    receipts: list[AckReceipt]


class AckReceipt:
    """Calls `on_settled` once: when all parts of an acknowledgement are durable, or with the error of the first that
    has failed."""

    __slots__ = ("_is_settled", "_on_settled", "_parts_left")

    def __init__(self, on_settled: Callable[[Exception | None], object]) -> None:
        self._on_settled = on_settled
        self._parts_left = 0
        self._is_settled = False

    def expect_part(self) -> None:
        self._parts_left += 1

    def settle_part(self, error: Exception | None) -> None:
        """One part is durable, or has failed."""
        self._parts_left -= 1
        if not self._is_settled and (error is not None or self._parts_left <= 0):
            self._is_settled = True
            self._on_settled(error)


class EpochTracker:
    """Which epochs of one consumer may still be acknowledged, and by which epoch number.

    Within one opening the broker says from which epoch on (`EpochBegan.acknowledged_from`). A new opening begins with
    an epoch of its own, possibly at another broker, which doesn't know the earlier ones. Messages that were delivered
    before the opening count as delivered in its first epoch, if the subscription was not moved in between: a message
    that was processed may be acknowledged at any broker. If the subscription was moved, a late acknowledgement could
    undo that, so it is dropped.
    """

    __slots__ = ("_first_number", "_stale_before", "moves", "number", "opening")

    def __init__(self) -> None:
        # The client counts the openings.
        self.opening = 0
        # The number of the current epoch, and how often the subscription was moved. The broker counts them.
        self.number = 0
        self.moves = 0
        self._first_number = 0
        # All epochs before this one are stale: (opening, epoch number).
        self._stale_before = (0, 0)

    def start_opening(self, number: int, moves: int) -> None:
        self.opening += 1
        self.number = self._first_number = number
        if moves != self.moves:
            self._stale_before = (self.opening, 0)
        self.moves = moves

    def start_epoch(self, number: int, acknowledged_from: int, moves: int) -> None:
        self.number = number
        if acknowledged_from > self._first_number:
            self._stale_before = max(self._stale_before, (self.opening, acknowledged_from))
        self.moves = moves

    def expire_all(self) -> None:
        """Make all epochs so far stale."""
        self._stale_before = (self.opening + 1, 0)

    def find_epoch(self, opening: int, number: int) -> int | None:
        """Return the epoch number to send to the broker; None: the epoch is stale."""
        if (opening, number) < self._stale_before:
            return None
        return number if opening == self.opening else self._first_number


def _make_batch(ledger_id: int, entry_id: int, bits: int, size: int) -> BatchMessages:
    messages = bits.to_bytes((size + 7) // 8, "little")
    return BatchMessages(ledger_id=ledger_id, entry_id=entry_id, messages=messages, batch_size=size)


def make_ranges(entries: dict[int, list[int]], covered: tuple[int, int, int] = _NOWHERE) -> Iterator[EntryRange]:
    """Yield maximal ranges of entry ids by ledger id, in order, without entries that are covered."""
    for ledger_id in sorted(entries):
        first = last = -2
        for entry_id in sorted(set(entries[ledger_id])):
            if (ledger_id, entry_id, _WHOLE_ENTRY) <= covered:
                continue
            if entry_id == last + 1:
                last = entry_id
                continue
            if last >= 0:
                yield EntryRange(ledger_id=ledger_id, first_entry_id=first, last_entry_id=last)
            first = last = entry_id
        if last >= 0:
            yield EntryRange(ledger_id=ledger_id, first_entry_id=first, last_entry_id=last)


def _settle(receipts: Iterable[AckReceipt], error: Exception | None) -> None:
    for receipt in receipts:
        receipt.settle_part(error)


def _stale_epoch() -> StaleEpoch:
    return StaleEpoch(
        "the message was delivered before the subscription was moved, or taken over by another consumer, so it is not "
        "acknowledged: acknowledge it when it is redelivered"
    )
