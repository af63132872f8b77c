"""The `consume` stream: what all consumers ask and acknowledge out, entries in. See magnetar_protos/broker.proto.

A consumer that has something to say says so once (`ready`), and is asked for it when the next message is made. Within a
message the parts count in the order of their field numbers, so a consumer puts in whatever it has without minding the
order: acknowledgements come before what has messages delivered again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from magnetar._broker_stream import BrokerStream, Channel
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
)
from magnetar_wire.errors import MalformedFrame
from magnetar_wire.frame import decode_frame
from magnetar_wire.transport import Stream

__all__ = ["ConsumeLink", "ConsumerChannel", "Gathered"]

# What one message has at most, about. A broker takes 20,000 parts: what is opened, closed and asked, ranges and batches
# and what they are in; and 9 MiB.
_MAX_PARTS: Final = 15_000
_MAX_BYTES: Final = 1_048_576


class Gathered:
    """The next message, and how much room it has left."""

    __slots__ = ("bytes_left", "parts_left", "request")

    def __init__(self, parts: int = _MAX_PARTS, size_bytes: int = _MAX_BYTES) -> None:
        self.request = ConsumeRequest()
        self.parts_left = parts
        self.bytes_left = size_bytes

    @property
    def full(self) -> bool:
        return self.parts_left <= 0 or self.bytes_left <= 0

    def count(self, parts: int, size_bytes: int) -> None:
        """So much was put in."""
        self.parts_left -= parts
        self.bytes_left -= size_bytes


class ConsumerChannel(Channel, Protocol):
    """One consumer's end."""

    def fill(self, gathered: Gathered) -> bool:
        """Puts in what is to be sent, while there is room; False where there is more."""

    def opened(self, answer: ConsumerOpened) -> None: ...

    def epoch_began(self, epoch: EpochBegan) -> None: ...

    def active_changed(self, active: bool) -> None: ...

    def delivered(self, delivery: Delivery, entries: Sequence[bytes]) -> None: ...

    def done(self, answer: Done) -> None: ...

    def ended(self, problem: Problem | None) -> None:
        """The link knows the consumer no more. None: because it was closed."""


class ConsumeLink(BrokerStream[ConsumerChannel]):
    method = "consume"

    def __init__(self, stream: Stream, address: str) -> None:
        super().__init__(stream, address)
        # Who has something to say, each once, longest waiting first.
        self._ready: dict[int, None] = {}
        # Consumers that nobody waits for any more, though the broker may have them.
        self._given_up: list[int] = []

    def ready(self, consumer_id: int) -> None:
        """The consumer has something to say."""
        if consumer_id in self.channels:
            self._ready[consumer_id] = None
            self.wake()

    def give_up(self, consumer_id: int) -> None:
        """Detaches the consumer and has it closed at the broker."""
        self.detach(consumer_id)
        self._given_up.append(consumer_id)
        self.wake()

    def detach(self, channel_id: int) -> None:
        super().detach(channel_id)
        self._ready.pop(channel_id, None)

    def gather(self) -> bytes | None:
        if not (self._ready or self._given_up):
            return None
        gathered = Gathered()
        closing, self._given_up = self._given_up[:_MAX_PARTS], self._given_up[_MAX_PARTS:]
        gathered.request.close.extend(CloseConsumer(consumer_id=given_up) for given_up in closing)
        gathered.count(len(closing), 0)
        for consumer_id in list(self._ready):
            if gathered.full:
                break
            del self._ready[consumer_id]
            if not self.channels[consumer_id].fill(gathered):
                self._ready[consumer_id] = None  # behind all others
        return gathered.request.SerializeToString() or None

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
            raise MalformedFrame(f"of {len(runs)} runs something is said of {len(answer.deliveries)}")
        for run, delivery in zip(runs, answer.deliveries, strict=True):
            if run.channel in channels:
                channels[run.channel].delivered(delivery, run.entries)
        for done in answer.done:
            if done.consumer_id in channels:
                if done.problem.code == ErrorCode.NOT_FOUND:
                    # It has ended there already, and word of that comes behind: what was asked was not done, and is to
                    # be asked in the next opening.
                    done.problem.code = ErrorCode.SERVICE_NOT_READY
                channels[done.consumer_id].done(done)
        for ended in answer.ended:
            channel = channels.get(ended.consumer_id)
            if channel is not None:
                self.detach(ended.consumer_id)
                channel.ended(ended.problem if ended.HasField("problem") else None)
