"""The striping of a topic's next ledgers, its log's and its cursors', while its namespace's policies may change.

The policy is read again for each ledger of the log. If too few bookies are available for a ledger, the policy may be
wrong, not the cluster: so while a ledger waits for bookies, it is read again every few seconds. The wait ends when the
present policy can be met.
"""

from __future__ import annotations

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


class LedgerStriping:
    __slots__ = ("_read", "current")

    def __init__(self, current: Striping, read: Callable[[], Awaitable[Striping]] | None = None) -> None:
        """`read` returns the striping by the present policies, or raises `BrokerError`. None: it never changes."""
        self.current = current
        self._read = read

    async def wait_for_bookies(self, client: LedgerClient) -> None:
        """Return when enough bookies may be available for a ledger of `current`, which is set to the present policy.

        Raises `ClientClosed`.
        """
        while not await client.wait_for_bookies(self.current, _REREAD_S):
            if await self.refresh():
                return

    async def refresh(self) -> bool:
        """Return whether it has changed. If the policy can't be read now, the known one holds."""
        if self._read is None:
            return False
        try:
            found = await self._read()
        except BrokerError as error:
            _log.debug("The policies of a namespace can't be read now: %s", error)
            return False
        before, self.current = self.current, found
        return found != before
