"""Repeats a check of nodes in the metadata store, which each broker does for the whole cluster."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from magnetar_metadata.errors import MetadataError
from magnetar_wire.clock import Clock
from magnetar_wire.randomness import Randomness

__all__ = ["run_sweeps"]

_log = logging.getLogger(__name__)


async def run_sweeps(
    sweep: Callable[[], Awaitable[None]], swept: str, clock: Clock, randomness: Randomness, interval_s: float
) -> None:
    """Call `sweep` at intervals, until cancelled. `swept` names what it checks, for the log."""
    while True:
        # The intervals are random, so that brokers that were started together do not sweep at the same time.
        await clock.sleep(interval_s * (0.5 + randomness.random()))
        try:
            await sweep()
        except MetadataError as error:
            _log.info("%s can't be checked now: %s", swept, error)
