"""Frees storage: takes ledgers off the list's front, and deletes them.

In three steps, so that whoever dies in between leaves nothing behind that nobody deletes, and nothing is deleted that
the list still names: the ledgers move from the list to `deleting`, by compare-and-set; each is deleted; they leave
`deleting`. What a life finds in `deleting` when it opens the topic it goes on with. Nothing else is ever deleted: not
what is on no list, which is for the sweeper of intents to judge.

No bookie has to take anything for that, so a full disk is no hindrance.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final

from magnetar_bookie.errors import LedgerError, NoSuchLedger
from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_broker.errors import TopicUnloaded
from magnetar_broker.managed_ledger.ledger_list import ListChange
from magnetar_broker.managed_ledger.topic_node import TopicNode
from magnetar_metadata.errors import MetadataError

__all__ = ["Trimmer", "delete_ledgers"]

_log = logging.getLogger(__name__)
# In one change of the list: a change deletes the pages that become empty, too, and a transaction has its bounds.
_LEDGERS_AT_A_TIME: Final = 1000
_DELETED_AT_A_TIME: Final = 16


class Trimmer:
    __slots__ = ("_background", "_client", "_give_up", "_node", "_running")

    def __init__(self, node: TopicNode, client: LedgerClient, give_up: Callable[[TopicUnloaded], object]) -> None:
        self._node = node
        self._client = client
        self._give_up = give_up
        # Ends when the trim under way does.
        self._running: asyncio.Future[None] | None = None
        self._background: asyncio.Task[None] | None = None

    async def trim(self, deletable: Callable[[], Iterable[int]]) -> bool:
        """Delete the ledgers that `deletable` names, the first ones of the list. Returns whether any was taken off.

        What can't be done now is logged, and done by the next call.
        """
        while self._running is not None:
            await asyncio.wait([self._running])
        running = self._running = asyncio.get_running_loop().create_future()
        before = self._node.ledger_list.trimmed_up_to
        try:
            while await self._take_off(deletable):
                await self._delete()
            await self._delete()
        except TopicUnloaded as error:
            self._give_up(error)
            raise
        except (LedgerError, MetadataError) as error:
            _log.warning("Topic %s can't be trimmed now: %s", self._node.name, error)
        finally:
            self._running = None
            running.set_result(None)
        return self._node.ledger_list.trimmed_up_to != before

    async def _take_off(self, deletable: Callable[[], Iterable[int]]) -> bool:
        """Take as many ledgers off the list as fit into one change. Return whether there were any.

        `deletable` is called in the turn in which the change begins, before each change. Between two changes ledgers
        are deleted, which takes long where a bookie is away. A subscription that is created or moved back meanwhile
        needs the ledgers that the list still has. A subscription or a lease that comes later finds them deleted.
        """
        await self._node.settled()
        listed = self._node.ledger_list
        going = list(islice(deletable(), _LEDGERS_AT_A_TIME))
        if going or listed.empty_ledger_id is not None:
            await self._node.change(ListChange(trimmed=going[-1] if going else None, empty=listed.empty_ledger_id))
        return bool(going)

    async def _delete(self) -> None:
        deleting = self._node.ledger_list.deleting
        deleted = await delete_ledgers(self._client, list(deleting)) if deleting else []
        if deleted:
            await self._node.change(ListChange(deleted=frozenset(deleted)))

    def finish_soon(self) -> None:
        """Deletes what is to be deleted already, and the last ledger if it was closed empty."""
        if self._background is None:
            self._background = asyncio.create_task(self._finish())

    async def _finish(self) -> None:
        listed = self._node.ledger_list
        try:
            if listed.empty_ledger_id is not None:
                await self._node.change(ListChange(empty=listed.empty_ledger_id))
            await self._delete()
        except TopicUnloaded as error:
            self._give_up(error)
        except (LedgerError, MetadataError) as error:
            _log.warning("Ledgers of topic %s can't be deleted now: %s", self._node.name, error)
        finally:
            self._background = None

    def end(self) -> None:
        if self._background is not None:
            self._background.cancel()


async def delete_ledgers(client: LedgerClient, ledger_ids: list[int]) -> list[int]:
    """Returns those that are deleted for certain; says why the others are not."""
    deleted: list[int] = []

    async def delete(ledger_id: int) -> None:
        try:
            await client.delete(ledger_id)
        except NoSuchLedger:
            pass  # by an earlier life, or call
        except (LedgerError, MetadataError) as error:
            _log.warning("Ledger %d can't be deleted now: %s", ledger_id, error)
            return
        deleted.append(ledger_id)

    for at in range(0, len(ledger_ids), _DELETED_AT_A_TIME):
        await asyncio.gather(*map(delete, ledger_ids[at : at + _DELETED_AT_A_TIME]))
    return deleted
