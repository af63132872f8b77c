"""Policies are fetched from the owner of their events in pages, while they change."""

from __future__ import annotations

from typing import Any, cast

import pytest

from magnetar_broker.admin.owner_rpc import OwnerRpc
from magnetar_broker.admin.topic_policy_rpc import TopicPolicyRpc
from magnetar_broker.catalog.catalog import Catalog
from magnetar_broker.errors import BrokerError
from magnetar_broker.topic_policies.policy_cache import FetchedEvents
from magnetar_protos import admin_pb2 as pb
from magnetar_protos.catalog_pb2 import TopicPoliciesEvent
from magnetar_wire.topic_name import NamespaceName, TopicName

_NAMESPACE = NamespaceName("public", "default")


class _Owner:
    """Answers two pages, and has one more event after each of its first `changes` answers."""

    def __init__(self, changes: int) -> None:
        self.changes = changes
        self.answers = 0

    async def has_stored_topic(self, name: TopicName) -> bool:
        return True

    async def call_topic_owner(
        self, events: TopicName, name: str, request: pb.StoredTopicPoliciesRequest
    ) -> pb.StoredTopicPoliciesAnswer:
        assert self.answers < 100, "there is no end"
        version = b"%d" % min(self.answers, self.changes)
        self.answers += 1
        topic = "b" if request.after else "a"
        return pb.StoredTopicPoliciesAnswer(
            version=version, events=[TopicPoliciesEvent(topic=topic)], more=not request.after
        )


async def _fetch(owner: _Owner) -> FetchedEvents:
    either: Any = owner
    return await TopicPolicyRpc(cast(Catalog, either), cast(OwnerRpc, either)).fetch(_NAMESPACE, FetchedEvents())


async def test_events_that_change_between_two_pages_are_fetched_again() -> None:
    """TOP-4"""
    owner = _Owner(2)
    assert set((await _fetch(owner)).by_topic) == {"a", "b"}


async def test_events_that_change_all_the_time_are_not_fetched_for_ever() -> None:
    """TOP-4: the policies that were known apply."""
    with pytest.raises(BrokerError, match="change all the time"):
        await _fetch(_Owner(1_000_000))
