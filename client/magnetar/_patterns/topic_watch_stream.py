"""The `watch_topics` stream: one for all pattern consumers of a client at one broker.

See magnetar_protos/broker.proto.
"""

from __future__ import annotations

from typing import Protocol

from magnetar._connections.broker_stream import BrokerStream, Channel
from magnetar_protos.broker_pb2 import TopicsUpdate, WatchTopics, WatchTopicsAnswer, WatchTopicsRequest
from magnetar_wire.transport import Stream

__all__ = ["TopicWatchChannel", "TopicWatchStream"]


class TopicWatchChannel(Channel, Protocol):
    """A watch, as its stream knows it."""

    def updated(self, update: TopicsUpdate) -> None: ...


class TopicWatchStream(BrokerStream[TopicWatchChannel]):
    method = "watch_topics"

    def __init__(self, stream: Stream, address: str) -> None:
        super().__init__(stream, address)
        self._next = WatchTopicsRequest()

    def begin_watch(self, watch_id: int, request: WatchTopics) -> None:
        """Send the request of an attached channel."""
        request.watch_id = watch_id
        self._next.watch.append(request)
        self.wake()

    def end_watch(self, watch_id: int) -> None:
        """Detach the channel, and have the broker end its watch."""
        self.detach(watch_id)
        self._next.close.append(watch_id)
        self.wake()

    def gather(self) -> bytes | None:
        request, self._next = self._next, WatchTopicsRequest()
        return request.SerializeToString() or None

    def dispatch(self, message: bytes) -> None:
        for update in WatchTopicsAnswer.FromString(message).updates:
            channel = self.channels.get(update.watch_id)
            if channel is not None:
                channel.updated(update)
