"""What all workers of one client process share.

The SDK's clients are made when the first worker asks for one, and so is the one of Pulsar's own library. Those of
asyncio have a loop in a thread of its own that is never closed: gRPC's library hands events to closed loops as well,
and drops others' with them.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Coroutine
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import pulsar

import magnetar
from magnetar import aio
from tests.faults.checker.recorder import Recorder
from tests.faults.torture.connections import Connections

__all__ = ["CLIENT_ERRORS", "Clients", "partition_name"]

# What the libraries of clients raise.
CLIENT_ERRORS: Final[tuple[type[Exception], ...]] = (magnetar.MagnetarException, pulsar.PulsarException)
# Opening and closing, by Pulsar's library: what is not answered by then is retried.
_STOCK_PATIENCE_S: Final = 10


@dataclass
class Clients:
    url: str
    # Where clients of Pulsar's own protocol find it.
    pulsar_url: str
    # By which brokers advertise their proxies.
    listener_name: str | None
    histories: Path
    seed: str
    # Role and run: `consume-1-3`. It is the history's writer, and part of the name of everything that is opened here.
    writer: str
    recorder: Recorder
    # Producers are to end; then readers that begin at ids; and then all are.
    stopping: threading.Event = field(default_factory=threading.Event)
    readers_ending: threading.Event = field(default_factory=threading.Event)
    quitting: threading.Event = field(default_factory=threading.Event)
    _making: threading.RLock = field(default_factory=threading.RLock)

    def chance(self, name: str) -> random.Random:
        """The randomness for this name."""
        return random.Random(f"{self.seed} {self.writer} {name}")

    @cached_property
    def connections(self) -> Connections:
        return Connections(self.recorder)

    @cached_property
    def _client(self) -> magnetar.Client:
        return magnetar.Client(self.url, listener_name=self.listener_name)

    @property
    def client(self) -> magnetar.Client:
        with self._making:
            return self._client

    @cached_property
    def _loop(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.new_event_loop()
        threading.Thread(target=loop.run_forever, name="asyncio's clients", daemon=True).start()
        return loop

    @cached_property
    def _aio_client(self) -> aio.Client:
        return aio.Client(self.url, listener_name=self.listener_name)

    @property
    def aio_client(self) -> aio.Client:
        """The SDK's asyncio client, for coroutines that run `on_the_loop`."""
        with self._making:
            return self._aio_client

    def on_the_loop(self, work: Coroutine[Any, Any, None]) -> None:
        """Run the coroutine on the asyncio loop's thread, and return when it has ended."""
        with self._making:
            loop = self._loop
        asyncio.run_coroutine_threadsafe(work, loop).result()

    @cached_property
    def _stock_client(self) -> pulsar.Client:
        log = self.histories.parent / f"{self.writer}.stock.log"
        return pulsar.Client(
            self.pulsar_url,
            listener_name=self.listener_name,
            operation_timeout_seconds=_STOCK_PATIENCE_S,
            stats_interval_in_seconds=0,
            logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, str(log)),
        )

    @property
    def stock_client(self) -> pulsar.Client:
        """A client of Pulsar's own library."""
        with self._making:
            return self._stock_client

    def close(self) -> None:
        """Close the clients. All workers have ended."""
        self.connections.close()
        if "_aio_client" in vars(self):
            self.on_the_loop(self._aio_client.close())
        if "_client" in vars(self):
            self._client.close()
        if "_stock_client" in vars(self):
            self._stock_client.close()
        self.recorder.close()


def partition_name(topic: str, partition: int) -> str:
    """Return the partition's name, from the topic's short name."""
    return topic if partition < 0 else f"{topic}-partition-{partition}"
