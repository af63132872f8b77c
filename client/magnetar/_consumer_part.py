"""A consumer of one topic without partitions, or of one partition: what talks to the broker.

**Openings.** A consumer is opened at whichever broker serves the topic, under an id of the link's. When the link
breaks, or the broker ends it because the topic has moved, that opening is over, and the consumer is opened anew, at
once and then after growing pauses, for as long as it takes. What the application has in its hands it may still
acknowledge (_acks.py: `Eras`). A durable subscription goes on with what is not acknowledged, and what waits here is
dropped. One that is not durable is gone with its opening, and what it had delivered may be trimmed: so what waits here
stays, and the next begins behind it.

**Epochs.** A seek, a redelivery of everything or a take-over begins an epoch. What was delivered before is dropped,
here and on its way, and permits are granted anew. Who asks for everything again has it dropped at once, in his own
thread (_receiver_queue.py: `shut`). What is acknowledged and not sent yet leaves before anything has messages delivered
again, in the same message.

**A topic that was deleted** (INCARNATION_CHANGED, TOPIC_NOT_FOUND): what is known of it is dropped, the queue and
acknowledgements; whoever waits for a receipt meets IncarnationChanged. The consumer goes on with the topic that is
there now, or made on its request, from the first message; where none may be made, it is over (TopicNotFound).
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Iterable, Sequence

from magnetar._acks import Eras, PendingAcks
from magnetar._arrivals import Arrivals
from magnetar._asks import Asks
from magnetar._client_core import ClientCore
from magnetar._consume_link import ConsumeLink, Gathered
from magnetar._consumer_options import ConsumerOptions, open_request
from magnetar._enums import ConsumerType
from magnetar._errors import from_problem, from_transport, may_reopen_consumer
from magnetar._message import Era
from magnetar._operations import CLOSE_TIMEOUT_S, Backoff
from magnetar._part_owner import PartOwner
from magnetar._permits import Permits
from magnetar._places import first_wanted
from magnetar._receiver_queue import ReceiverQueue, Source
from magnetar._to_say import ToSay
from magnetar._whereabouts import Whereabouts
from magnetar.exceptions import (
    AlreadyClosed,
    ConnectError,
    IncarnationChanged,
    MagnetarException,
    ServiceUnitNotReady,
    StaleEpoch,
    Timeout,
    TopicNotFound,
)
from magnetar_protos.broker_pb2 import (
    ConsumerOpened,
    Delivery,
    Done,
    EpochBegan,
    Problem,
    Seek,
    StartAt,
    Unsubscribe,
)
from magnetar_wire.topic_name import TopicName
from magnetar_wire.transport import TransportError

__all__ = ["ConsumerPart"]

log = logging.getLogger("magnetar")


class ConsumerPart:
    """A `ConsumerChannel`, and an `Origin` of messages."""

    def __init__(
        self,
        name: TopicName,
        consumer_name: str,
        options: ConsumerOptions,
        client: ClientCore,
        queue: ReceiverQueue,
        owner: PartOwner,
        start: StartAt,
        *,
        durable: bool,
    ) -> None:
        self.topic = str(name)
        self.partition = name.partition_index
        self.decode_value = None
        self.consumer_name = consumer_name
        self.connected = False
        self.active = False  # of Failover: it is the one that is served
        # Called with the queue's lock held, by whoever receives: what was handed out is fetched on the loop.
        self.source = Source(lambda: owner.post(self._handed_out))
        self.acks = PendingAcks(by_message=options.batch_index_ack_enabled)
        self.eras = Eras()
        # What is delivered now belongs to it.
        self.era = Era(self, 0, 0)
        self.permits = Permits(options.receiver_queue_size, options.receiver_queue_bytes)
        self._options = options
        self._shared = options.consumer_type is ConsumerType.Shared
        self._client = client
        self._clock = client.clock
        self._queue = queue
        self._owner = owner
        self._durable = durable
        self._arrivals = Arrivals(self.topic, self.permits, self.acks, self.source, durable=durable)
        self.start_at(start)
        self.where = Whereabouts(self.topic, client, queue, self.source, self._arrivals, self.flow)
        # Where a seek that is not answered leads to.
        self._sought: StartAt | None = None
        self._incarnation = ""
        self._link: ConsumeLink | None = None
        self._consumer_id = 0
        self._opened_at = 0.0
        self._backoff = Backoff(client.randomness)
        self.reopening: asyncio.Task[None] | None = None
        self._asks = Asks()
        self._to_say = ToSay(self.acks, self._asks)
        # Waited for: the answer to an opening, and the end.
        self._answer: asyncio.Future[None] | None = None
        self._closing: asyncio.Future[None] | None = None
        self.closed = False

    @property
    def connection(self) -> tuple[ConsumeLink, int] | None:
        """The stream that it is connected by, and its id there: another pair each time it was opened.

        The torture records it, so that its judge knows over which connection a message came.
        """
        return (self._link, self._consumer_id) if self._link is not None and self.connected else None

    async def open(self) -> None:
        """The first time. Raises what the broker says, or Timeout or the like when the operation's time is over."""
        await self._client.operations.retry(self._attempt)

    def start_at(self, start: StartAt) -> None:
        """Where the next opening begins that makes the subscription."""
        self._start = start
        if self._arrivals.last is None:  # or something of the entry is here, and stays as it was wanted
            self._arrivals.first_wanted = first_wanted(start)

    async def _attempt(self) -> None:
        address = await self._client.lookup.find_owner(self.topic, was_open=self.eras.opening > 0)
        link = self._client.pool.stream(address, ConsumeLink)
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        try:
            self._consumer_id = link.attach(self)
        except TransportError as error:
            raise from_transport(error) from error
        self._link, self._answer = link, answer
        who = (self._consumer_id, self.topic, self.consumer_name)
        self._to_say.opening = open_request(self._options, *who, self._durable, self._start, self._incarnation)
        link.ready(self._consumer_id)
        try:
            await self._client.lookup.wait_opened(answer, self.topic, address, "a consumer")
        except BaseException:
            if not self.connected:
                self._give_up()
            raise
        finally:
            self._answer = None

    def opened(self, answer: ConsumerOpened) -> None:
        if self.connected or self._answer is None or self._answer.done():
            return
        if self._incarnation and answer.incarnation != self._incarnation:
            self._forget_incarnation()
        self._incarnation = answer.incarnation
        self.connected = True
        self._opened_at = self._clock.monotonic()
        self.eras.opened(answer.epoch, answer.moves)
        self.where.began(answer)
        self._owner.give_acknowledged()  # so that it leaves before permits do, and does not come again
        self._epoch_begins(keeps=not self._durable)
        self._answer.set_result(None)
        self.active_changed(answer.active)

    def _epoch_begins(self, *, keeps: bool = False) -> None:
        self.era = Era(self, self.eras.opening, self.eras.epoch)
        self._queue.reopen(self.source)
        self.permits.began_anew(keeps=keeps)
        self._to_say.begin_anew()
        self.flow()
        self._speak()

    def _give_up(self) -> None:
        """Ends the opening at once. What the broker was told of it, it is told is over."""
        link, self._link = self._link, None
        self.connected = False
        if link is not None:
            link.give_up(self._consumer_id)

    def disconnected(self, error: TransportError) -> None:
        self._over(from_transport(error))

    def ended(self, problem: Problem | None) -> None:
        closed = ServiceUnitNotReady(f"the broker closed the consumer of {self.topic}")
        self._over(closed if problem is None else from_problem(problem))

    def _over(self, error: MagnetarException) -> None:
        """The opening is over; the link knows nothing of it any more."""
        self._link = None
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)
        if not self.connected:
            return
        self.connected = False
        self._stop()
        self._asks.lost(error)
        if self._closing is not None:
            if not self._closing.done():
                self._closing.set_result(None)
        elif not (self.closed or self._asks.unsubscribed):
            if not may_reopen_consumer(error):
                self._fail(error)
                return
            log.info("the consumer of %s is opened anew: %s", self.topic, error)
            self.reopening = asyncio.get_running_loop().create_task(self._reopen())

    def _stop(self) -> None:
        if self._durable:
            self._drop()
        else:
            self.start_at(self.where.resumed(self._start))
        self.acks.disconnected()
        self._owner.starts_anew(self)

    def _drop(self) -> None:
        self._queue.clear(self.source)
        self._arrivals.clear()
        self.permits.began_anew()

    async def _reopen(self) -> None:
        if pause_s := self._backoff.after(self._clock.monotonic() - self._opened_at):
            await self._clock.sleep(pause_s)
        while True:
            try:
                await self._attempt()
                return
            except MagnetarException as error:
                if self._incarnation and isinstance(error, IncarnationChanged | TopicNotFound):
                    log.warning("%s was deleted (%s): the next one is asked for, and read whole", self.topic, error)
                    self._forget_incarnation()
                elif not may_reopen_consumer(error) or isinstance(error, TopicNotFound):
                    self._fail(error)
                    return
                else:
                    log.info("%s could not be opened: %s", self.topic, error)
            await self._clock.sleep(self._backoff.next())

    def _forget_incarnation(self) -> None:
        self._incarnation = ""
        self._drop()
        self.start_at(StartAt(earliest=True))
        self.eras.all_over()
        self.acks.fail(IncarnationChanged(f"{self.topic} was deleted, and made again: what was read is of the old one"))

    def _fail(self, error: MagnetarException) -> None:
        self.closed = True
        self.acks.fail(error)
        self._owner.part_failed(self, error)

    # What is said.

    def _speak(self) -> None:
        if self._link is not None:
            self._link.ready(self._consumer_id)

    def fill(self, gathered: Gathered) -> bool:
        return self._to_say.fill(gathered, self._consumer_id, self.eras if self.connected else None)

    def acknowledge(self) -> None:
        """What is gathered leaves now, or with the next connection."""
        self.acks.drop_over(self.eras)
        if self.acks and self.connected:
            self._speak()

    def redeliver(self, places: Iterable[tuple[int, int]] | None) -> None:
        """These entries come again; None: all that is not acknowledged. Without a connection they do anyway."""
        if not self.connected:
            return
        to_say = self._to_say
        if places is None or not self._shared:
            to_say.redeliver = None
        elif to_say.redeliver is not None:
            to_say.redeliver.update(dict.fromkeys(places))
        if self._shared:  # no epoch begins: what is here and comes again is dropped here
            if to_say.redeliver is None:
                self._queue.clear(self.source)
                self._queue.reopen(self.source)
                self._arrivals.clear()
                self.permits.held = 0
            else:
                self._arrivals.drop(to_say.redeliver)
                self.permits.handed_out(self._queue.drop(self.source, to_say.redeliver))
            self._let_in()
        self._speak()

    async def seek(self, to: StartAt) -> None:
        """Moves the subscription; done when the new epoch has begun."""

        async def ask() -> None:
            self._sought = to
            try:
                await self._seek_from_here(to)
                self._start = to
            finally:
                self._sought = None

        await self._client.operations.retry(ask)

    async def _seek_from_here(self, to: StartAt) -> None:
        """Asks again where somebody else has moved the subscription meanwhile: the last seek counts."""
        while True:
            moves = self.eras.moves
            try:
                return await self._ask(Seek(to=to, moves=moves), "moved the subscription")
            except StaleEpoch:
                if self.eras.moves == moves:
                    raise

    async def unsubscribe(self) -> None:
        """Deletes the subscription."""
        await self._client.operations.retry(lambda: self._ask(Unsubscribe(), "deleted the subscription"))

    async def _ask(self, ask: Seek | Unsubscribe, what: str) -> None:
        if not self.connected:
            raise AlreadyClosed("the consumer is closed") if self.closed else ConnectError("not connected now")
        answer = self._asks.put(ask, self._consumer_id, self.acks.next_request())
        self._speak()
        await self._client.operations.wait_for(answer, f"the broker has not {what} of {self.topic}")

    async def close(self) -> None:
        """Closes it behind all that was acknowledged. Never raises for what the broker does: one that does not answer
        is given up after an operation's time, and soon where no acknowledgement waits to leave, or for its receipt."""
        self.closed = True
        if self.reopening is not None:
            self.reopening.cancel()
            await asyncio.wait([self.reopening])
        if self.connected and self._closing is None:
            self._closing = asyncio.get_running_loop().create_future()
            self._to_say.close = True
            most_s = math.inf if self.acks.pending else CLOSE_TIMEOUT_S
            self._speak()
            try:
                await self._client.operations.wait_for(self._closing, "the broker has not closed it", most_s)
            except Timeout as error:
                log.info("the consumer of %s is given up: %s", self.topic, error)
        self._give_up()
        self._drop()
        self.acks.fail(AlreadyClosed(f"the consumer of {self.topic} is closed"))

    def end(self, error: MagnetarException) -> None:
        """At once."""
        self.closed = True
        if self.reopening is not None:
            self.reopening.cancel()
        self._give_up()
        self._arrivals.clear()
        self.where.news(error)
        self._asks.lost(error)
        self.acks.fail(error)

    # What comes.

    def epoch_began(self, epoch: EpochBegan) -> None:
        if not self.connected:
            return
        self._drop()
        self.eras.began(epoch.epoch, epoch.acknowledged_from, epoch.moves)
        self.where.began(epoch)
        if self._sought is not None:
            self._arrivals.first_wanted = first_wanted(self._sought)
        self._owner.starts_anew(self)
        self._epoch_begins()

    def active_changed(self, active: bool) -> None:
        if self.connected and active != self.active:
            self.active = active
            if self._options.consumer_type is ConsumerType.Failover:
                self._owner.active_changed(self, active)

    def delivered(self, delivery: Delivery, entries: Sequence[bytes]) -> None:
        if not self.connected or delivery.epoch != self.era.epoch:
            return
        self._backoff.reset()
        self._arrivals.take(self.era, delivery, entries)
        self._let_in()
        self.where.news()
        if self._queue.batches_waiting and self.permits.outstanding <= 0:
            self._owner.hungry()

    def done(self, answer: Done) -> None:
        if not self.acks.done(answer):
            self._asks.done(answer)

    def _handed_out(self) -> None:
        if owed := self._queue.fetch_owed(self.source):
            self.permits.handed_out(owed)
            self._owner.handed_out(self)
        self._let_in()

    def _let_in(self) -> None:
        self._arrivals.let_in(self._queue)
        if self.acks:
            self._owner.acknowledge_soon()
        self.flow()

    def flow(self, *, eager: bool = False) -> None:
        """Grants what there is to grant. `eager`: somebody waits for more than there is."""
        if eager:
            self.permits.handed_out(self._queue.fetch_owed(self.source))
        if not self.connected:
            return
        if grant := self.permits.grant(waiting=self._queue.waiting > 0, eager=eager):
            self._to_say.granted += grant
            self._speak()
