"""Where a consumer's part is in its topic's log: where the next opening begins, and whether there is more to read.

Of a subscription that is not Shared the broker says with each epoch what its deliveries lie behind; what was handed out
since is known here. The last message of the topic is asked for: so `has_more` is true only of what a read would return.
"""

from __future__ import annotations

from magnetar._connections import Connections
from magnetar._message import Message
from magnetar._places import Place, last_place, place_of, read_up_to, resumed, right_before
from magnetar._receiver_queue import ReceiverQueue, Source
from magnetar_protos.broker_pb2 import ConsumerOpened, EpochBegan, StartAt
from magnetar_wire.message_id import MessageId

__all__ = ["Whereabouts"]


class Whereabouts:
    def __init__(self, topic: str, connections: Connections, queue: ReceiverQueue, source: Source) -> None:
        self._topic = topic
        self._connections = connections
        self._queue = queue
        self._source = source
        # All that is delivered in this epoch lies behind it, if that is known.
        self._behind: Place | None = None

    def began(self, word: ConsumerOpened | EpochBegan) -> None:
        self._behind = read_up_to(word.behind) if word.HasField("behind") else None

    @property
    def _last_read(self) -> Place | None:
        """With nothing of the source in the queue."""
        last = self._source.last
        return self._behind if last is None else place_of(last)

    def drop_queue(self, start: StartAt) -> StartAt:
        """Drops what is not handed out, and says where to go on for having it all."""
        last = self._last_read
        unread: Message | None = self._queue.clear(self._source)
        # Until the next epoch says it better: whoever asks meanwhile must not take what was read for more to read.
        self._behind = last if unread is None else right_before(unread)
        return resumed(start, last, unread)

    async def find_behind(self, start: StartAt) -> None:
        """Where the broker did not say what the epoch lies behind, the last message that there is now."""
        if self._behind is None and start.WhichOneof("at") in ("latest", "time_ms"):
            answer = await self._connections.last_message(self._topic)
            if self._behind is None:
                self._behind = last_place(answer.last) if answer.HasField("last") else (-1, -1, -1)

    async def has_more(self) -> bool:
        answer = await self._connections.last_message(self._topic)
        if self._queue.has_of(self._source):
            return True
        last = self._last_read
        return answer.HasField("last") and (last is None or last < last_place(answer.last))

    async def last_message_id(self, partition: int) -> MessageId:
        """Of no message, the place before all."""
        answer = await self._connections.last_message(self._topic)
        if not answer.HasField("last"):
            return MessageId(partition=partition, topic_name=self._topic)
        last = answer.last
        index = last.batch_size - 1 if last.batch_size else -1
        return MessageId(partition, last.ledger_id, last.entry_id, index, last.batch_size, self._topic)
