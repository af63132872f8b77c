"""What a consumer asks of its subscription and has answered: a seek, and deleting it.

One that was on its way when the connection broke is unknown, and both can be asked again: where the subscription is
afterwards is the same.
"""

from __future__ import annotations

import asyncio

from magnetar._errors import from_problem
from magnetar.exceptions import ConnectError
from magnetar_protos.broker_pb2 import ConsumeRequest, Done, Seek, Unsubscribe

__all__ = ["Asks"]


class Asks:
    def __init__(self) -> None:
        self._to_say: list[Seek | Unsubscribe] = []
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self._unsubscribing = 0
        # The subscription is deleted.
        self.unsubscribed = False

    def put(self, ask: Seek | Unsubscribe, consumer_id: int, request_id: int) -> asyncio.Future[None]:
        """Raises, where it is awaited, what the broker says, or ConnectError where that is unknown."""
        ask.consumer_id, ask.request_id = consumer_id, request_id
        if isinstance(ask, Unsubscribe):
            self._unsubscribing = request_id
        self._to_say.append(ask)
        answer = self._waiting[request_id] = asyncio.get_running_loop().create_future()
        answer.add_done_callback(lambda _: self._waiting.pop(request_id, None))
        return answer

    def say(self, request: ConsumeRequest) -> int:
        """Puts them in, and returns how many there were."""
        count = len(self._to_say)
        for ask in self._to_say:
            if isinstance(ask, Seek):
                request.seek.append(ask)
            else:
                request.unsubscribe.append(ask)
        self._to_say = []
        return count

    def done(self, answer: Done) -> None:
        failed = answer.HasField("problem")
        if answer.request_id == self._unsubscribing and not failed:
            self.unsubscribed = True  # at once: word that the consumer is gone may be next
        waiting = self._waiting.get(answer.request_id)
        if waiting is not None and not waiting.done():
            if failed:
                waiting.set_exception(from_problem(answer.problem))
            else:
                waiting.set_result(None)

    def lost(self, error: Exception) -> None:
        """No answers will come."""
        self._to_say = []
        for waiting in list(self._waiting.values()):
            if not waiting.done():
                waiting.set_exception(ConnectError(f"the connection was lost before it was answered: {error}"))
