"""What a client asks about the topics of a namespace: which there are, and to be told as they come and go.

A pattern that RE2 does not take, or that is too long, is no reason to fail: GET_TOPICS_OF_NAMESPACE then answers with
all topics and says that they are not filtered, and the client filters them itself; it has its own kind of patterns, and
more time. A watch with such a pattern is refused, and clients ask now and then instead.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from magnetar_broker.core.pulsar.replies import frame
from magnetar_broker.core.pulsar.topic_lists import Listing, TopicPattern, UnusablePattern
from magnetar_broker.errors import BrokerError
from magnetar_broker.pulsar.topic_names import partitions_of, topic_names
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.pulsar_pb2 import (
    BaseCommand,
    CommandGetTopicsOfNamespace,
    CommandGetTopicsOfNamespaceResponse,
)
from magnetar_wire.topic_name import NamespaceName, TopicDomain

if TYPE_CHECKING:
    from magnetar_broker.pulsar.connection import PulsarConnection

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
        self.commands: dict[int, Callable[[BaseCommand], None]] = {
            BaseCommand.GET_TOPICS_OF_NAMESPACE: self._topics,
        }

    def close(self) -> None:
        """The connection has ended."""

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
