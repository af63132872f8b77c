"""Deletes all cursors of a topic that is being deleted."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_broker.cursors.cursor_ledger import delete_all_ledgers, fence_ledger
from magnetar_broker.cursors.cursor_nodes import LOGGED_BYTES, CursorNodes
from magnetar_metadata.store import Check
from magnetar_wire.clock import Clock
from magnetar_wire.randomness import Randomness
from magnetar_wire.topic_name import TopicName

__all__ = ["delete_cursors", "log_leaked_ledger"]

_log = logging.getLogger(__name__)


async def delete_cursors(
    name: TopicName,
    incarnation: str,
    client: LedgerClient,
    clock: Clock,
    randomness: Randomness,
    still: Sequence[Check] = (),
) -> None:
    """Deletes all cursors of a topic that is being deleted, ledgers first. Can be called again. Raises `BrokerError`.

    `still`: checks that hold as long as that topic is being deleted; `TopicUnloaded`: they do not any more.
    """
    nodes = CursorNodes(name, client, clock, randomness)
    await nodes.claim(incarnation, lambda: still)
    for cursor in await nodes.names():
        known = await nodes.read(cursor)
        if known.exists:
            described = f"cursor {cursor!r} of {name}"
            if known.foreign:
                log_leaked_ledger(described, known.value)
            node = known.node
            if node.ledger_id:
                # A broker that does not know that it has lost the topic must not acknowledge anything any more.
                await fence_ledger(client, node.ledger_id)
            ledgers = [ledger_id for ledger_id in (*node.deleting, node.ledger_id) if ledger_id]
            await delete_all_ledgers(client, ledgers, described)
            await nodes.remove(cursor, known)
    await nodes.remove_table()


def log_leaked_ledger(whose: str, value: bytes) -> None:
    """Logs that the ledger which a damaged node named is not deleted: nothing else names it."""
    _log.error(
        "The node of %s can't be decoded and is replaced or deleted; the ledger that it named, if any, is not "
        "deleted. Its %d bytes begin with %s",
        whose, len(value), value[:LOGGED_BYTES].hex(),
    )  # fmt: skip
