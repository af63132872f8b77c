"""Where a consumer's part is in its topic's log: where the next opening begins, and whether there is more to read.

Of a subscription that is not Shared the broker says with each epoch what its deliveries lie behind; what has come since
is known here. The last message of the topic is asked for, and one that has not come is waited for: it may be trimmed on
its way. So `has_more` is true only of what a read will return.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from magnetar._arrivals import Arrivals
from magnetar._client_core import ClientCore
from magnetar._places import WHOLE_ENTRY, Place, last_place, read_up_to, resumed
from magnetar._receiver_queue import ReceiverQueue, Source
from magnetar.exceptions import TopicNotFound
from magnetar_protos.broker_pb2 import ConsumerOpened, EpochBegan, MessagePlace, StartAt
from magnetar_wire.message_id import MessageId

__all__ = ["Whereabouts"]


class Whereabouts:
    def __init__(
        self,
        topic: str,
        client: ClientCore,
        queue: ReceiverQueue,
        source: Source,
        arrivals: Arrivals,
        ask: Callable[..., object],
    ) -> None:
        """`ask` has the broker send what it may."""
        self._topic = topic
        self._client = client
        self._queue = queue
        self._source = source
        self._arrivals = arrivals
        self._ask = ask
        # All that is delivered in this epoch lies behind it, if that is known.
        self._behind: Place | None = None
        # Told when something has come, or may never come.
        self._watching: list[asyncio.Future[None]] = []

    def began(self, word: ConsumerOpened | EpochBegan) -> None:
        self._behind = read_up_to(word.behind) if word.HasField("behind") else None
        self.news()

    @property
    def _delivered_up_to(self) -> Place | None:
        last = self._arrivals.last
        if last is None:
            return self._behind
        place = (*last, WHOLE_ENTRY)
        return place if self._behind is None else max(place, self._behind)

    def resumed(self, start: StartAt) -> StartAt:
        """Where to go on, to have all that was not delivered."""
        return resumed(start, self._delivered_up_to)

    async def with_last(self, start: StartAt) -> StartAt:
        """In place of the end of the topic, its last message, if it has one."""
        if start.WhichOneof("at") != "latest":
            return start
        try:
            answer = await self._client.lookup.last_message(self._topic)
        except TopicNotFound:
            return start
        if not answer.HasField("last"):
            return start
        last = answer.last
        place = MessagePlace(ledger_id=last.ledger_id, entry_id=last.entry_id, inclusive=True)
        place.batch_index = last.batch_size - 1 if last.batch_size else -1
        return StartAt(place=place)

    async def find_behind(self, start: StartAt) -> None:
        """Where the broker did not say what the epoch lies behind, the last message that there is now."""
        if self._behind is None and start.WhichOneof("at") in ("latest", "time_ms"):
            answer = await self._client.lookup.last_message(self._topic)
            if self._behind is None:
                self._behind = last_place(answer.last) if answer.HasField("last") else (-1, -1, -1)

    async def has_more(self) -> bool:
        while not self._is_here():
            answer = await self._client.lookup.last_message(self._topic)
            if self._is_here():
                break
            last = self._delivered_up_to
            if not answer.HasField("last") or (last is not None and last >= last_place(answer.last)):
                return False
            await self._wait_for_news()
        return True

    def _is_here(self) -> bool:
        """With nothing in line all that has come is here, handed out, or left out."""
        self._arrivals.let_in(self._queue)
        return self._queue.has_of(self._source)

    async def _wait_for_news(self) -> None:
        news: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._watching.append(news)
        with self._queue.lock:  # without a queue a message comes only while somebody waits
            self._queue.waiting += 1
        try:
            self._ask(eager=True)
            await self._client.operations.wait_for(news, f"the last message of {self._topic} has not come")
        finally:
            with self._queue.lock:
                self._queue.waiting -= 1

    def news(self, error: Exception | None = None) -> None:
        """Something has come, or the opening or the epoch is another. Or it is all over."""
        watching, self._watching = self._watching, []
        for one in watching:
            if one.done():
                continue
            if error is None:
                one.set_result(None)
            else:
                one.set_exception(error)

    async def last_message_id(self, partition: int) -> MessageId:
        """Of no message, the place before all."""
        answer = await self._client.lookup.last_message(self._topic)
        if not answer.HasField("last"):
            return MessageId(partition=partition, topic_name=self._topic)
        last = answer.last
        index = last.batch_size - 1 if last.batch_size else -1
        return MessageId(partition, last.ledger_id, last.entry_id, index, last.batch_size, self._topic)
