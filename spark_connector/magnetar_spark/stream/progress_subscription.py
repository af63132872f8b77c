"""Seeing to it that what a stream has not read yet is kept for it.

By itself a topic keeps nothing that all of its subscriptions have acknowledged. A stream has no subscription, so a
topic must retain messages, or the query must have a `progressSubscription`: one that is moved to where the query is.
Where there is neither, messages would be skipped whenever the query is slow or stopped, so it does not even start,
unless the user says that losses are to be lived with.

A `progressSubscription` belongs to one query, and to no consumer: of two readers, the slower one would lose what the
faster one has read. The broker (broker/magnetar_broker/topic/progress.py) refuses every other use of it. A query has an
id, drawn at random when it begins, which is in its offsets (offsets.py) and in the subscription's properties. The
subscription is created before the first offsets are in Spark's checkpoint, without an owner: if the driver died then,
nobody would know the id any more. It is *claimed* when a batch begins, whose offsets are in the checkpoint: the first
query that claims it owns it, and other queries fail before they have read anything. Until then it may be left over from
a query that died, so the broker moves it back to where this query begins.

A query that is restarted from an older copy of its checkpoint has the same id, and finds its subscription ahead of the
checkpoint. What lies between may be deleted. If it is, the error says so, with both positions.
"""

from __future__ import annotations

import shlex
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from magnetar.admin.reading import NextMessage
from magnetar.exceptions import ConsumerBusy, IncarnationChanged, NotAllowedError, TopicNotFound
from magnetar_spark.errors import NothingKept, SubscriptionInUse
from magnetar_spark.planning.offset_resolution import shown_position
from magnetar_wire.topic_name import TopicName

if TYPE_CHECKING:
    from magnetar.admin import AsyncAdmin

__all__ = ["Keeping"]


class Keeping:
    def __init__(self, admin: AsyncAdmin, subscription: str, required: bool, holder: str) -> None:
        """`holder` describes the query for people."""
        self._admin = admin
        self._subscription = subscription
        self._required = required
        # The subscription shows it to users, so it tells when this driver began.
        self._owner_name = f"{holder}, since {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"
        # Incarnations of which this is settled, by the logs' names.
        self._settled: dict[str, str] = {}
        # Likewise, of which the subscription is known to be this query's.
        self._claimed: dict[str, str] = {}
        # Where the subscription was when it was looked at last, by the logs' names.
        self._positions: dict[str, NextMessage] = {}

    async def keep(self, log: str, incarnation: str, place: NextMessage, retained: bool) -> None:
        """Retain the messages from `place` on. Raises NothingKept and SubscriptionInUse.

        A progress subscription that this query has claimed stays where it is: only `advance` moves it. One that nobody
        has claimed stays at the earliest position that it was kept at: Spark asks a query where it begins until its
        first batch is committed, also while that batch is being read, and for a query that begins at the end of the
        log that is another position each time.
        """
        if self._settled.get(log) == incarnation:
            return
        if self._subscription:
            await self._hold_subscription(log, incarnation, place)
        elif self._required and not retained:
            raise NothingKept(
                f"the messages of {log} are not retained for this query: the topic has no retention, and "
                "the query no progressSubscription, so they may be deleted before they are read. Set the "
                "option progressSubscription to a name, for a subscription that is created for this query "
                "and moved along with it, or set the option failOnDataLoss to false to skip messages that "
                "are deleted before they are read; retention would also help, but can't be set in this "
                "version"
            )
        self._settled[log] = incarnation

    def describe_if_ahead(self, log: str, checkpoint: NextMessage) -> str:
        """Say so if the subscription is ahead of the query's own position; else return nothing."""
        position = self._positions.get(log, checkpoint)
        if position <= checkpoint:
            return ""
        return (
            f". The progressSubscription {self._subscription!r} is at {shown_position(position)}, ahead of "
            f"the checkpoint, which is at {shown_position(checkpoint)}: the checkpoint is an older one, or "
            "the subscription was moved, or the topic truncated"
        )

    async def claim(self, log: str, incarnation: str, place: NextMessage, query_id: str) -> None:
        """Make this query the owner of the progress subscription, which is created at `place` where there is none.
        Raises SubscriptionInUse."""
        if not self._subscription or not query_id or self._claimed.get(log) == incarnation:
            return
        try:
            await self._hold_subscription(log, incarnation, place, query_id)
        except (IncarnationChanged, TopicNotFound):
            return  # the plan of the log tells of that
        self._claimed[log] = incarnation

    async def _hold_subscription(self, log: str, incarnation: str, place: NextMessage, query_id: str = "") -> None:
        try:
            self._positions[log] = await self._admin.reading.advance_progress(
                log,
                incarnation,
                self._subscription,
                place,
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

    async def advance(self, log: str, incarnation: str, to: NextMessage, query_id: str) -> None:
        """Acknowledge everything before `to`, which has been read. Raises `MagnetarException`."""
        await self._admin.reading.advance_progress(
            log, incarnation, self._subscription, to, owner=query_id, owner_name=self._owner_name
        )
