"""Registration: an ephemeral node with the bookie's address, by which others know that it is available.

The node exists as long as the metadata session. If somebody deletes it, it is created again. It also has whether the
bookie is read-only, and is updated when that changes.

A node of an earlier session may exist until the server ends that session. If the node has this disk's instance id, it
is from an earlier process of this bookie, since nobody else has the disk open. Its address may be wrong by now, so it
is deleted, and a new one is created. A node of another instance is waited for: the cookie names this disk, so the other
process must be an old one, and its session ends.

A bookie that is being decommissioned is read-only.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from google.protobuf.message import DecodeError

from magnetar_bookie import paths
from magnetar_bookie.server.bookie import Bookie
from magnetar_bookie.server.read_only_reasons import DECOMMISSION
from magnetar_metadata.errors import BadVersion, NoNode, Refused, Unavailable
from magnetar_metadata.store import ABSENT, MetadataStore
from magnetar_protos.ledger_pb2 import BookieListener, BookieRegistration
from magnetar_wire.clock import Clock
from magnetar_wire.tasks import OrderedTaskGroup

__all__ = ["Registration", "follow_decommission_mark"]

_log = logging.getLogger(__name__)


class Registration:
    """The registration of a bookie in one metadata session."""

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
        self._listeners = [BookieListener(name=name, address=listener) for name, listener in listeners]
        self._store = store
        self._clock = clock
        self._retry_s = retry_s
        # Set when the node exists.
        self._registered = registered
        self._path = paths.available(bookie.bookie_id)
        self._is_waiting_for_other = False
        # The node exists and belongs to this session, as far as is known.
        self.is_current = False

    async def run(self) -> None:
        """Keep the node as it should be, until cancelled. Raises `SessionLost`, in a group."""
        changed = asyncio.Event()
        remove_listener = self._bookie.add_read_only_listener(changed.set)
        watch = self._store.watch(self._path)

        async def follow() -> None:
            while True:
                await watch.wait()
                changed.set()

        try:
            async with OrderedTaskGroup() as tasks:
                tasks.create_task(follow())
                while True:
                    # A new watch fires at once.
                    await changed.wait()
                    changed.clear()
                    await self._update_node()
        finally:
            remove_listener()
            watch.close()

    async def _update_node(self) -> None:
        """Return when the node is as it should be, or belongs to another instance."""
        while True:
            try:
                await self._store.sync()
                if await self._try_update():
                    return
            except (BadVersion, NoNode):
                continue  # the node changed: read it again
            except (Refused, Unavailable) as error:
                _log.info("Bookie %s can't be registered yet, and tries again: %s", self._bookie.bookie_id, error)
                await self._clock.sleep(self._retry_s)

    async def _try_update(self) -> bool:
        """Return False if the node has to be read again."""
        node = await self._store.get(self._path)
        registration = self._encode_registration()
        if node is None:
            await self._store.put(self._path, registration, ABSENT, ephemeral=True)
        elif node.stat.ephemeral_owner == self._store.session.id:
            if node.value != registration:
                await self._store.put(self._path, registration, node.version)
        elif _decode_instance_id(node.value) == self._bookie.record.cookie.instance_id:
            _log.info("Bookie %s removes its former registration", self._bookie.bookie_id)
            await self._store.delete(self._path, node.version)
            return False
        else:
            if not self._is_waiting_for_other:
                self._is_waiting_for_other = True
                _log.warning(
                    "Another instance is registered as bookie %s: waiting until its session ends",
                    self._bookie.bookie_id,
                )
            self.is_current = False
            return True
        self._is_waiting_for_other = False
        self.is_current = True
        self._registered.set()
        return True

    def _encode_registration(self) -> bytes:
        registration = BookieRegistration(
            address=self._address,
            instance_id=self._bookie.record.cookie.instance_id,
            read_only=self._bookie.read_only,
            http_address=self._http_address,
            listeners=self._listeners,
        )
        return registration.SerializeToString(deterministic=True)


def _decode_instance_id(value: bytes) -> bytes | None:
    try:
        return BookieRegistration.FromString(value).instance_id
    except DecodeError:
        return None


async def follow_decommission_mark(bookie: Bookie, store: MetadataStore, clock: Clock, retry_s: float) -> None:
    """Keep the bookie read-only while it is marked for decommissioning. Raises `SessionLost`."""
    path = paths.leaving(bookie.bookie_id)
    watch = store.watch(path)
    try:
        while True:
            await watch.wait()
            while True:
                try:
                    bookie.set_read_only(DECOMMISSION, await store.exists(path) is not None)
                    break
                except Unavailable:
                    await clock.sleep(retry_s)
    finally:
        watch.close()
