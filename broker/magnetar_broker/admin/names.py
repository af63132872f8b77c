"""Names in admin calls: parse those in requests, and cut lists of names into pages for responses."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from magnetar_broker.errors import BrokerError
from magnetar_protos import admin_pb2 as pb
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_wire.bundles import LAST_HASH, BundleRange
from magnetar_wire.errors import InvalidTopicName
from magnetar_wire.topic_name import NamespaceName, TopicDomain, TopicName

__all__ = [
    "cut_page",
    "make_non_persistent_error",
    "parse_boundaries",
    "parse_bundle",
    "parse_domains",
    "parse_namespace_name",
    "parse_persistent_name",
    "parse_topic_name",
]

_BOUNDARY: Final = re.compile(r"0x[0-9a-fA-F]{1,8}", re.ASCII)


def parse_topic_name(text: str) -> TopicName:
    try:
        return TopicName.parse(text)
    except InvalidTopicName as error:
        raise BrokerError(ErrorCode.INVALID_TOPIC_NAME, str(error)) from None


def parse_persistent_name(text: str) -> TopicName:
    """Parse the name of a topic whose messages are stored. Raises `BrokerError`."""
    name = parse_topic_name(text)
    if not name.is_persistent:
        raise make_non_persistent_error(name)
    return name


def make_non_persistent_error(name: TopicName) -> BrokerError:
    """Return the error of calls that are for persistent topics only."""
    return BrokerError(
        ErrorCode.UNSUPPORTED, f"{name} is non-persistent: this call is for topics whose messages are stored"
    )


def parse_domains(text: str) -> list[TopicDomain]:
    """Empty: persistent."""
    if text == "all":
        return list(TopicDomain)
    try:
        return [TopicDomain(text or TopicDomain.PERSISTENT)]
    except ValueError:
        raise BrokerError(
            ErrorCode.INVALID_ARGUMENT, f"unknown domain {text!r:.100}: use persistent, non-persistent or all"
        ) from None


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


def parse_boundaries(texts: Sequence[str]) -> list[int]:
    """Return the lower bounds of the bundles between these boundaries; none: there are no boundaries."""
    if not texts:
        return []
    wrong = next((text for text in texts if not _BOUNDARY.fullmatch(text)), None)
    if wrong is not None:
        raise BrokerError(ErrorCode.INVALID_ARGUMENT, f"boundary {wrong!r:.50} is not a hash like 0x40000000")
    bounds = sorted({int(text, 16) for text in texts})
    if len(bounds) < 2 or bounds[0] != 0 or bounds[-1] != LAST_HASH:
        raise BrokerError(
            ErrorCode.INVALID_ARGUMENT,
            f"boundaries {texts[0]} … {texts[-1]}: bundles are from 0x00000000 to 0xffffffff",
        )
    return bounds[:-1]


def cut_page(names: Iterable[str], request: pb.NamesRequest) -> pb.NamesAnswer:
    """Return the names after `request.after`, in order, at most `request.limit`; 0: all.

    Requests of gRPC always have a limit, since an answer is one message (`CallServer.serve`)."""
    after = sorted(name for name in names if name > request.after)
    limit = request.limit or len(after)
    return pb.NamesAnswer(names=after[:limit], more=len(after) > limit)
