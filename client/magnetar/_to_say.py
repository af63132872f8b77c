"""What a consumer has to say to its broker, until the link asks for it.

Within one message parts count in the order of their field numbers: acknowledgements before what brings messages again.
So where not all acknowledgements find room, what stands behind them waits for the next message.
"""

from __future__ import annotations

from magnetar._acks import Eras, PendingAcks
from magnetar._asks import Asks
from magnetar._consume_link import MAX_REQUEST_BYTES
from magnetar._places import ranges_of
from magnetar_protos.broker_pb2 import CloseConsumer, ConsumeRequest, Flow, OpenConsumer, Redeliver

__all__ = ["ToSay"]


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

    def fill(self, request: ConsumeRequest, consumer_id: int, eras: Eras | None) -> bool:
        """Puts it in; False where it did not find room for all. No eras: it is not opened yet."""
        if self.opening is not None:
            request.open.append(self.opening)
            self.opening = None
        if eras is None:
            return True
        room = MAX_REQUEST_BYTES - request.ByteSize()
        request.acknowledge.extend(self._acks.take(consumer_id, eras, room))
        if self._acks:
            return False
        if self.redeliver is None or self.redeliver:
            ranges = ranges_of(self.redeliver or ())
            request.redeliver.append(Redeliver(consumer_id=consumer_id, epoch=eras.epoch, entries=ranges))
            self.redeliver = {}
        self._asks.say(request)
        if self.granted:
            request.flow.append(Flow(consumer_id=consumer_id, epoch=eras.epoch, permits=self.granted))
            self.granted = 0
        if self.close:
            self.close = False
            request.close.append(CloseConsumer(consumer_id=consumer_id))
        return True
