"""Deletes one topic at its owner: closes it if it is loaded, and then deletes its ledgers and cursors.

`Topics` has verified that this broker owns the topic, and lets nobody open it until the deletion ends. What is stored
is deleted in steps (topic_deletion.py). If the broker loses its session, `abort` cancels them. As after a crash, the
next deletion or opening of the topic finishes them, in this broker's next session or at another broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from magnetar_broker.errors import BrokerError, RequestNotStarted, TopicUnloaded
from magnetar_broker.ownership.interface import Ownership
from magnetar_broker.topics.interface import TopicStorage
from magnetar_broker.topics.topic import Topic
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_wire.topic_name import TopicName

__all__ = ["TopicDeleter", "create_unknown_deletion"]


def create_unknown_deletion(name: TopicName) -> TopicUnloaded:
    """Return the error of a deletion with an unknown outcome."""
    return TopicUnloaded(f"unknown whether {name} was deleted: try again")


class TopicDeleter:
    def __init__(self, get_storage: Callable[[TopicName], TopicStorage], ownership: Ownership) -> None:
        self._get_storage = get_storage
        self._ownership = ownership
        # Tasks that delete what is stored.
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._is_aborted = False

    def abort(self) -> None:
        """Cancel all deletions, and begin none any more."""
        self._is_aborted = True
        for task in list(self._tasks):
            task.cancel()

    async def delete(self, name: TopicName, topic: Topic | None, force: bool) -> None:
        """Close and delete the topic. It was loaded from before its ownership was verified until its deletion begins,
        so no other broker has opened it, and no client is connected to it elsewhere. Raises `BrokerError`."""
        if topic is not None:
            await topic.close(BrokerError(ErrorCode.TOPIC_NOT_FOUND, f"{name} was deleted"))
        if self._is_aborted:
            raise create_unknown_deletion(name)
        task = asyncio.get_running_loop().create_task(self._delete_stored(name, topic, force))
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        await asyncio.wait([task])
        if task.cancelled():
            raise create_unknown_deletion(name)
        task.result()

    async def _delete_stored(self, name: TopicName, topic: Topic | None, force: bool) -> None:
        owner_epoch: bytes | None = None
        incarnation = ""
        if topic is not None:
            owner_epoch, incarnation = topic.log.owner_epoch, topic.log.incarnation
        elif not force:
            try:
                owner_epoch = await self._get_storage(name).claim(name)
            except BrokerError as error:
                if error.code != ErrorCode.TOPIC_NOT_FOUND:
                    raise
                return  # another deletion was not finished, or was faster
            try:
                await self._ownership.verify_owned(name)
            except TopicUnloaded as not_owned:
                raise RequestNotStarted(str(not_owned)) from not_owned
        try:
            await self._get_storage(name).delete(name, None if force else owner_epoch, incarnation)
        except RequestNotStarted:
            self._ownership.reverify(name)
            raise
