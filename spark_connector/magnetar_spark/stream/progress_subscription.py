"""Retains the messages that a stream has not read yet.

A topic deletes messages that all of its subscriptions have acknowledged. A stream has no subscription by default, so
the topic must retain messages, or the query must have a `progressSubscription`, which it moves to its own position.
Without both, messages would be skipped whenever the query is slow or stopped, so it does not start, unless the user
tolerates losses.

A progress subscription belongs to one query and to no consumer: of two readers, the slower one would lose messages that
the faster one has read. The broker (broker/magnetar_broker/topics/progress_subscription.py) refuses any other use. A
query has a random id, which is in its offsets (offsets.py) and in the subscription's properties. The subscription is
created before the first offsets are in Spark's checkpoint, without an owner: if the driver died then, no one would know
the id. It is
*claimed* when a batch begins, whose offsets are in the checkpoint. The first query that claims it owns it, and other
queries fail before they have read anything. Until then it may be left over from a query that died, so the broker moves
it back to the start of this query.

A query that is restarted from an older copy of its checkpoint has the same id, and finds its subscription ahead of the
checkpoint. Messages in between may be deleted. If they are, the error gives both positions.
"""

from __future__ import annotations

import shlex
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from magnetar.admin.reading import MessagePosition
from magnetar.exceptions import ConsumerBusy, IncarnationChanged, NotAllowedError, TopicNotFound
from magnetar_spark.errors import NothingKept, SubscriptionInUse
from magnetar_spark.options.offset_option import format_position
from magnetar_wire.topic_name import TopicName

if TYPE_CHECKING:
    from magnetar.admin import AsyncAdmin

__all__ = ["ProgressSubscription"]


class ProgressSubscription:
    def __init__(self, admin: AsyncAdmin, subscription: str, required: bool, holder: str) -> None:
        """`subscription`: its name; empty: the query has none. `required`: messages that are not retained are an error.
        `holder` describes the query for users."""
        self._admin = admin
        self._subscription = subscription
        self._required = required
        # The subscription's stats show it, so it has the start of this driver.
        self._owner_name = f"{holder}, since {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"
        # By the logs' names: the incarnation whose messages are retained, and the one whose subscription this query
        # owns.
        self._retained: dict[str, str] = {}
        self._claimed: dict[str, str] = {}
        # The last known position of the subscription, by the logs' names.
        self._positions: dict[str, MessagePosition] = {}

    async def retain_messages(
        self, log: str, incarnation: str, position: MessagePosition, topic_retains_messages: bool
    ) -> None:
        """Retain the messages from the position on. Raises NothingKept and SubscriptionInUse.

        A subscription that this query has claimed is not moved: only `advance` does that. One that nobody has claimed
        stays at the earliest of these positions: Spark asks a query for its start until its first batch is committed,
        also while that batch is read, and a query that starts at the end of the log has another start each time.
        """
        if self._retained.get(log) == incarnation:
            return
        if self._subscription:
            await self._create_or_claim(log, incarnation, position)
        elif self._required and not topic_retains_messages:
            raise NothingKept(
                f"the messages of {log} are not retained for this query: the topic has no retention, and "
                "the query no progressSubscription, so they may be deleted before they are read. Set the "
                "option progressSubscription to a name, for a subscription that is created for this query "
                "and moved along with it, or set the option failOnDataLoss to false to skip messages that "
                "are deleted before they are read. A retention policy of the topic or its namespace, or "
                "default_retention_time_in_minutes of the brokers, also retains them, for its time"
            )
        self._retained[log] = incarnation

    def describe_if_ahead(self, log: str, checkpoint: MessagePosition) -> str:
        """Return a sentence for errors if the subscription is ahead of the query's own position, else an empty text."""
        position = self._positions.get(log, checkpoint)
        if position <= checkpoint:
            return ""
        return (
            f". The progressSubscription {self._subscription!r} is at {format_position(position)}, ahead of "
            f"the checkpoint, which is at {format_position(checkpoint)}: the checkpoint is an older one, or "
            "the subscription was moved, or the topic truncated"
        )

    async def claim(self, log: str, incarnation: str, position: MessagePosition, query_id: str) -> None:
        """Make this query the owner of the subscription, which is created at the position if it does not exist. Raises
        SubscriptionInUse."""
        if not self._subscription or not query_id or self._claimed.get(log) == incarnation:
            return
        try:
            await self._create_or_claim(log, incarnation, position, query_id)
        except (IncarnationChanged, TopicNotFound):
            return  # the plan of the log reports that
        self._claimed[log] = incarnation

    async def advance(self, log: str, incarnation: str, to: MessagePosition, query_id: str) -> None:
        """Acknowledge all messages before `to`, which were read. Raises `MagnetarException`."""
        await self._admin.reading.advance_progress(
            log, incarnation, self._subscription, to, owner=query_id, owner_name=self._owner_name
        )

    async def _create_or_claim(self, log: str, incarnation: str, position: MessagePosition, query_id: str = "") -> None:
        try:
            self._positions[log] = await self._admin.reading.advance_progress(
                log,
                incarnation,
                self._subscription,
                position,
                only_make=True,
                owner=query_id,
                owner_name=self._owner_name if query_id else "",
            )
        except ConsumerBusy as error:
            topic, name = str(TopicName.parse(log).base), self._subscription
            raise SubscriptionInUse(
                f"the progressSubscription {name!r} of {log} belongs to another query: {error}. Use another "
                "name for this query; or, if the other query will never run again, or this one replaces "
                f"it, delete the subscription: magnetar subscriptions delete {shlex.quote(topic)} "
                f"{shlex.quote(name)}"
            ) from None
        except NotAllowedError as error:
            raise SubscriptionInUse(
                f"the progressSubscription {self._subscription!r} of {log} belongs to consumers: {error}. "
                "Set the option progressSubscription to a name that no consumer uses"
            ) from None
