"""Terminates a topic: it accepts no more messages, for good.

The appender closes the current ledger at its last confirmed entry. Then `store` marks the list of ledgers in the
topic's node as terminated. In the meantime no ledger is created, so appends wait. An entry that was sent to the bookies
before is stored in the ledger that is being closed, or waits again if that ledger has failed. When the node is
changed, the entries that wait are refused: they are in no ledger, and never will be. If the change is refused,
appending goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from magnetar_broker.errors import BrokerError, TopicUnloaded
from magnetar_broker.managed_ledger.ledger_list import ListChange
from magnetar_broker.managed_ledger.topic_node import TopicNode
from magnetar_metadata.errors import MetadataError
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_wire.clock import Clock
from magnetar_wire.topic_name import TopicName

__all__ = ["Termination", "create_terminated_error"]

# Seconds after which a request gets an error that names what the termination waits for. Less than the first timeout of
# a broker that calls the topic's owner, and calls it again for as long as an admin call may take.
_MAX_WAIT_S: Final = 2.5


def create_terminated_error(topic: TopicName) -> BrokerError:
    """Return the error of appends to a terminated topic."""
    return BrokerError(ErrorCode.TOPIC_TERMINATED, f"topic {topic} is terminated: it accepts no more messages")


class Termination:
    """The termination of one topic. Requests for it wait for the same one."""

    __slots__ = ("_clock", "_node", "_requested")

    def __init__(self, node: TopicNode, clock: Clock) -> None:
        self._node = node
        self._clock = clock
        # Done when the topic is terminated, or can't be. None: it is not being terminated.
        self._requested: asyncio.Future[None] | None = None

    @property
    def is_requested(self) -> bool:
        """Whether the topic is being terminated."""
        return self._requested is not None

    def request(self) -> None:
        self._requested = asyncio.get_running_loop().create_future()
        self._requested.add_done_callback(lambda done: done.exception())  # callers may be cancelled

    async def wait(self, explain_wait: Callable[[], str]) -> None:
        """Return when the topic is terminated. `explain_wait` returns what the termination waits for.

        Raises `BrokerError`: METADATA_ERROR if it can't be done now; `TopicUnloaded` if it is unknown whether it was
        done; UNKNOWN_ERROR if it takes long: then it goes on, and another request waits for it again.
        """
        requested = self._requested
        assert requested is not None
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def wake(_: object = None) -> None:
            if not woken.done():
                woken.set_result(None)

        timer = self._clock.call_later(_MAX_WAIT_S, wake)
        requested.add_done_callback(wake)
        try:
            await woken
        finally:
            timer.cancel()
        if not requested.done():
            text = f"topic {self._node.name} is not terminated yet: {explain_wait()}; it goes on: call it again"
            raise BrokerError(ErrorCode.UNKNOWN_ERROR, text)
        requested.result()

    async def store(self) -> bool:
        """Mark the list of ledgers, which has no open one, as terminated, and return whether that is durable. The
        requests return, or fail, when the caller waits next. Raises `TopicUnloaded`."""
        try:
            await self._node.change(ListChange(terminates=True, empty=self._node.ledger_list.empty_ledger_id))
        except TopicUnloaded:
            raise
        except MetadataError as error:
            text = f"topic {self._node.name} can't be terminated now: {error}; try again"
            self.fail(BrokerError(ErrorCode.METADATA_ERROR, text))
            return False
        requested, self._requested = self._requested, None
        if requested is not None:
            requested.set_result(None)
        return True

    def fail(self, error: BrokerError) -> None:
        """Let the requests fail, if there are any."""
        requested, self._requested = self._requested, None
        if requested is not None:
            requested.set_exception(error)
