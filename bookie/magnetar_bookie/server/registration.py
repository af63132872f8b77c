"""How others learn that a bookie is there: an ephemeral node with its address, kept as long as the session lasts.

The node may vanish though the session lives (somebody deleted it): it is made again. It says whether the bookie takes
entries, and is changed in place when that changes.

A node of an earlier session may still stand, until the server gives that session up. Where it is this disk's own (the
same instance id) it is our own former self's: nobody else has this disk open. It names an address at which nobody may
answer any more, so it is taken away, and ours is made. Another instance's is waited out: this disk is the one that the
cookie names, so the other one is of the past, and goes by itself.

A bookie that is being decommissioned takes no entries.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from google.protobuf.message import DecodeError

from magnetar_bookie import paths
from magnetar_bookie.server.bookie import Bookie
from magnetar_bookie.server.read_only_reasons import LEAVING
from magnetar_metadata.errors import BadVersion, NoNode, Refused, Unavailable
from magnetar_metadata.store import ABSENT, MetadataStore
from magnetar_protos.ledger_pb2 import BookieListener, BookieRegistration
from magnetar_wire.clock import Clock
from magnetar_wire.tasks import OrderedTaskGroup

__all__ = ["Registration", "follow_decommission_mark"]

_log = logging.getLogger(__name__)


class Registration:
    """One session's."""

    def __init__(
        self,
        bookie: Bookie,
        address: str,
        store: MetadataStore,
        clock: Clock,
        retry_s: float,
        registered: asyncio.Event,
        http_address: str = "",
        listeners: Sequence[tuple[str, str]] = (),
    ) -> None:
        self._bookie = bookie
        self._address = address
        self._http_address = http_address
        self._listeners = [BookieListener(name=name, address=where) for name, where in listeners]
        self._store = store
        self._clock = clock
        self._retry_s = retry_s
        # Set when the node stands.
        self._registered = registered
        self._path = paths.available(bookie.bookie_id)
        self._waits_for_other = False
        # The node is this session's, as far as is known.
        self.stands = False

    async def run(self) -> None:
        """Until it is cancelled, or the session lost (`SessionLost`, in a group)."""
        changed = asyncio.Event()
        stop_listening = self._bookie.listen_read_only(changed.set)
        watch = self._store.watch(self._path)

        async def follow() -> None:
            while True:
                await watch.wait()
                changed.set()

        try:
            async with OrderedTaskGroup() as tasks:
                tasks.create_task(follow())
                while True:
                    # A new watch is up at once.
                    await changed.wait()
                    changed.clear()
                    await self._settle()
        finally:
            stop_listening()
            watch.close()

    async def _settle(self) -> None:
        """Returns when the node is as it should be, or when nothing can be done until it changes."""
        while True:
            try:
                await self._store.sync()
                if await self._step():
                    return
            except (BadVersion, NoNode):
                continue  # it changed meanwhile: look again
            except (Refused, Unavailable) as error:
                _log.info("Bookie %s can't be registered yet, and tries again: %s", self._bookie.bookie_id, error)
                await self._clock.sleep(self._retry_s)

    async def _step(self) -> bool:
        node = await self._store.get(self._path)
        wanted = self._wanted()
        if node is None:
            await self._store.put(self._path, wanted, ABSENT, ephemeral=True)
        elif node.stat.ephemeral_owner == self._store.session.id:
            if node.value != wanted:
                await self._store.put(self._path, wanted, node.version)
        elif _instance_of(node.value) == self._bookie.record.cookie.instance_id:
            _log.info("Bookie %s removes its former registration", self._bookie.bookie_id)
            await self._store.delete(self._path, node.version)
            return False
        else:
            if not self._waits_for_other:
                self._waits_for_other = True
                _log.warning(
                    "Another instance is registered as bookie %s: waiting until its session ends",
                    self._bookie.bookie_id,
                )
            self.stands = False
            return True
        self._waits_for_other = False
        self.stands = True
        self._registered.set()
        return True

    def _wanted(self) -> bytes:
        registration = BookieRegistration(
            address=self._address,
            instance_id=self._bookie.record.cookie.instance_id,
            read_only=self._bookie.read_only,
            http_address=self._http_address,
            listeners=self._listeners,
        )
        return registration.SerializeToString(deterministic=True)


def _instance_of(value: bytes) -> bytes | None:
    try:
        return BookieRegistration.FromString(value).instance_id
    except DecodeError:
        return None


async def follow_decommission_mark(bookie: Bookie, store: MetadataStore, clock: Clock, retry_s: float) -> None:
    """Turns the bookie read-only while it is marked as leaving. Raises `SessionLost`."""
    path = paths.leaving(bookie.bookie_id)
    watch = store.watch(path)
    try:
        while True:
            await watch.wait()
            while True:
                try:
                    bookie.set_read_only(LEAVING, await store.exists(path) is not None)
                    break
                except Unavailable:
                    await clock.sleep(retry_s)
    finally:
        watch.close()
