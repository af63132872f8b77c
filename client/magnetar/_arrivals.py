"""What comes from the broker for one topic or partition, made into what is handed out.

**In line.** An entry may be a thousand times as large when it is decompressed. So only what its producer says of that
is looked at when it comes, and it is decoded when there is room: while what waits decoded stays below `max_bytes`, or
nothing does. What is in line is as large as it came, and no more of it than there were permits.

**Left out** are messages that are acknowledged already, those before the place that was asked for in the same batch,
and marks that servers leave in the log.

**What can't be decoded.** A damaged entry is named in the log and acknowledged: nobody could read it, and whatever is
not acknowledged holds up a Shared subscription in the end. A good one that this code can't open (encrypted, a chunk of
a larger message, an unknown compression) is named in the log, too, and stays in the subscription for somebody who can.

Whatever of it is handed out, an entry takes its permits: as many as its batch has messages.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Container, Sequence
from typing import Final, NamedTuple

from magnetar._acks import PendingAcks
from magnetar._message import Delivered, Era, batch_size_of, decode_delivered, uncompressed_bytes
from magnetar._permits import Permits
from magnetar._places import Place
from magnetar._receiver_queue import ReceiverQueue, Source
from magnetar_protos.broker_pb2 import Delivery
from magnetar_wire.entry import Entry, decode_entry
from magnetar_wire.errors import MalformedFrame, UnsupportedEntry, WireError

__all__ = ["Arrivals"]

log = logging.getLogger("magnetar")

# Messages that are made at a time: few enough for Python's collector not to be called for them (it is after 700).
_SEGMENT: Final = 256


class _InLine(NamedTuple):
    era: Era
    ledger_id: int
    entry_id: int
    redelivery_count: int
    # Messages that are acknowledged, bit by bit.
    done: bytes
    entry: Entry
    # As many messages as its batch has; 1, if it is none.
    messages: int


class Arrivals:
    def __init__(self, topic: str, permits: Permits, acks: PendingAcks, source: Source, *, durable: bool) -> None:
        self._topic = topic
        self._permits = permits
        self._acks = acks
        self._source = source
        self._durable = durable
        self._line: deque[_InLine] = deque()
        # The last that came, since it was cleared: ledger and entry.
        self.last: tuple[int, int] | None = None
        # What lies before it, in this very entry, was not asked for.
        self.first_wanted: Place | None = None

    def take(self, era: Era, delivery: Delivery, entries: Sequence[bytes]) -> None:
        """Puts them in line. Raises MalformedFrame where the broker sends what nobody asked for."""
        done = delivery.acknowledged if len(entries) == 1 else b""
        for entry_id, stored in enumerate(entries, delivery.first_entry_id):
            try:
                entry = decode_entry(stored)
            except WireError as error:
                self._permits.delivered(_permits_of(stored), 0, 0)
                self._undecodable(era, delivery.ledger_id, entry_id, error)
                continue
            count = batch_size_of(entry.metadata) or 1
            self._permits.delivered(count, count, uncompressed_bytes(entry))
            self._line.append(_InLine(era, delivery.ledger_id, entry_id, delivery.redelivery_count, done, entry, count))
        last = delivery.ledger_id, delivery.first_entry_id + len(entries) - 1
        self.last = last if self.last is None else max(self.last, last)
        if self._permits.overdrawn:
            raise MalformedFrame(f"{self._topic} is delivered without permits: {self._permits.outstanding} are left")

    def let_in(self, queue: ReceiverQueue) -> None:
        """Decodes what there is room for, and has it handed out."""
        source = self._source
        while True:
            arrived = self._decoded()
            # With entries in line word is wanted of every segment, and before it could be missed.
            half = max(1, self._permits.window // 2)
            source.report_at, source.segment = 1 if self._line else half, min(half, _SEGMENT)
            queue.add(source, arrived)
            if not self._line or queue.has_of(source):
                return

    def _decoded(self) -> list[Delivered]:
        arrived: list[Delivered] = []
        size = self._source.size_bytes
        while self._line:
            if size and size + uncompressed_bytes(self._line[0].entry) > self._permits.max_bytes:
                break
            one = self._decode(self._line.popleft())
            if one is not None:
                arrived.append(one)
                size += one.size_bytes
        return arrived

    def clear(self) -> None:
        self._line.clear()
        self.last = None

    def drop(self, places: Container[tuple[int, int]]) -> None:
        """Drops these entries, given by ledger and entry id."""
        kept = deque(one for one in self._line if (one.ledger_id, one.entry_id) not in places)
        self._permits.handed_out(sum(one.messages for one in self._line) - sum(one.messages for one in kept))
        self._line = kept

    def _decode(self, waiting: _InLine) -> Delivered | None:
        era, ledger_id, entry_id, redelivery_count, done, entry, count = waiting
        try:
            one = decode_delivered(era, ledger_id, entry_id, redelivery_count, entry)
        except WireError as error:
            self._permits.handed_out(count)
            self._undecodable(era, ledger_id, entry_id, error)
            return None
        if done:
            one.leave_out(done)
        if one.is_marker:
            self._acks.add_place(era, ledger_id, entry_id, -1, 0)
        if self.first_wanted is not None:
            self._leave_out_unwanted(one, self.first_wanted)
        if len(one.todo) != count:
            self._permits.handed_out(count - len(one.todo))
        return one if one.todo else None

    def _undecodable(self, era: Era, ledger_id: int, entry_id: int, error: WireError) -> None:
        if isinstance(error, UnsupportedEntry):
            text = "%s:%s of %s is not handed out, and stays for a client that can read it: %s"
            log.error(text, ledger_id, entry_id, self._topic, error)
        else:
            log.error("%s:%s of %s is damaged, and is left out: %s", ledger_id, entry_id, self._topic, error)
            self._acks.add_place(era, ledger_id, entry_id, -1, 0)

    def _leave_out_unwanted(self, one: Delivered, wanted: Place) -> None:
        ledger_id, entry_id, batch_index = wanted
        if (one.ledger_id, one.entry_id) < (ledger_id, entry_id):
            return
        self.first_wanted = None
        if (one.ledger_id, one.entry_id) > (ledger_id, entry_id) or batch_index <= 0:
            return
        unwanted = [at for at in one.todo if one.batch_index(at) < batch_index]
        one.todo = [at for at in one.todo if one.batch_index(at) >= batch_index]
        if unwanted and self._durable:  # the entry is done when the others are
            self._acks.add(one, unwanted)


def _permits_of(stored: bytes) -> int:
    """Of an entry that can't be taken apart, as far as can be told."""
    try:
        return batch_size_of(decode_entry(stored, verify=False).metadata) or 1
    except WireError:
        return 1
