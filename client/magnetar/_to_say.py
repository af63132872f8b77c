"""What a consumer has to say to its broker, until the link asks for it.

Within one message parts count in the order of their field numbers: acknowledgements before what brings messages again.
So where not all acknowledgements find room, what stands behind them waits for the next message.
"""

from __future__ import annotations

from typing import Final

from magnetar._acks import Eras, PendingAcks
from magnetar._asks import Asks
from magnetar._consume_link import Gathered
from magnetar._places import ranges_of
from magnetar_protos.broker_pb2 import CloseConsumer, Flow, OpenConsumer, Redeliver

__all__ = ["ToSay"]

# What a part of a request takes, about.
_SMALL_BYTES: Final = 24


class ToSay:
    def __init__(self, acks: PendingAcks, asks: Asks) -> None:
        self._acks = acks
        self._asks = asks
        self.opening: OpenConsumer | None = None
        # (ledger, entry) each; None: all that is not acknowledged.
        self.redeliver: dict[tuple[int, int], None] | None = {}
        self.granted = 0
        self.close = False

    def begin_anew(self) -> None:
        """Of an epoch that is over nothing is said but acknowledgements."""
        self.redeliver = {}
        self.granted = 0

    def fill(self, gathered: Gathered, consumer_id: int, eras: Eras | None) -> bool:
        """Puts it in; False where it did not find room for all. No eras: it is not opened yet."""
        request = gathered.request
        if self.opening is not None:
            request.open.append(self.opening)
            gathered.count(1, self.opening.ByteSize())
            self.opening = None
        if eras is None:
            return True
        request.acknowledge.extend(self._acks.take(consumer_id, eras, gathered))
        if self._acks:
            return False
        if not self._fill_redeliver(gathered, consumer_id, eras):
            return False
        gathered.count(self._asks.say(request), 0)
        if self.granted:
            request.flow.append(Flow(consumer_id=consumer_id, epoch=eras.epoch, permits=self.granted))
            gathered.count(1, _SMALL_BYTES)
            self.granted = 0
        if self.close:
            self.close = False
            request.close.append(CloseConsumer(consumer_id=consumer_id))
            gathered.count(1, _SMALL_BYTES)
        return True

    def _fill_redeliver(self, gathered: Gathered, consumer_id: int, eras: Eras) -> bool:
        if self.redeliver is not None and not self.redeliver:
            return True
        if gathered.full:
            return False
        places = sorted(self.redeliver or ())
        # At most so many ranges, whichever places they are of.
        now, rest = places[: gathered.parts_left], places[gathered.parts_left :]
        ranges = ranges_of(now)
        gathered.request.redeliver.append(Redeliver(consumer_id=consumer_id, epoch=eras.epoch, entries=ranges))
        gathered.count(1 + len(ranges), _SMALL_BYTES * len(ranges))
        self.redeliver = dict.fromkeys(rest)
        return not rest
