"""What the consumers of one `consume` stream share: its outbox, and the address of its client.

The stream (consume_stream.py) reads requests and sends the outbox. Its consumers (consumer_channel.py) see this object
only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from magnetar_broker.counters import BrokerCounters
from magnetar_broker.server.grpc.consume_outbox import ConsumeOutbox
from magnetar_broker.server.outbox_budget import OutboxBudget
from magnetar_protos.broker_pb2 import ActiveChanged, ConsumerEnded, ConsumerOpened, Done, EpochBegan

__all__ = ["ConsumeSession"]


class ConsumeSession:
    __slots__ = ("_to_send", "_without_capacity", "address", "is_broken", "outbox")

    def __init__(
        self, address: str, max_queued_bytes: int, budget: OutboxBudget | None, counters: BrokerCounters | None
    ) -> None:
        # Of the client.
        self.address = address
        self.outbox = ConsumeOutbox(max_queued_bytes, budget, counters)
        # The stream has broken: nothing can be sent.
        self.is_broken = False
        # Callbacks of consumers that found no capacity, in that order.
        self._without_capacity: dict[Callable[[], object], None] = {}
        # The sender waits for this.
        self._to_send: asyncio.Future[None] | None = None

    # Sending.

    def send_before(self, part: ConsumerOpened | EpochBegan | ActiveChanged) -> None:
        """Send a part before all entries that are queued later."""
        self.outbox.add_before(part)
        self.wake_sender()

    def send_after(self, part: Done | ConsumerEnded) -> None:
        """Send a part after all entries that are queued now."""
        self.outbox.add_after(part)
        self.wake_sender()

    def wake_sender(self) -> None:
        if self._to_send is not None and not self._to_send.done():
            self._to_send.set_result(None)

    async def wait_to_send(self) -> None:
        """Return when `wake_sender` is called."""
        self._to_send = asyncio.get_running_loop().create_future()
        await self._to_send

    # Capacity for entries.

    def capacity_for(self, on_capacity: Callable[[], object]) -> int:
        """Return how many bytes of entries may be queued. If 0 or less, `on_capacity` is called once there is more."""
        free = 0 if self.is_broken else self.outbox.free_bytes
        if free <= 0:
            self._without_capacity[on_capacity] = None
        return free

    def offer_capacity(self) -> None:
        """Call the consumers that found no capacity, while there is some."""
        if not self._without_capacity or self.outbox.free_bytes <= 0:
            return
        waiting, self._without_capacity = self._without_capacity, {}
        for on_capacity in waiting:
            if self.outbox.free_bytes <= 0:
                self._without_capacity[on_capacity] = None
            else:
                on_capacity()

    def forget(self, on_capacity: Callable[[], object]) -> None:
        self._without_capacity.pop(on_capacity, None)
