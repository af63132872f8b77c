"""The handlers of commands about a namespace's topics: GET_TOPICS_OF_NAMESPACE, WATCH_TOPIC_LIST and its close.

A pattern that RE2 does not support, or that is too long, does not fail GET_TOPICS_OF_NAMESPACE: the answer then has all
topics, marked as not filtered, and the client filters them with its own patterns. A watch with such a pattern is
refused, and the client polls instead.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from magnetar_broker.errors import BrokerError
from magnetar_broker.server.pulsar.outbound import OutboundFrames
from magnetar_broker.server.pulsar.replies import frame, success_frame, topic_update_frame
from magnetar_broker.server.pulsar.session import ClientSession
from magnetar_broker.server.topic_list_rules import Difference, ListChange, Listing, TopicPattern, UnusablePattern
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.pulsar_pb2 import (
    BaseCommand,
    CommandGetTopicsOfNamespace,
    CommandGetTopicsOfNamespaceResponse,
    CommandWatchTopicList,
    CommandWatchTopicListSuccess,
    CommandWatchTopicUpdate,
)
from magnetar_wire.topic_name import NamespaceName, TopicDomain

__all__ = ["TopicLists"]

# Bytes of answers that a client has not read, above which it gets no further list, and no updates.
_MAX_WAITING_BYTES: Final = 1_048_576
_DOMAINS: Final = {
    CommandGetTopicsOfNamespace.PERSISTENT: TopicDomain.PERSISTENT,
    CommandGetTopicsOfNamespace.NON_PERSISTENT: TopicDomain.NON_PERSISTENT,
}
_ALL: Final = ".*"


class PulsarTopicWatcher:
    """Implements `TopicWatcher`. `watcher_id` is the client's."""

    def __init__(self, outbound: OutboundFrames, watcher_id: int) -> None:
        self._outbound = outbound
        self._watcher_id = watcher_id
        self.sent: Listing | None = None

    @property
    def has_capacity(self) -> bool:
        return self._outbound.waiting_bytes <= _MAX_WAITING_BYTES

    def send(self, change: ListChange) -> None:
        for update in change.encode(_encode_update):
            self._outbound.write(topic_update_frame(self._watcher_id, update))
        self.sent = change.listing


class TopicLists:
    """The watches of one connection, and its requests for lists."""

    __slots__ = ("_session", "_watchers")

    def __init__(self, session: ClientSession) -> None:
        self._session = session
        # By the client's id.
        self._watchers: dict[int, PulsarTopicWatcher] = {}

    def close(self) -> None:
        """End all watches of a connection that is closed."""
        for watcher_id in list(self._watchers):
            self._end_watch(watcher_id)

    # Lists.

    def get_topics(self, command: BaseCommand) -> None:
        """Handle GET_TOPICS_OF_NAMESPACE."""
        request = command.get_topics_of_namespace
        self._session.start_request(request.request_id, self._answer_topics(request))

    async def _answer_topics(self, request: CommandGetTopicsOfNamespace) -> None:
        """Raises `BrokerError`."""
        server = self._session.context.server
        namespace = NamespaceName.parse(request.namespace)
        pattern, is_filtered = self._make_pattern(request)
        with server.lookup_limit.hold():
            listing = await server.topic_watches.list_once(namespace, pattern)
        self._send_topics(request, listing, filtered=is_filtered)

    def _make_pattern(self, request: CommandGetTopicsOfNamespace) -> tuple[TopicPattern, bool]:
        """Return a pattern, and whether it is the client's; otherwise it matches all names."""
        maximum, domain = self._session.context.settings.subscription_pattern_max_length, _DOMAINS.get(request.mode)
        if request.HasField("topics_pattern"):
            with suppress(UnusablePattern):
                return TopicPattern(request.topics_pattern, maximum, domain), True
        return TopicPattern(_ALL, len(_ALL), domain), False

    def _send_topics(self, request: CommandGetTopicsOfNamespace, listing: Listing, *, filtered: bool) -> None:
        """Raises `BrokerError`."""
        changed = request.topics_hash != listing.hash
        if changed:
            self._check_can_send(listing)
        response = CommandGetTopicsOfNamespaceResponse(
            request_id=request.request_id,
            topics=listing.names if changed else (),
            filtered=filtered,
            topics_hash=listing.hash,
            changed=changed,
        )
        answer = BaseCommand(
            type=BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE, get_topics_of_namespace_response=response
        )
        self._session.write(frame(answer))

    # Watches.

    def watch(self, command: BaseCommand) -> None:
        """Handle WATCH_TOPIC_LIST."""
        request = command.watch_topic_list
        self._session.start_request(request.request_id, self._begin_watch(request))

    async def _begin_watch(self, request: CommandWatchTopicList) -> None:
        """Raises `BrokerError`."""
        context = self._session.context
        namespace = NamespaceName.parse(request.namespace)
        try:
            pattern = TopicPattern(
                request.topics_pattern, context.settings.subscription_pattern_max_length, TopicDomain.PERSISTENT
            )
        except UnusablePattern as error:
            raise BrokerError(ErrorCode.NOT_ALLOWED, str(error)) from None
        self._end_watch(request.watcher_id)  # the client had stopped waiting for the first answer
        self._check_watchers()
        watcher = self._watchers[request.watcher_id] = PulsarTopicWatcher(self._session.outbound, request.watcher_id)
        try:
            with context.server.lookup_limit.hold():
                listing = await context.server.topic_watches.watch(namespace, pattern, watcher)
            self._send_watch(request, watcher, listing)
        except BaseException:
            if self._watchers.get(request.watcher_id) is watcher:
                self._end_watch(request.watcher_id)
            raise

    def _check_watchers(self) -> None:
        maximum = self._session.context.settings.max_topic_watchers_per_connection
        if len(self._watchers) >= maximum:
            raise BrokerError(
                ErrorCode.NOT_ALLOWED,
                f"this connection has {maximum} topic watches, the maximum of max_topic_watchers_per_connection: poll "
                "the list instead",
            )

    def _send_watch(self, request: CommandWatchTopicList, watcher: PulsarTopicWatcher, listing: Listing) -> None:
        """Raises `BrokerError`."""
        if self._watchers.get(request.watcher_id) is not watcher:
            raise BrokerError(ErrorCode.NOT_ALLOWED, f"watch {request.watcher_id} was closed before it began")
        changed = request.topics_hash != listing.hash
        if changed:
            self._check_can_send(listing)
        response = CommandWatchTopicListSuccess(
            request_id=request.request_id,
            watcher_id=request.watcher_id,
            topic=listing.names if changed else (),
            topics_hash=listing.hash,
        )
        answer = BaseCommand(type=BaseCommand.WATCH_TOPIC_LIST_SUCCESS, watch_topic_list_success=response)
        self._session.write(frame(answer))
        watcher.sent = listing

    def close_watch(self, command: BaseCommand) -> None:
        """Handle WATCH_TOPIC_LIST_CLOSE."""
        request = command.watch_topic_list_close
        self._end_watch(request.watcher_id)
        self._session.write(success_frame(request.request_id))

    def _end_watch(self, watcher_id: int) -> None:
        watcher = self._watchers.pop(watcher_id, None)
        if watcher is not None:
            self._session.context.server.topic_watches.leave(watcher)

    def _check_can_send(self, listing: Listing) -> None:
        """Raise `BrokerError` if the list is too large for a frame, or the client has not read earlier answers."""
        maximum = self._session.context.settings.max_message_size
        if listing.bytes > maximum:
            raise BrokerError(
                ErrorCode.NOT_ALLOWED,
                f"the list of {len(listing.names):,} topics has {listing.bytes:,} bytes, more than max_message_size = "
                f"{maximum:,}, above which clients accept no frame: use a pattern that matches fewer topics",
            )
        waiting_bytes = self._session.outbound.waiting_bytes
        if waiting_bytes > _MAX_WAITING_BYTES:
            raise BrokerError(
                ErrorCode.TOO_MANY_REQUESTS,
                f"the client has not read {waiting_bytes:,} bytes of answers: read them first",
            )


def _encode_update(change: Difference, topics_hash: str) -> bytes:
    """Encode WATCH_TOPIC_UPDATE without a watcher's id."""
    return CommandWatchTopicUpdate(
        new_topics=change.new, deleted_topics=change.deleted, topics_hash=topics_hash
    ).SerializePartialToString()
