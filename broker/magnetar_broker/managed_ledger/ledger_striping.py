"""The striping of a topic's next ledgers, its log's and its cursors', while its namespace's policies may change.

The policy is read again for each ledger of the log. No ledger waits for that, since publishes wait for the ledger. It
is created with the known policy, and rolled over soon if that turns out to have changed (appender.py).

If too few bookies are available for a ledger, the policy may be wrong, not the cluster: so while a ledger waits for
bookies, it is read again every few seconds. The wait ends when the present policy can be met.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_bookie.read.striping import Striping
from magnetar_broker.errors import BrokerError

__all__ = ["LedgerStriping"]

_log = logging.getLogger(__name__)
# Seconds after which a waiting ledger reads the policy again. The broker reads a namespace once for all of its topics
# that wait.
_REREAD_S: Final = 2.0
# Seconds that it waits for the policy then. Longer than it takes, unless the policy can't be read now.
_READ_S: Final = 0.2


class LedgerStriping:
    __slots__ = ("_read", "_reading", "current")

    def __init__(self, current: Striping, read: Callable[[], Awaitable[Striping]] | None = None) -> None:
        """`read` returns the striping by the present policies, or raises `BrokerError`. None: it never changes."""
        self.current = current
        self._read = read
        self._reading: asyncio.Task[None] | None = None

    async def wait_for_bookies(self, client: LedgerClient, is_needed: Callable[[], bool] = lambda: True) -> None:
        """Return when enough bookies may be available for a ledger of `current`, which is set to the present policy;
        or within a few seconds when `is_needed` returns False.

        Raises `ClientClosed`.
        """
        waited_for = self.current
        while waited_for == self.current and is_needed():
            if await client.wait_for_bookies(self.current, _REREAD_S):
                return
            self.refresh_soon()
            if self._reading is not None:
                await asyncio.wait([self._reading], timeout=_READ_S)

    def refresh_soon(self) -> None:
        """Read the present policy. If that is not possible now, the known one holds."""
        if self._read is not None and self._reading is None:
            self._reading = asyncio.get_running_loop().create_task(self._refresh(self._read))

    async def _refresh(self, read: Callable[[], Awaitable[Striping]]) -> None:
        try:
            self.current = await read()
        except BrokerError as error:
            _log.debug("The policies of a namespace can't be read now: %s", error)
        except Exception:  # noqa: BLE001 (the known policy holds)
            _log.exception("The policies of a namespace can't be read because of an internal error")
        finally:
            self._reading = None

    def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
