"""Give the new partitions of a growing topic the subscriptions that its first partition has.

topic_router.py says how this and a change of a subscription at the same time leave all partitions alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final

from magnetar_broker.admin.map_bounded import map_bounded
from magnetar_broker.admin.owner_rpc import OwnerRpc
from magnetar_broker.admin.subscription_lists import read_subscriptions
from magnetar_broker.errors import BrokerError
from magnetar_protos import admin_pb2 as pb
from magnetar_protos.broker_pb2 import ErrorCode, StartAt
from magnetar_wire.topic_name import TopicName

__all__ = ["PartitionGrowth"]

# Copies are repeated as long as subscriptions are created or deleted at the same time, at most this often.
_MAX_ROUNDS: Final = 100


class PartitionGrowth:
    def __init__(self, owner_rpc: OwnerRpc) -> None:
        self._owner_rpc = owner_rpc

    async def copy_subscriptions(self, name: TopicName, new: Sequence[TopicName]) -> None:
        """Create the subscriptions on the new partitions, at their first message.

        Subscriptions that are created or deleted in the meantime are copied, too: at the end the first partition has
        just those that the new ones were given. Raises `BrokerError`.
        """
        if not new:
            return
        await map_bounded(new, self._read)  # it creates the partition
        copied: dict[str, pb.DurableSubscription] = {}
        for _ in range(_MAX_ROUNDS):
            found = {one.subscription: one for one in await self._read(name.partition(0))}
            created = [one for one in found.values() if one.subscription not in copied]
            deleted = [subscription for subscription in copied if subscription not in found]
            if not created and not deleted:
                return
            await map_bounded(new, partial(self._copy, created, deleted))
            copied = found
        raise BrokerError(
            ErrorCode.UNKNOWN_ERROR,
            f"subscriptions of {name} were created or deleted {_MAX_ROUNDS} times while it grew, so its new partitions "
            "are not shown to clients: grow it again",
        )

    async def _read(self, name: TopicName) -> Sequence[pb.DurableSubscription]:
        return await read_subscriptions(self._owner_rpc, name)

    async def _copy(
        self, created: Sequence[pb.DurableSubscription], deleted: Sequence[str], partition: TopicName
    ) -> None:
        """Create and delete the subscriptions on a partition.

        The calls are repeated if their results are unknown. So errors that report the change as made are ignored.
        """
        call = self._owner_rpc.call_topic_owner
        for one in created:
            creation = pb.SubscriptionRequest(
                topic=str(partition),
                subscription=one.subscription,
                start=StartAt(earliest=True),
                properties=one.properties,
            )
            with _ignored(ErrorCode.ALREADY_EXISTS):
                await call(partition, "create_subscription", creation, repeat=True)
        for subscription in deleted:
            deletion = pb.DeleteSubscriptionRequest(topic=str(partition), subscription=subscription)
            with _ignored(ErrorCode.SUBSCRIPTION_NOT_FOUND):
                await call(partition, "delete_subscription", deletion, repeat=True)


@contextmanager
def _ignored(code: ErrorCode) -> Iterator[None]:
    try:
        yield
    except BrokerError as error:
        if error.code != code:
            raise
