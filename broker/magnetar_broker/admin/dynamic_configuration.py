"""The overrides of settings in the metadata store. Each broker follows them in each of its sessions."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Final

from magnetar_broker import paths
from magnetar_broker.catalog.catalog_nodes import CatalogNodes
from magnetar_broker.errors import BrokerError
from magnetar_broker.settings.dynamic import DynamicSettings
from magnetar_metadata.errors import Closed, MetadataError, SessionLost
from magnetar_metadata.store import MetadataStore
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.catalog_pb2 import DynamicConfigurationNode
from magnetar_wire.clock import Clock
from magnetar_wire.configuration import InvalidConfiguration

__all__ = ["DynamicConfiguration"]

_log = logging.getLogger(__name__)
_RETRY_S: Final = 1.0


class DynamicConfiguration:
    def __init__(self, store: MetadataStore, nodes: CatalogNodes, clock: Clock, settings: DynamicSettings) -> None:
        self.settings = settings
        self._store = store
        self._nodes = nodes
        self._clock = clock
        self._following: asyncio.Task[None] | None = None
        # So that what is read first is also applied first.
        self._applying = asyncio.Lock()

    async def start(self) -> None:
        """Apply the overrides, and those that follow until `close`. Raises `BrokerError`."""
        await self._apply()
        self._following = asyncio.get_running_loop().create_task(self._follow(), name="dynamic configuration")

    async def close(self) -> None:
        following, self._following = self._following, None
        if following is not None:
            following.cancel()
            await asyncio.wait([following])

    async def _follow(self) -> None:
        with (
            contextlib.suppress(SessionLost, Closed),
            contextlib.closing(self._store.watch(paths.DYNAMIC_CONFIGURATION)) as watch,
        ):
            while True:
                try:
                    # After the watch has begun, and after each change.
                    await self._apply()
                except (BrokerError, MetadataError) as error:
                    _log.info("The dynamic configuration can't be read now: %s", error)
                    await self._clock.sleep(_RETRY_S)
                    continue
                except Exception:  # noqa: BLE001 (later changes must be applied)
                    _log.exception("The dynamic configuration can't be applied because of an internal error")
                await watch.wait()

    async def _apply(self) -> None:
        async with self._applying:
            self.settings.apply(await self.read())

    async def read(self) -> dict[str, str]:
        """Return the overrides by the settings' names.

        A node that can't be decoded counts as absent: otherwise no broker could start.
        """
        found = await self._nodes.read_decodable(DynamicConfigurationNode, paths.DYNAMIC_CONFIGURATION)
        return dict(found.node.overrides) if found is not None else {}

    async def set(self, name: str, value: str) -> None:
        """Override a dynamic setting. Raises `BrokerError` if it can't have this value with the other overrides."""

        def check_and_set(overrides: dict[str, str]) -> None:
            overrides[name] = value
            problem = self._find_problem(overrides)
            if problem is not None:
                raise BrokerError(ErrorCode.INVALID_ARGUMENT, str(problem))

        await self._change(check_and_set)

    async def delete(self, name: str) -> None:
        """Remove an override, if there is one."""

        def check_and_delete(overrides: dict[str, str]) -> None:
            is_valid = self._find_problem(overrides) is None
            overrides.pop(name, None)
            problem = self._find_problem(overrides)
            # What could not be applied before must not be undeletable.
            if is_valid and problem is not None:
                raise BrokerError(
                    ErrorCode.INVALID_ARGUMENT, f"other overrides need this one, so it is not removed: {problem}"
                )

        await self._change(check_and_delete)

    def _find_problem(self, overrides: dict[str, str]) -> InvalidConfiguration | None:
        try:
            self.settings.check(overrides)
        except InvalidConfiguration as error:
            return error
        return None

    async def _change(self, change: Callable[[dict[str, str]], None]) -> None:
        def changed(node: DynamicConfigurationNode | None) -> DynamicConfigurationNode:
            overrides = dict(node.overrides) if node is not None else {}
            change(overrides)
            return DynamicConfigurationNode(overrides=overrides)

        await self._nodes.change_or_replace(DynamicConfigurationNode, paths.DYNAMIC_CONFIGURATION, changed)
        try:
            await self._apply()
        except BrokerError as error:
            # The change is made. It is applied when the store can be read again.
            _log.info("The dynamic configuration can't be read now: %s", error)
