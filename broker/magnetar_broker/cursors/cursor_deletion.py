"""Deletes ledgers of cursors, and all cursors of a topic that is being deleted."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from magnetar_bookie.errors import LedgerError
from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_broker.cursors.cursor_nodes import LOGGED_BYTES, CursorNodes
from magnetar_broker.errors import BrokerError
from magnetar_broker.managed_ledger.trimmer import delete_ledgers
from magnetar_metadata.store import Check
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_wire.clock import Clock
from magnetar_wire.randomness import Randomness
from magnetar_wire.topic_name import TopicName

__all__ = ["delete_all_ledgers", "delete_cursors", "fence_ledger", "log_leaked_ledger"]

_log = logging.getLogger(__name__)


async def delete_cursors(
    name: TopicName,
    incarnation: str,
    client: LedgerClient,
    clock: Clock,
    randomness: Randomness,
    deletion_checks: Sequence[Check] = (),
) -> None:
    """Delete all cursors of a topic that is being deleted, ledgers first. It can be called again.

    `deletion_checks` hold as long as this topic is being deleted. Raises `BrokerError`; `TopicUnloaded` if they don't
    hold any more.
    """
    nodes = CursorNodes(name, client, clock, randomness)
    await nodes.claim(incarnation, lambda: deletion_checks)
    for cursor in await nodes.list_names():
        stored = await nodes.read(cursor)
        if stored.exists:
            description = f"cursor {cursor!r} of {name}"
            if stored.decode_error:
                log_leaked_ledger(description, stored.value)
            node = stored.node
            if node.ledger_id:
                # A broker that does not know yet that it has lost the topic must not persist acknowledgements any more.
                await fence_ledger(client, node.ledger_id)
            ledgers = [ledger_id for ledger_id in (*node.deleting, node.ledger_id) if ledger_id]
            await delete_all_ledgers(client, ledgers, description)
            await nodes.remove(cursor, stored)
    await nodes.remove_table()


async def fence_ledger(client: LedgerClient, ledger_id: int) -> None:
    """Fence a ledger of a topic or cursor that is being deleted, on all of its bookies that can be reached.

    A broker that has lost the topic, and does not know it yet, can add nothing more. Raises `MetadataError`.
    """
    try:
        await client.recover(ledger_id)
    except LedgerError as error:
        _log.warning("Ledger %d is deleted without having been closed: %s", ledger_id, error)


async def delete_all_ledgers(client: LedgerClient, ledger_ids: list[int], description: str) -> None:
    """Delete the ledgers of a cursor. Raises `BrokerError` if some can't be deleted now: call it again."""
    left = len(ledger_ids) - len(await delete_ledgers(client, ledger_ids))
    if left:
        raise BrokerError(
            ErrorCode.METADATA_ERROR,
            f"{left} of {len(ledger_ids)} ledgers of {description} were not deleted: try again",
        )


def log_leaked_ledger(description: str, value: bytes) -> None:
    """Log that the ledger that a damaged node named is not deleted: nothing else names it."""
    _log.error(
        "The node of %s can't be decoded and is replaced or deleted; the ledger that it named, if any, is not "
        "deleted. Its %d bytes begin with %s",
        description, len(value), value[:LOGGED_BYTES].hex(),
    )  # fmt: skip
