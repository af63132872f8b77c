"""What comes from the broker for one topic or partition, made into what is handed out.

Left out are messages that are acknowledged already, those before the place that was asked for in the same batch, marks
that servers leave in the log, and what can't be decoded: damaged, encrypted, a chunk of a larger message. The last is
named in the log and is not acknowledged: it stays in the subscription for somebody who can.

Whatever of it is handed out, an entry takes its permits: as many as its batch has messages.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from magnetar._acks import PendingAcks
from magnetar._message import Delivered, Era, batch_size_of, decode_delivered
from magnetar._permits import Permits
from magnetar._places import Place
from magnetar_protos.broker_pb2 import Delivery
from magnetar_wire.entry import decode_entry
from magnetar_wire.errors import MalformedFrame, WireError

__all__ = ["Arrivals"]

log = logging.getLogger("magnetar")


class Arrivals:
    def __init__(self, topic: str, permits: Permits, acks: PendingAcks, *, durable: bool) -> None:
        self._topic = topic
        self._permits = permits
        self._acks = acks
        self._durable = durable
        # What lies before it, in this very entry, was not asked for.
        self.first_wanted: Place | None = None

    def take(self, era: Era, delivery: Delivery, entries: Sequence[bytes]) -> list[Delivered]:
        """What is to be handed out. Raises MalformedFrame where the broker sends what nobody asked for."""
        done = delivery.acknowledged if len(entries) == 1 else b""
        arrived: list[Delivered] = []
        for entry_id, stored in enumerate(entries, delivery.first_entry_id):
            try:
                one = decode_delivered(era, delivery.ledger_id, entry_id, delivery.redelivery_count, stored)
            except WireError as error:
                log.error("%s:%s of %s can't be handed out: %s", delivery.ledger_id, entry_id, self._topic, error)
                self._permits.delivered(_permits_of(stored), 0, 0)
                continue
            if done:
                one.leave_out(done)
            if one.is_marker:
                self._acks.add_place(era, one.ledger_id, entry_id, -1, 0)
            if self.first_wanted is not None:
                self._leave_out_unwanted(one, self.first_wanted)
            self._permits.delivered(one.batch_size or 1, len(one.todo), one.size_bytes)
            if one.todo:
                arrived.append(one)
        if self._permits.overdrawn:
            raise MalformedFrame(f"{self._topic} is delivered without permits: {self._permits.outstanding} are left")
        return arrived

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
    """Of an entry that can't be handed out, as far as can be told."""
    try:
        return batch_size_of(decode_entry(stored, verify=False).metadata) or 1
    except WireError:
        return 1
