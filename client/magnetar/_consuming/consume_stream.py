"""The `consume` stream: one for all consumers of a client at one broker. See magnetar_protos/broker.proto.

Requests and acknowledgements go out, entries come in. A consumer that has something to send reports that once
(`mark_ready`), and is asked for it (`fill`) when the next message is built. The parts of a message take effect in the
order of their field numbers, so that a consumer adds what it has in any order. Acknowledgements take effect before
anything that causes a redelivery.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from magnetar._connections.broker_stream import BrokerStream, Channel
from magnetar_protos.broker_pb2 import (
    CloseConsumer,
    ConsumeAnswer,
    ConsumeRequest,
    ConsumerOpened,
    Delivery,
    Done,
    EpochBegan,
    ErrorCode,
    Problem,
    ReachedEnd,
)
from magnetar_wire.errors import MalformedFrame
from magnetar_wire.frame import decode_frame
from magnetar_wire.transport import Stream

__all__ = ["ConsumeChannel", "ConsumeStream", "RequestBuilder"]

# The size of one message, about. A broker accepts 20,000 parts (requests, ranges and batches) and 9 MiB.
_MAX_PARTS: Final = 15_000
_MAX_BYTES: Final = 1_048_576


class RequestBuilder:
    """The next message of the stream, and how much more it can hold."""

    __slots__ = ("bytes_left", "parts_left", "request")

    def __init__(self, parts: int = _MAX_PARTS, size_bytes: int = _MAX_BYTES) -> None:
        self.request = ConsumeRequest()
        self.parts_left = parts
        self.bytes_left = size_bytes

    @property
    def is_full(self) -> bool:
        return self.parts_left <= 0 or self.bytes_left <= 0

    def count(self, parts: int, size_bytes: int) -> None:
        """Count what was added to the request."""
        self.parts_left -= parts
        self.bytes_left -= size_bytes


class ConsumeChannel(Channel, Protocol):
    """A consumer of one topic or partition, as the stream knows it."""

    def fill(self, builder: RequestBuilder) -> bool:
        """Add what is to be sent, while the builder has capacity; False: there is more."""

    def opened(self, answer: ConsumerOpened) -> None: ...

    def epoch_began(self, epoch: EpochBegan) -> None: ...

    def active_changed(self, active: bool) -> None: ...

    def delivered(self, delivery: Delivery, entries: Sequence[bytes]) -> None:
        """Add entries. `take_delivered` follows once for all entries of a message."""

    def take_delivered(self) -> None:
        """Decode the entries that were added."""

    def done(self, answer: Done) -> None: ...

    def reached_end(self, reached: ReachedEnd) -> None: ...

    def topic_grew(self, partitions: int) -> None:
        """The partitioned topic has this many partitions now."""

    def ended(self, problem: Problem | None) -> None:
        """The broker has closed the consumer, and the stream has detached it. None: the client had requested that."""


class ConsumeStream(BrokerStream[ConsumeChannel]):
    method = "consume"

    def __init__(self, stream: Stream, address: str) -> None:
        super().__init__(stream, address)
        # Consumers that have something to send, each once, longest waiting first.
        self._ready: dict[int, None] = {}
        # Consumers that were abandoned, and may be open at the broker.
        self._abandoned: list[int] = []

    def mark_ready(self, consumer_id: int) -> None:
        """The consumer has something to send."""
        if consumer_id in self.channels:
            self._ready[consumer_id] = None
            self.wake()

    def abandon(self, consumer_id: int) -> None:
        """Detach the consumer, and have the broker close it."""
        self.detach(consumer_id)
        self._abandoned.append(consumer_id)
        self.wake()

    def detach(self, channel_id: int) -> None:
        super().detach(channel_id)
        self._ready.pop(channel_id, None)

    def gather(self) -> bytes | None:
        if not (self._ready or self._abandoned):
            return None
        builder = RequestBuilder()
        closing, self._abandoned = self._abandoned[:_MAX_PARTS], self._abandoned[_MAX_PARTS:]
        builder.request.close.extend(CloseConsumer(consumer_id=consumer_id) for consumer_id in closing)
        builder.count(len(closing), 0)
        for consumer_id in list(self._ready):
            if builder.is_full:
                break
            del self._ready[consumer_id]
            if not self.channels[consumer_id].fill(builder):
                self._ready[consumer_id] = None  # behind all others
        return builder.request.SerializeToString() or None

    def dispatch(self, message: bytes) -> None:
        answer = ConsumeAnswer.FromString(message)
        channels = self.channels
        for opened in answer.opened:
            if opened.consumer_id in channels:
                channels[opened.consumer_id].opened(opened)
        for epoch in answer.epochs:
            if epoch.consumer_id in channels:
                channels[epoch.consumer_id].epoch_began(epoch)
        for active in answer.active:
            if active.consumer_id in channels:
                channels[active.consumer_id].active_changed(active.active)
        runs = decode_frame(answer.frame) if answer.HasField("frame") else []
        if len(runs) != len(answer.deliveries):
            raise MalformedFrame(f"a frame of {len(runs)} runs of entries has {len(answer.deliveries)} deliveries")
        served: dict[int, ConsumeChannel] = {}
        for run, delivery in zip(runs, answer.deliveries, strict=True):
            if (channel := channels.get(run.channel)) is not None:
                channel.delivered(delivery, run.entries)
                served[run.channel] = channel
        for channel in served.values():
            channel.take_delivered()
        for done in answer.done:
            if done.consumer_id in channels:
                if done.problem.code == ErrorCode.NOT_FOUND:
                    # The broker has closed the consumer before it read the request, and `ended` follows. The request
                    # was not executed, so it is to be repeated in the next opening.
                    done.problem.code = ErrorCode.SERVICE_NOT_READY
                channels[done.consumer_id].done(done)
        for reached in answer.reached_end:
            if reached.consumer_id in channels:
                channels[reached.consumer_id].reached_end(reached)
        for grown in answer.grown:
            if grown.channel_id in channels:
                channels[grown.channel_id].topic_grew(grown.partitions)
        for ended in answer.ended:
            if (channel := channels.get(ended.consumer_id)) is not None:
                self.detach(ended.consumer_id)
                channel.ended(ended.problem if ended.HasField("problem") else None)
