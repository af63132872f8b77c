"""How others learn that a broker is there, and how loaded it is: an ephemeral node, kept as long as the session lasts.

It may vanish though the session lives: it is made again. A former self's is taken away (predecessor.py), and one of
somebody else under the same id is waited out; meanwhile this broker is not given bundles by others.

In it stands the broker's load, which is written anew when that has changed (core/load_change.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Final

from google.protobuf.message import DecodeError

from magnetar_broker import paths
from magnetar_broker.core.load_change import LoadRule, LoadSeen
from magnetar_broker.ownership.load import LoadSource
from magnetar_broker.ownership.predecessor import Predecessor
from magnetar_broker.settings.ownership import OwnershipSettings
from magnetar_metadata.errors import MetadataError, NoNode, Refused, SessionLost, Unavailable
from magnetar_metadata.store import ABSENT, MetadataStore, Node
from magnetar_protos.ownership_pb2 import BrokerRegistration, LoadReport
from magnetar_wire.clock import Clock

__all__ = ["Registration"]

_log = logging.getLogger(__name__)
_RETRY_S: Final = 1.0
# Bundles that change hands together are told together.
_GATHERING_S: Final = 0.2


class Registration:
    """One session's."""

    def __init__(
        self,
        store: MetadataStore,
        broker_id: str,
        registration: BrokerRegistration,
        predecessor: Predecessor,
        load: LoadSource,
        bundles: Callable[[], int],
        clock: Clock,
        settings: OwnershipSettings,
    ) -> None:
        """`bundles`: how many this broker has."""
        self._store = store
        self._broker_id = broker_id
        self._path = paths.broker(broker_id)
        self._registration = registration
        self._predecessor = predecessor
        self._load = load
        self._bundles = bundles
        self._clock = clock
        self._interval_s = settings.load_balancer_report_update_min_interval_millis / 1000
        self._rule = LoadRule(
            settings.load_balancer_report_update_threshold_percentage / 100,
            self._interval_s,
            settings.load_balancer_report_update_max_interval_minutes * 60,
        )
        # What was told last, and when.
        self._told = LoadSeen(0.0, 0.0, 0)
        self._told_at = clock.monotonic()
        # Up: the node, or what it should say, may have changed.
        self._look = asyncio.Event()
        self._waits_for_other = False
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def waits_for(self) -> str:
        """What keeps the node from being this broker's; empty: nothing does."""
        if not self._waits_for_other:
            return ""
        return (
            f"another process is registered as broker {self._broker_id}: its registration ends with its "
            "session if it is a former process of this broker; otherwise set another broker_id for one of "
            "them"
        )

    def bundles_changed(self) -> None:
        self._look.set()

    async def start(self) -> None:
        """Returns when the node stands, or can't for now."""
        self._take(self._load.sample())
        with contextlib.suppress(Refused, Unavailable, NoNode):
            while not await self._step():
                pass
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(work(), name="registration") for work in (self._follow, self._measure, self._keep)
        ]

    async def leave(self) -> None:
        """In peace: nobody gives this broker anything any more."""
        await self.close()
        try:
            node = await self._store.get(self._path)
            if node is not None and self._is_ours(node):
                await self._store.delete(self._path, node.version)
        except MetadataError as error:
            _log.info("The registration of broker %s is deleted with its session: %s", self._broker_id, error)

    async def close(self) -> None:
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _follow(self) -> None:
        with contextlib.suppress(SessionLost), contextlib.closing(self._store.watch(self._path)) as watch:
            while True:
                await watch.wait()
                self._look.set()

    async def _measure(self) -> None:
        while True:
            await self._clock.sleep(self._interval_s)
            self._take(self._load.sample())
            if self._waits_for_other:
                self._look.set()

    def _take(self, load: LoadReport) -> None:
        load.bundles = self._bundles()
        seen = LoadSeen(load.cpu, load.loop_lag_s, load.bundles)
        if self._rule.due(self._told, seen, self._clock.monotonic() - self._told_at):
            self._registration.load.CopyFrom(load)
            self._look.set()

    async def _keep(self) -> None:
        while True:
            await self._look.wait()
            self._look.clear()
            if self._registration.load.bundles != self._bundles():
                await self._clock.sleep(_GATHERING_S)
                self._registration.load.bundles = self._bundles()
            try:
                while not await self._step():
                    pass
            except SessionLost:
                return
            except MetadataError as error:
                _log.info("Broker %s can't be registered now, and tries again: %s", self._broker_id, error)
                await self._clock.sleep(_RETRY_S)
                self._look.set()

    async def _step(self) -> bool:
        """Whether all is as it should be, or nothing can be done until the node changes."""
        node = await self._store.get_after_sync(self._path)
        self._registration.load.time_ms = self._clock.time_ms()
        wanted = self._registration.SerializeToString(deterministic=True)
        if node is None:
            await self._store.put(self._path, wanted, ABSENT, ephemeral=True)
        elif self._is_ours(node):
            if not _same(node.value, self._registration):
                await self._store.put(self._path, wanted, node.version)
        elif await self._is_of_a_former_self(node):
            _log.info("Broker %s removes its former registration", self._broker_id)
            with contextlib.suppress(NoNode):
                await self._store.delete(self._path, node.version)
            return False
        else:
            if not self._waits_for_other:
                self._waits_for_other = True
                _log.warning("Waiting: %s", self.waits_for)
            return True
        self._waits_for_other = False
        load = self._registration.load
        self._told, self._told_at = LoadSeen(load.cpu, load.loop_lag_s, load.bundles), self._clock.monotonic()
        return True

    def _is_ours(self, node: Node) -> bool:
        return node.stat.ephemeral_owner == self._store.session.id

    async def _is_of_a_former_self(self, node: Node) -> bool:
        try:
            said = BrokerRegistration.FromString(node.value)
        except DecodeError:
            return False
        return await self._predecessor.is_gone(self._broker_id, said.instance, said.listeners)


def _same(value: bytes, registration: BrokerRegistration) -> bool:
    """But for when it was said."""
    said = BrokerRegistration.FromString(value)
    said.load.time_ms = registration.load.time_ms
    return said == registration
