"""What a client asks about the topics of a namespace: which there are, and to be told as they come and go.

A pattern that RE2 does not take, or that is too long, is no reason to fail: GET_TOPICS_OF_NAMESPACE then answers with
all topics and says that they are not filtered, and the client filters them itself; it has its own kind of patterns, and
more time. A watch with such a pattern is refused, and clients ask now and then instead.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from magnetar_broker.errors import BrokerError
from magnetar_broker.server.pulsar.replies import frame, success_frame
from magnetar_broker.server.pulsar.topic_list_rules import Listing, TopicPattern, UnusablePattern
from magnetar_broker.server.pulsar.topic_names import partitions_of, topic_names
from magnetar_broker.server.pulsar.topic_watches import TopicWatcher
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.pulsar_pb2 import (
    BaseCommand,
    CommandGetTopicsOfNamespace,
    CommandGetTopicsOfNamespaceResponse,
    CommandWatchTopicList,
    CommandWatchTopicListSuccess,
)
from magnetar_wire.topic_name import NamespaceName, TopicDomain

if TYPE_CHECKING:
    from magnetar_broker.server.pulsar.connection import PulsarConnection

__all__ = ["TopicListsForClients"]

# Answers that a client has not taken yet, before it is given no further list.
_MAX_WAITING_BYTES: Final = 1_048_576
_DOMAINS: Final = {
    CommandGetTopicsOfNamespace.PERSISTENT: f"{TopicDomain.PERSISTENT}://",
    CommandGetTopicsOfNamespace.NON_PERSISTENT: f"{TopicDomain.NON_PERSISTENT}://",
}


class TopicListsForClients:
    """Of one connection."""

    def __init__(self, connection: PulsarConnection) -> None:
        self._connection = connection
        # By the client's numbers.
        self._watchers: dict[int, TopicWatcher] = {}
        self.commands: dict[int, Callable[[BaseCommand], None]] = {
            BaseCommand.GET_TOPICS_OF_NAMESPACE: self._topics,
            BaseCommand.WATCH_TOPIC_LIST: self._watch,
            BaseCommand.WATCH_TOPIC_LIST_CLOSE: self._close_watch,
        }

    def close(self) -> None:
        """The connection has ended."""
        for watcher_id in list(self._watchers):
            self._end_watch(watcher_id)

    # Which there are.

    def _topics(self, command: BaseCommand) -> None:
        asked = command.get_topics_of_namespace
        self._connection.ask(asked.request_id, self._answer_topics(asked))

    async def _answer_topics(self, asked: CommandGetTopicsOfNamespace) -> None:
        """Raises `BrokerError`."""
        door = self._connection.door
        namespace = NamespaceName.parse(asked.namespace)
        pattern = self._pattern_of(asked)
        serving = door.serving()
        begins = _DOMAINS.get(asked.mode, "")

        def means(name: str) -> bool:
            return name.startswith(begins) and (pattern is None or pattern.means(name))

        with serving.finding.counted():
            async with door.listing:
                names = await topic_names(serving.catalog, namespace, partial(partitions_of, serving.catalog), means)
                self._tell_topics(asked, Listing.of(names), filtered=pattern is not None)

    def _pattern_of(self, asked: CommandGetTopicsOfNamespace) -> TopicPattern | None:
        if not asked.HasField("topics_pattern"):
            return None
        try:
            return TopicPattern(asked.topics_pattern, self._connection.door.options.subscription_pattern_max_length)
        except UnusablePattern:
            return None

    def _tell_topics(self, asked: CommandGetTopicsOfNamespace, listing: Listing, *, filtered: bool) -> None:
        """Raises `BrokerError`."""
        changed = asked.topics_hash != listing.hash
        if changed:
            self._check_room(listing)
        told = CommandGetTopicsOfNamespaceResponse(
            request_id=asked.request_id,
            topics=listing.names if changed else (),
            filtered=filtered,
            topics_hash=listing.hash,
            changed=changed,
        )
        answer = BaseCommand(type=BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE, get_topics_of_namespace_response=told)
        self._connection.write(frame(answer))

    # As they come and go.

    def _watch(self, command: BaseCommand) -> None:
        asked = command.watch_topic_list
        self._connection.ask(asked.request_id, self._begin_watch(asked))

    async def _begin_watch(self, asked: CommandWatchTopicList) -> None:
        """Raises `BrokerError`."""
        door = self._connection.door
        namespace = NamespaceName.parse(asked.namespace)
        try:
            pattern = TopicPattern(asked.topics_pattern, door.options.subscription_pattern_max_length)
        except UnusablePattern as error:
            raise BrokerError(ErrorCode.NOT_ALLOWED, str(error)) from None
        self._end_watch(asked.watcher_id)  # the client had stopped waiting for the answer
        self._check_watchers()
        watcher = self._watchers[asked.watcher_id] = TopicWatcher(self._connection, asked.watcher_id)
        try:
            with door.serving().finding.counted():
                listing = await door.watches.watch(namespace, pattern, watcher)
            self._tell_watch(asked, watcher, listing)
        except BaseException:
            if self._watchers.get(asked.watcher_id) is watcher:
                self._end_watch(asked.watcher_id)
            raise

    def _check_watchers(self) -> None:
        most = self._connection.door.options.max_topic_watchers_per_connection
        if len(self._watchers) >= most:
            raise BrokerError(
                ErrorCode.NOT_ALLOWED,
                f"this connection has {most} watches of topics, which is max_topic_watchers_per_connection: ask now "
                "and then",
            )

    def _tell_watch(self, asked: CommandWatchTopicList, watcher: TopicWatcher, listing: Listing) -> None:
        """Raises `BrokerError`."""
        if self._watchers.get(asked.watcher_id) is not watcher:
            raise BrokerError(ErrorCode.NOT_ALLOWED, f"watch {asked.watcher_id} was closed before it had begun")
        changed = asked.topics_hash != listing.hash
        if changed:
            self._check_room(listing)
        told = CommandWatchTopicListSuccess(
            request_id=asked.request_id,
            watcher_id=asked.watcher_id,
            topic=listing.names if changed else (),
            topics_hash=listing.hash,
        )
        answer = BaseCommand(type=BaseCommand.WATCH_TOPIC_LIST_SUCCESS, watch_topic_list_success=told)
        self._connection.write(frame(answer))
        watcher.told = listing

    def _close_watch(self, command: BaseCommand) -> None:
        asked = command.watch_topic_list_close
        self._end_watch(asked.watcher_id)
        self._connection.write(success_frame(asked.request_id))

    def _end_watch(self, watcher_id: int) -> None:
        watcher = self._watchers.pop(watcher_id, None)
        if watcher is not None:
            self._connection.door.watches.leave(watcher)

    def _check_room(self, listing: Listing) -> None:
        """Raises `BrokerError` where the client could not take the list, or has not taken others."""
        most = self._connection.door.options.max_message_size
        if listing.bytes > most:
            raise BrokerError(
                ErrorCode.NOT_ALLOWED,
                f"the list of {len(listing.names):,} topics has {listing.bytes:,} bytes, and clients take no frame "
                f"above max_message_size, {most:,}: ask for fewer, by a pattern",
            )
        if self._connection.waiting_bytes > _MAX_WAITING_BYTES:
            raise BrokerError(
                ErrorCode.TOO_MANY_REQUESTS,
                f"{self._connection.waiting_bytes:,} bytes of answers have not been read yet: read them first",
            )
