"""Calls on all topics of a namespace, some of which fail."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from google.protobuf.message import Message

from magnetar_broker.admin.namespace_topic_calls import NamespaceTopicCalls
from magnetar_broker.errors import BrokerError
from magnetar_protos import admin_pb2 as pb
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_wire.topic_name import TopicName


async def _nothing(*_: object) -> None: ...


@pytest.mark.parametrize("unknown", [ErrorCode.INTERNAL_ERROR, ErrorCode.METADATA_ERROR])
async def test_an_unknown_outcome_goes_before_a_refusal(unknown: ErrorCode) -> None:
    codes = {"a": ErrorCode.NOT_ALLOWED, "b": unknown}

    async def call_topic_owner(topic: TopicName, name: str, request: Message) -> None:
        raise BrokerError(codes[topic.local_name], "no")

    async def list_topics(*_: object, **__: object) -> list[str]:
        return [f"persistent://public/default/{name}" for name in codes]

    catalog: Any = SimpleNamespace(namespaces=SimpleNamespace(get=_nothing), sync=_nothing, list_topics=list_topics)
    owner_rpc: Any = SimpleNamespace(call_topic_owner=call_topic_owner)
    request = pb.NamespaceSubscriptionRequest(namespace="public/default", subscription="s")
    with pytest.raises(BrokerError) as failed:
        await NamespaceTopicCalls(catalog, owner_rpc).unsubscribe_namespace(request)
    assert failed.value.code == unknown
