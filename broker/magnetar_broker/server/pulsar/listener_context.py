"""What all connections of the Pulsar listeners share."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Final

from magnetar_broker.broker_session import BrokerSession
from magnetar_broker.server.context import ServerContext
from magnetar_broker.server.pulsar.incomplete_frames import IncompleteFrames
from magnetar_broker.settings.service import BrokerServiceSettings

__all__ = ["ListenerContext"]

# Connections that read entries at a time to learn the sizes of batches.
_BATCH_SIZE_READERS: Final = 16
# Maximum size of one read. A larger one would make other connections wait for too long.
_READ_BYTES: Final = 262_144


class ListenerContext:
    def __init__(self, server: ServerContext) -> None:
        self.server = server
        # Whether a lookup of a topic of this broker returns the address at which the client reached it. A standalone
        # that listens at all its addresses, and was given none to advertise, sets this before it listens.
        self.advertises_reached_address = False
        # Connections read into it in turn.
        self.read_buffer = memoryview(bytearray(_READ_BYTES))
        # Of all listeners.
        self.connections = 0
        self.connections_by_ip: Counter[str] = Counter()
        self.incomplete_frames = IncompleteFrames(server.settings.max_unfinished_frames_bytes)
        self.batch_size_readers = asyncio.Semaphore(_BATCH_SIZE_READERS)

    @property
    def settings(self) -> BrokerServiceSettings:
        return self.server.settings

    def broker_session(self) -> BrokerSession:
        """Return the broker's session. Raises `TopicUnloaded` while it has none: clients then look up again."""
        return self.server.get_session()
