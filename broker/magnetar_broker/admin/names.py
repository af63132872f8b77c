"""Parse the names in the requests of admin calls."""

from __future__ import annotations

from magnetar_broker.errors import BrokerError
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_wire.bundles import BundleRange
from magnetar_wire.errors import InvalidTopicName
from magnetar_wire.topic_name import NamespaceName, TopicName

__all__ = ["parse_bundle", "parse_namespace_name", "parse_topic_name"]


def parse_topic_name(text: str) -> TopicName:
    try:
        return TopicName.parse(text)
    except InvalidTopicName as error:
        raise BrokerError(ErrorCode.INVALID_TOPIC_NAME, str(error)) from None


def parse_namespace_name(text: str) -> NamespaceName:
    try:
        return NamespaceName.parse(text)
    except InvalidTopicName as error:
        raise BrokerError(ErrorCode.INVALID_ARGUMENT, str(error)) from None


def parse_bundle(text: str) -> BundleRange:
    try:
        return BundleRange.parse(text)
    except ValueError as error:
        raise BrokerError(ErrorCode.INVALID_ARGUMENT, str(error)) from None
