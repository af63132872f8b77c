"""The synchronous producer of values. It is a class of its own, so that sending bytes takes no step more."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from magnetar._producer import Producer
from magnetar._producing.batch import Callback
from magnetar._producing.topic_producer import TopicProducer
from magnetar._values.value_encoder import encode_value
from magnetar.schema._schema import Schema, T
from magnetar_wire.message_id import MessageId

__all__ = ["TypedProducer"]


class TypedProducer(Producer[T]):
    """Encodes each value with a schema, on the thread that sends it: the value may be changed afterwards."""

    def __init__(self, core: TopicProducer, schema: Schema[T]) -> None:
        super().__init__(core)
        self._schema = schema

    def send(
        self,
        content: T | None,
        properties: Mapping[str, str] | None = None,
        partition_key: str | bytes | None = None,
        ordering_key: str | bytes | None = None,
        sequence_id: int | None = None,
        replication_clusters: list[str] | None = None,
        disable_replication: bool = False,
        event_timestamp: int | None = None,
        deliver_at: int | None = None,
        deliver_after: timedelta | None = None,
    ) -> MessageId:
        payload, partition_key = encode_value(self._schema, content, partition_key)
        return super().send(
            payload,  # type: ignore[arg-type]  # it is encoded
            properties,
            partition_key,
            ordering_key,
            sequence_id,
            replication_clusters,
            disable_replication,
            event_timestamp,
            deliver_at,
            deliver_after,
        )

    def send_async(
        self,
        content: T | None,
        callback: Callback | None = None,
        properties: Mapping[str, str] | None = None,
        partition_key: str | bytes | None = None,
        ordering_key: str | bytes | None = None,
        sequence_id: int | None = None,
        replication_clusters: list[str] | None = None,
        disable_replication: bool = False,
        event_timestamp: int | None = None,
        deliver_at: int | None = None,
        deliver_after: timedelta | None = None,
    ) -> None:
        payload, partition_key = encode_value(self._schema, content, partition_key)
        super().send_async(
            payload,  # type: ignore[arg-type]  # it is encoded
            callback,
            properties,
            partition_key,
            ordering_key,
            sequence_id,
            replication_clusters,
            disable_replication,
            event_timestamp,
            deliver_at,
            deliver_after,
        )
