"""The `produce` stream: all producers of a client send entries to one broker, and get their results.

See magnetar_protos/broker.proto. A producer with entries to send registers once (`mark_ready`), and puts them into the
next message when that is built (`fill`). Producers take turns: one that does not fit all its entries into a message is
served last in the next one. A producer that the broker has paused, because its topic has no capacity, sends nothing
until it is resumed, and the others go on.
"""

from __future__ import annotations

from typing import Final, Protocol

from magnetar._connections.broker_stream import MAX_OPEN_BYTES, BrokerStream, Channel
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
from magnetar_wire.frame import FrameBuilder
from magnetar_wire.protobuf_fields import encode_field_head
from magnetar_wire.transport import Stream

__all__ = ["ProduceChannel", "ProduceStream"]

# How many producers one message opens, and closes. Brokers limit both.
_MAX_CHANGES: Final = 2_000
# A message smaller than one piece of the transport (262,144 bytes) is handled as it is, while the broker reads the next
# one. A larger message is joined from pieces, and the broker reads nothing more until it is handled: with batches of
# 128 KiB, messages of 1 MiB were 8 … 15 % slower. Up to this size, another batch of the default size (131,072 bytes and
# its metadata) and the framing of both fit into a piece.
_FILL_BYTES: Final = 130_000


class ProduceChannel(Channel, Protocol):
    """A producer, as its stream uses it."""

    def fill(self, builder: FrameBuilder) -> bool:
        """Put entries into the frame. Return False if they do not all fit."""

    def queued(self) -> None:
        """Note that the opening waits until no other producer is connected."""

    def opened(self, answer: ProducerOpened) -> None: ...

    def received(self, receipt: Receipt) -> None: ...

    def refused(self, refusal: EntryRefused) -> None: ...

    def set_flow(self, paused: bool, waiting_for: str) -> None:
        """Stop sending entries, or go on. `waiting_for`: why the topic stores nothing at present; empty: it does."""

    def topic_grew(self, partitions: int) -> None:
        """Note that the partitioned topic has this many partitions now."""

    def ended(self, problem: Problem | None, topic_epoch: int | None) -> None:
        """Note that the broker has closed the producer. No problem: as the client has requested. `topic_epoch`: the
        topic's, if the one that was presented was refused."""


class ProduceStream(BrokerStream[ProduceChannel]):
    method = "produce"

    def __init__(self, stream: Stream, address: str) -> None:
        super().__init__(stream, address)
        self._opens: list[OpenProducer] = []
        # The channels that have something to send. The first one is served first.
        self._ready: dict[int, ProduceChannel] = {}
        self._closes: list[int] = []

    def open(self, channel: ProduceChannel, request: OpenProducer) -> int:
        """Attach the channel, and request the producer's opening. The answer is `opened`, or `ended`."""
        request.producer_id = self.attach(channel)
        self._opens.append(request)
        self.wake()
        return request.producer_id

    def mark_ready(self, channel_id: int) -> None:
        """Have the channel `fill` the next message."""
        if channel_id in self.channels:
            self._ready.setdefault(channel_id, self.channels[channel_id])
            self.wake()

    def close(self, channel_id: int) -> None:
        """Request the producer's closing, after everything that it has sent. The answer is `ended`."""
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
            parts.append(ProduceRequest(open=self._pop_opens()).SerializeToString())
        builder = FrameBuilder(_FILL_BYTES)
        while self._ready:
            channel_id = next(iter(self._ready))
            channel = self._ready.pop(channel_id)
            if not channel.fill(builder):  # in the next message, the others come first
                self._ready[channel_id] = channel
                break
        if len(builder):
            frame = builder.build_parts()
            parts += (encode_field_head(ProduceRequest.FRAME_FIELD_NUMBER, sum(map(len, frame))), *frame)
        unsent = {one.producer_id for one in self._opens}
        closes = [one for one in self._closes if one not in self._ready and one not in unsent][:_MAX_CHANGES]
        if closes:
            closed_now = frozenset(closes)
            self._closes = [channel_id for channel_id in self._closes if channel_id not in closed_now]
            parts.append(ProduceRequest(close=map(_close, closes)).SerializeToString())
        return b"".join(parts) or None

    def _pop_opens(self) -> list[OpenProducer]:
        """Return the next requests to open producers: at least one, and no more than a message may have."""
        size = 0
        for count, request in enumerate(self._opens[:_MAX_CHANGES]):
            size += request.ByteSize()
            if count and size > MAX_OPEN_BYTES:
                break
        else:
            count = min(len(self._opens), _MAX_CHANGES)
        opens, self._opens = self._opens[:count], self._opens[count:]
        return opens

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
                channel.ended(
                    ended.problem if ended.HasField("problem") else None,
                    ended.topic_epoch if ended.HasField("topic_epoch") else None,
                )
        for flow in answer.flow:
            if (channel := channels.get(flow.producer_id)) is not None:
                channel.set_flow(flow.paused, flow.waiting_for)
        for grown in answer.grown:
            if (channel := channels.get(grown.channel_id)) is not None:
                channel.topic_grew(grown.partitions)
        for queued in answer.queued:
            if (channel := channels.get(queued.producer_id)) is not None:
                channel.queued()


def _close(channel_id: int) -> CloseProducer:
    return CloseProducer(producer_id=channel_id)
