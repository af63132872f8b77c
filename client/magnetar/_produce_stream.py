"""The `produce` stream: entries of all producers out, receipts in. See magnetar_protos/broker.proto.

A producer that has entries to send says so once (`ready`), and is asked for them when the next message is made, each in
its turn: what one has in abundance leaves room for the others' every time the frame is full. A producer that the broker
has paused, since its topic has no room, sends nothing until it is resumed; the others go on.
"""

from __future__ import annotations

from typing import Final, Protocol

from magnetar._broker_stream import BrokerStream, Channel
from magnetar_protos.broker_pb2 import (
    CloseProducer,
    EntryRefused,
    OpenProducer,
    Problem,
    ProduceAnswer,
    ProduceRequest,
    ProducerOpened,
    Receipt,
)
from magnetar_wire.blobs import field_head
from magnetar_wire.frame import FrameBuilder
from magnetar_wire.transport import Stream

__all__ = ["ProduceChannel", "ProduceStream"]

# Producers that one message opens, and closes: brokers bound what a message has of them.
_AT_ONCE: Final = 2_000
# A message that is less than a piece of the transport (262,144 bytes) is taken as it is, and the broker reads on
# meanwhile. A larger one it joins from pieces, and reads nothing more until that is taken: with batches of 128 KiB,
# messages of 1 MiB were 8 … 15 % slower. Below this there is room for another batch of the default size (131,072 bytes,
# and its metadata), and what stands around the two.
_FILL_BYTES: Final = 130_000


class ProduceChannel(Channel, Protocol):
    """One producer's end."""

    def fill(self, builder: FrameBuilder) -> bool:
        """Puts what is to be sent into the frame; False where it has no room for all."""

    def opened(self, answer: ProducerOpened) -> None: ...

    def received(self, receipt: Receipt) -> None: ...

    def refused(self, refusal: EntryRefused) -> None: ...

    def set_flow(self, paused: bool, waiting_for: str) -> None:
        """The broker takes no more of its entries for now, or takes them again. `waiting_for`: why the topic stores
        nothing at present; empty: it does."""

    def ended(self, problem: Problem | None) -> None:
        """The link knows the producer no more. None: because it was closed."""


class ProduceStream(BrokerStream[ProduceChannel]):
    method = "produce"

    def __init__(self, stream: Stream, address: str) -> None:
        super().__init__(stream, address)
        self._opens: list[OpenProducer] = []
        # The channels that have something to send, by whose turn it is.
        self._ready: dict[int, ProduceChannel] = {}
        self._closes: list[int] = []

    def open(self, channel: ProduceChannel, request: OpenProducer) -> int:
        """Attaches the channel and has the producer opened; the answer is `opened`, or `ended`."""
        request.producer_id = self.attach(channel)
        self._opens.append(request)
        self.wake()
        return request.producer_id

    def ready(self, channel_id: int) -> None:
        """The channel has something to send."""
        if channel_id in self.channels:
            self._ready.setdefault(channel_id, self.channels[channel_id])
            self.wake()

    def close(self, channel_id: int) -> None:
        """Has the producer closed behind all that it has sent; the answer is `ended`."""
        if channel_id in self.channels:
            self._closes.append(channel_id)
            self.wake()

    def detach(self, channel_id: int) -> None:
        super().detach(channel_id)
        self._ready.pop(channel_id, None)

    def gather(self) -> bytes | None:
        if not (self._opens or self._ready or self._closes):
            return None
        parts: list[bytes] = []
        if self._opens:
            opens, self._opens = self._opens[:_AT_ONCE], self._opens[_AT_ONCE:]
            parts.append(ProduceRequest(open=opens).SerializeToString())
        builder = FrameBuilder(_FILL_BYTES)
        while self._ready:
            channel_id = next(iter(self._ready))
            channel = self._ready.pop(channel_id)
            if not channel.fill(builder):  # the others come first next time
                self._ready[channel_id] = channel
                break
        if len(builder):
            frame = builder.take_parts()
            parts += (field_head(ProduceRequest.FRAME_FIELD_NUMBER, sum(map(len, frame))), *frame)
        unsent = {one.producer_id for one in self._opens}
        closes = [one for one in self._closes if one not in self._ready and one not in unsent][:_AT_ONCE]
        if closes:
            now = frozenset(closes)
            self._closes = [channel_id for channel_id in self._closes if channel_id not in now]
            parts.append(ProduceRequest(close=map(_close, closes)).SerializeToString())
        return b"".join(parts) or None

    def dispatch(self, message: bytes) -> None:
        answer = ProduceAnswer.FromString(message)
        channels = self.channels
        for opened in answer.opened:
            if (channel := channels.get(opened.producer_id)) is not None:
                channel.opened(opened)
        for receipt in answer.receipts:
            if (channel := channels.get(receipt.producer_id)) is not None:
                channel.received(receipt)
        for refusal in answer.refused:
            if (channel := channels.get(refusal.producer_id)) is not None:
                channel.refused(refusal)
        for ended in answer.ended:
            if (channel := channels.get(ended.producer_id)) is not None:
                self.detach(ended.producer_id)
                channel.ended(ended.problem if ended.HasField("problem") else None)
        for flow in answer.flow:
            if (channel := channels.get(flow.producer_id)) is not None:
                channel.set_flow(flow.paused, flow.waiting_for)


def _close(channel_id: int) -> CloseProducer:
    return CloseProducer(producer_id=channel_id)
