"""Seeing to it that what a stream has not read yet is kept for it.

By itself a topic keeps nothing that all of its subscriptions have acknowledged. A stream has no subscription, so a
topic must retain messages, or the query must have a `progressSubscription`: one that is moved to where the query is.
Where there is neither, messages would be skipped whenever the query is slow or stopped, so it does not even start,
unless the user says that losses are to be lived with.

A `progressSubscription` belongs to one query: of two queries the slower one would lose what the faster one has read. A
query has an id, drawn at random when it begins, which is in its offsets (offsets.py) and in the subscription's
properties. The subscription is made before the first offsets are in Spark's checkpoint, without an owner: were the
driver to die then, nobody would know the id any more. It is *claimed* when a batch begins, whose offsets are written
down: the first query to do so has it, and another one fails before it has read anything.

A query that is restarted from an older copy of its checkpoint has the same id, and finds its subscription ahead of the
checkpoint. What lies between may be deleted. If it is, the error says so, with both positions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.admin.reading import NextMessage
from magnetar.exceptions import ConsumerBusy, IncarnationChanged, TopicNotFound
from magnetar_spark.errors import NothingKept, SubscriptionInUse
from magnetar_spark.places import shown_position

if TYPE_CHECKING:
    from magnetar.admin import AsyncAdmin

__all__ = ["Keeping"]


class Keeping:
    def __init__(self, admin: AsyncAdmin, subscription: str, required: bool, holder: str) -> None:
        """`holder` says for people who the query is."""
        self._admin = admin
        self._subscription = subscription
        self._required = required
        self._holder = holder
        # Incarnations of which this is settled, by the logs' names.
        self._settled: dict[str, str] = {}
        # Likewise, of which the subscription is known to be this query's.
        self._claimed: dict[str, str] = {}
        # Where the subscription was when it was looked at last, by the logs' names.
        self._positions: dict[str, NextMessage] = {}

    async def keep(self, log: str, incarnation: str, place: NextMessage, retained: bool) -> None:
        """What is at `place` and behind it. Raises NothingKept.

        A progress subscription that is there already stays where it is: what is committed moves it, and nothing else.
        Spark asks a query where it begins until its first batch is committed, also when that has been planned and is
        being read; of one that begins at the end of the log, that is another place each time.
        """
        if self._settled.get(log) == incarnation:
            return
        if self._subscription:
            self._positions[log] = await self._admin.reading.advance_progress(
                log, incarnation, self._subscription, place, only_make=True
            )
        elif self._required and not retained:
            raise NothingKept(
                f"nothing keeps the messages of {log} for this query: there is no retention on it, and no "
                "progressSubscription, so they may be deleted before they are read. Give the option "
                "progressSubscription a name, for a subscription that is made for this query and moved along with it, "
                "or set the option failOnDataLoss to false to skip messages that are deleted before they are read; "
                "retention would keep them, too, but can't be set in this version"
            )
        self._settled[log] = incarnation

    def describe_if_ahead(self, log: str, checkpoint: NextMessage) -> str:
        """Say so if the subscription is ahead of the query's own position; else return nothing."""
        position = self._positions.get(log, checkpoint)
        if position <= checkpoint:
            return ""
        return (
            f". The progressSubscription {self._subscription!r} is at {shown_position(position)}, ahead of the "
            f"checkpoint, which is at {shown_position(checkpoint)}: the checkpoint is an older one, or the "
            "subscription was moved, or the topic truncated"
        )

    async def claim(self, log: str, incarnation: str, place: NextMessage, query_id: str) -> None:
        """Has the progress subscription be this query's; made at `place` where there is none. Raises
        SubscriptionInUse."""
        if not self._subscription or not query_id or self._claimed.get(log) == incarnation:
            return
        try:
            await self._admin.reading.advance_progress(
                log,
                incarnation,
                self._subscription,
                place,
                only_make=True,
                owner=query_id,
                owner_name=self._holder,
            )
        except ConsumerBusy as error:
            raise SubscriptionInUse(
                f"the progressSubscription {self._subscription!r} of {log} is not this query's: {error}"
            ) from None
        except (IncarnationChanged, TopicNotFound):
            return  # the plan of the log tells of that
        self._claimed[log] = incarnation

    async def advance(self, log: str, incarnation: str, to: NextMessage, query_id: str) -> None:
        """Everything in front of `to` has been read, and need not be kept. Raises `MagnetarException`."""
        await self._admin.reading.advance_progress(
            log, incarnation, self._subscription, to, owner=query_id, owner_name=self._holder
        )
