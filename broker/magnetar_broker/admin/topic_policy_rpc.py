"""Reads the stored policies of topics at the owner of their namespace's events topic, and has it change them."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from magnetar_broker.admin.owner_rpc import OwnerRpc
from magnetar_broker.catalog.catalog import Catalog
from magnetar_broker.errors import BrokerError
from magnetar_broker.system_topics import events_topic, is_system_topic
from magnetar_broker.topic_policies.policy_cache import FetchedEvents
from magnetar_protos import admin_pb2 as pb
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.catalog_pb2 import Policies, TopicPoliciesEvent
from magnetar_wire.topic_name import NamespaceName, TopicName

__all__ = ["TopicPolicyRpc"]

_log = logging.getLogger(__name__)
# How long the deletion of a topic waits until its policies are removed.
_MAX_FORGET_S: Final = 2.0
# How often a fetch begins again because an event came between two pages.
_MAX_RESTARTS: Final = 5


class TopicPolicyRpc:
    def __init__(self, catalog: Catalog, owner_rpc: OwnerRpc) -> None:
        self._catalog = catalog
        self._owner_rpc = owner_rpc

    async def read(self, name: TopicName, incarnation: str) -> Policies:
        """Return the policies of one incarnation of a topic. Raises `BrokerError`."""
        events = events_topic(name.namespace_name)
        request = pb.StoredTopicPoliciesRequest(events=str(events), topic=str(name))
        answer = None
        if await self._catalog.get_topic_state(events) is not None:
            answer = await self._call_owner(events, request)
        if answer is not None:
            for event in answer.events:
                if event.topic == str(name) and event.incarnation == incarnation:
                    return event.policies
        return Policies()

    async def change(self, change: pb.ChangeTopicPoliciesRequest) -> None:
        """Make the change. Raises `BrokerError`; UNKNOWN_ERROR if it is unknown whether it was made."""
        events = events_topic(TopicName.parse(change.topic).namespace_name)
        request = pb.StoreTopicPoliciesRequest(events=str(events), change=change)
        await self._owner_rpc.call_topic_owner(events, "store_topic_policies", request)

    async def fetch(self, namespace: NamespaceName, known: FetchedEvents) -> FetchedEvents:
        """Return the events of all topics of a namespace: `known`, if they have not changed. Raises `BrokerError`:
        SERVICE_NOT_READY if they change all the time."""
        events = events_topic(namespace)
        if not await self._catalog.has_stored_topic(events):
            return FetchedEvents()
        found: dict[str, TopicPoliciesEvent] = {}
        version, request = b"", pb.StoredTopicPoliciesRequest(events=str(events), known_version=known.version)
        restarts = 0
        while True:
            answer = await self._call_owner(events, request)
            if answer is None:
                return FetchedEvents()
            if answer.unchanged:
                return known
            if request.after and answer.version != version:  # an event came between two answers
                restarts += 1
                if restarts > _MAX_RESTARTS:
                    raise BrokerError(ErrorCode.SERVICE_NOT_READY, f"the events of {namespace} change all the time")
                found.clear()
                request.after = ""
                continue
            version = answer.version
            found |= {event.topic: event for event in answer.events}
            if not answer.more:
                return FetchedEvents(version, found)
            request.known_version, request.after = b"", answer.events[-1].topic

    async def forget(self, name: TopicName) -> None:
        """Remove the policies of a topic that was deleted, if that is possible soon: they never apply to another one,
        and the next snapshot leaves them out. Raises nothing."""
        if is_system_topic(name) or name.is_partition or not self._catalog.has_topic_policies:
            return
        forgetting = asyncio.get_running_loop().create_task(self._forget(name))
        try:
            await asyncio.wait([forgetting], timeout=_MAX_FORGET_S)
        finally:
            forgetting.cancel()

    async def _forget(self, name: TopicName) -> None:
        events = events_topic(name.namespace_name)
        change = pb.ChangeTopicPoliciesRequest(topic=str(name))
        request = pb.StoreTopicPoliciesRequest(events=str(events), change=change, deleted=True)
        try:
            if await self._catalog.has_stored_topic(events):
                await self._owner_rpc.call_topic_owner(events, "store_topic_policies", request, repeat=True)
        except BrokerError as error:
            _log.info("The policies of topic %s, which was deleted, are left to a snapshot: %s", name, error)

    async def _call_owner(
        self, events: TopicName, request: pb.StoredTopicPoliciesRequest
    ) -> pb.StoredTopicPoliciesAnswer | None:
        """Return the answer of the owner of the events topic; None: there is no such topic."""
        try:
            answer: pb.StoredTopicPoliciesAnswer = await self._owner_rpc.call_topic_owner(
                events, "stored_topic_policies", request
            )
        except BrokerError as error:
            if error.code != ErrorCode.TOPIC_NOT_FOUND:
                raise
            return None
        return answer
