"""What the consumers of one `consume` stream share: its outbox, and the address of its client.

The stream (consume_stream.py) reads requests and sends the outbox. Its consumers (stream_consumer.py) see this object
only.
"""

from __future__ import annotations

import asyncio

from magnetar_broker.counters import BrokerCounters
from magnetar_broker.server.grpc.consume_outbox import ConsumeOutbox
from magnetar_broker.topics.dispatch.delivery_capacity import OutboxBudget, OutboxCapacity
from magnetar_protos.broker_pb2 import (
    ActiveChanged,
    ConsumerEnded,
    ConsumerOpened,
    Done,
    EpochBegan,
    ReachedEnd,
    TopicGrown,
)

__all__ = ["ConsumeSession"]


class ConsumeSession:
    __slots__ = ("_to_send", "address", "is_broken", "outbox", "outbox_capacity")

    def __init__(
        self, address: str, max_queued_bytes: int, budget: OutboxBudget, counters: BrokerCounters | None
    ) -> None:
        # Of the client.
        self.address = address
        # For entries. The sender offers it to consumers whenever it has composed a message.
        self.outbox_capacity = OutboxCapacity(max_queued_bytes, budget, self.wake_sender)
        self.outbox = ConsumeOutbox(self.outbox_capacity, counters)
        # The stream has broken: nothing can be sent.
        self.is_broken = False
        # The sender waits for this.
        self._to_send: asyncio.Future[None] | None = None

    def send_before_entries(self, part: ConsumerOpened | EpochBegan | ActiveChanged) -> None:
        """Send a part before all entries that are queued later."""
        self.outbox.add_before_entries(part)
        self.wake_sender()

    def send_after_entries(self, part: Done | ConsumerEnded | ReachedEnd | TopicGrown) -> None:
        """Send a part after all entries that are queued now."""
        self.outbox.add_after_entries(part)
        self.wake_sender()

    def wake_sender(self) -> None:
        if self._to_send is not None and not self._to_send.done():
            self._to_send.set_result(None)

    async def wait_to_send(self) -> None:
        """Return when `wake_sender` is called."""
        self._to_send = asyncio.get_running_loop().create_future()
        await self._to_send
