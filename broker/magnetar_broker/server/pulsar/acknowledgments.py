"""The acknowledgements of one consumer: they are checked, applied to the subscription, and answered if requested.

An ACK names entries, and of batches the messages that are not acknowledged. It does not say how many messages a batch
has. That is part of the entry, which the broker may have to read first. Other acknowledgements, and the rest of the
same one, do not wait for it, because their order does not matter. But each counts as of the epoch in which it was
received, and a consumer that closes waits for its earlier ones. If an entry can't be read, only its part is refused.

As in Pulsar, an acknowledgement also counts after another consumer has taken over (Failover). Libraries send each
acknowledgement once. Until it is closed, a consumer of the C++ library, and so of the Python one, drops every message
up to the last one that it has acknowledged cumulatively: if the broker refused the acknowledgement and delivered the
messages again to the same consumer, they would never be acknowledged.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from typing import Final

from magnetar_broker.errors import BrokerError, DamagedEntry, LostEntry
from magnetar_broker.server.pulsar.acknowledged_ids import UnackedBatch, entry_ranges, whole_and_partial
from magnetar_broker.server.pulsar.error_codes import server_error
from magnetar_broker.server.pulsar.message_ids import acknowledged_bits, to_position
from magnetar_broker.server.pulsar.replies import frame
from magnetar_broker.server.pulsar.session import ClientSession
from magnetar_broker.server.request_errors import as_broker_error
from magnetar_broker.topics.consumer import Consumer
from magnetar_protos.broker_pb2 import Acknowledge, BatchMessages, EntryRange, ErrorCode
from magnetar_protos.entry_pb2 import MessageIdData
from magnetar_protos.pulsar_pb2 import BaseCommand, CommandAck, CommandAckResponse

__all__ = ["Acknowledgments"]

_log = logging.getLogger(__name__)
# Entries that are read at a time to learn the sizes of batches: each may have the maximum size.
_MAX_READ_ENTRIES: Final = 4


class Acknowledgments:
    __slots__ = ("_consumer_id", "_has_logged", "_session", "_size_readers")

    def __init__(self, session: ClientSession, consumer_id: int) -> None:
        self._session = session
        self._consumer_id = consumer_id
        # Tasks that read the sizes of batches and then apply acknowledgements.
        self._size_readers: set[asyncio.Task[None]] = set()
        self._has_logged = False

    @property
    def is_pending(self) -> bool:
        """Whether acknowledgements are not applied yet."""
        return bool(self._size_readers)

    async def wait_applied(self) -> None:
        """Return when all earlier acknowledgements are applied."""
        while self._size_readers:
            await asyncio.wait(self._size_readers)

    def acknowledge(self, consumer: Consumer | None, request: CommandAck, epoch: int) -> None:
        """Apply an acknowledgement. `epoch`: the one in which it was received, however long reading sizes takes."""
        if request.txnid_least_bits or request.txnid_most_bits:
            text = "transactions are not supported: acknowledge without a transaction"
            self._answer(request, BrokerError(ErrorCode.UNSUPPORTED, text))
            return
        if request.ack_type == CommandAck.CUMULATIVE and len(request.message_id) != 1:
            text = f"a cumulative acknowledgement has {len(request.message_id)} message ids: send exactly one"
            self._answer(request, BrokerError(ErrorCode.INVALID_ARGUMENT, text))
            return
        if consumer is None:
            self._answer(
                request,
                BrokerError(ErrorCode.NOT_FOUND, f"consumer {self._consumer_id} is not open on this connection"),
            )
            return
        self._acknowledge(consumer, request, epoch)

    def _acknowledge(self, consumer: Consumer, request: CommandAck, epoch: int) -> None:
        whole, partial = whole_and_partial(request.message_id)
        if request.ack_type == CommandAck.CUMULATIVE and not whole and not partial:
            whole = _before_ledger(consumer, request)
        known: list[BatchMessages] = []
        unknown: list[UnackedBatch] = []
        try:
            for one in partial:
                if (size := consumer.find_batch_size_nowait(one[0])) is None:
                    unknown.append(one)
                else:
                    known += _batches([one], [size])
        except BrokerError as error:  # the topic is closed
            self._answer(request, error)
            return
        refused = _apply(consumer, request, epoch, whole, known)
        if unknown:
            reader = self._session.spawn(self._read_and_apply(consumer, request, epoch, unknown, refused))
            self._size_readers.add(reader)
            reader.add_done_callback(self._size_readers.discard)
        else:
            self._answer_when_saved(consumer, request, refused)

    async def _read_and_apply(
        self,
        consumer: Consumer,
        request: CommandAck,
        epoch: int,
        unknown: list[UnackedBatch],
        refused: BrokerError | None,
    ) -> None:
        """Read the sizes of batches, few entries at a time, and apply the acknowledgements of each few."""
        parts = deque(unknown[begin : begin + _MAX_READ_ENTRIES] for begin in range(0, len(unknown), _MAX_READ_ENTRIES))
        while parts:
            part = parts.popleft()
            try:
                with as_broker_error("Reading the sizes of batches"):
                    sizes = await self._read_sizes(consumer, part)
            except (LostEntry, DamagedEntry) as error:
                if len(part) == 1:
                    refused = refused or error
                else:
                    parts.extendleft([one] for one in part)
            except BrokerError as error:
                refused = refused or error
                break  # the rest can't be read now either
            else:
                refused = _apply(consumer, request, epoch, [], _batches(part, sizes)) or refused
        self._answer_when_saved(consumer, request, refused)

    async def _read_sizes(self, consumer: Consumer, part: list[UnackedBatch]) -> list[int]:
        """Return the sizes of batches. A connection reads one part at a time, so that many delay only itself."""
        async with self._session.batch_size_lock, self._session.context.batch_size_readers:
            return await consumer.find_batch_sizes([position for position, _ in part])

    def _answer_when_saved(self, consumer: Consumer, request: CommandAck, refused: BrokerError | None) -> None:
        if refused is not None:
            self._answer(request, refused)
            return
        if not request.HasField("request_id"):
            return

        # Not the request itself, since its message ids may have a megabyte, and many may wait here.
        without_ids = CommandAck(
            consumer_id=request.consumer_id, ack_type=request.ack_type, request_id=request.request_id
        )

        def saved(error: BrokerError | None) -> None:
            self._session.requests.count_reply()
            self._answer(without_ids, error)

        self._session.requests.expect_reply()
        consumer.when_saved(saved)

    def _answer(self, request: CommandAck, error: BrokerError | None) -> None:
        if not request.HasField("request_id"):
            if error is not None:
                self.log_once("An acknowledgement", error)
            return
        response = CommandAckResponse(consumer_id=self._consumer_id, request_id=request.request_id)
        response.txnid_least_bits, response.txnid_most_bits = request.txnid_least_bits, request.txnid_most_bits
        if error is not None:
            response.error, response.message = server_error(error.code), str(error)
        self._session.write(frame(BaseCommand(type=BaseCommand.ACK_RESPONSE, ack_response=response)))

    def log_once(self, what: str, error: BrokerError) -> None:
        """Log the first error of a command that the client wants no answer to."""
        if not self._has_logged:
            self._has_logged = True
            _log.warning(
                "%s of consumer %d of the client at %s is ignored: %s",
                what,
                self._consumer_id,
                self._session.address,
                error,
            )


def _before_ledger(consumer: Consumer, request: CommandAck) -> list[EntryRange]:
    """Return the last entry before a ledger if the acknowledgement names the position before its first entry.

    A client that acknowledges whole entries names (7, -1) for a message within the batch (7, 0). An entry of a ledger
    that the topic does not have yet is returned as it is, and refused.
    """
    last_ledger_id = consumer.subscription.log.last.ledger_id
    for position in map(to_position, request.message_id):
        if position.ledger_id > last_ledger_id:
            return [EntryRange(ledger_id=position.ledger_id)]
        if position.entry_id < 0 <= position.ledger_id:
            last = consumer.find_last_before_ledger(position.ledger_id)
            if last is not None:
                return entry_ranges([MessageIdData(ledgerId=last.ledger_id, entryId=last.entry_id)])
    return []


def _apply(
    consumer: Consumer, request: CommandAck, epoch: int, whole: list[EntryRange], batches: list[BatchMessages]
) -> BrokerError | None:
    """Apply an acknowledgement to the subscription. Return why it does not count, or None."""
    if not whole and not batches:
        return None
    cumulative = request.ack_type == CommandAck.CUMULATIVE
    acknowledge = Acknowledge(epoch=epoch, cumulative=cumulative, entries=whole, messages=batches)
    try:
        consumer.acknowledge(acknowledge, active_only=False)
    except BrokerError as error:
        return error
    return None


def _batches(partial: Sequence[UnackedBatch], sizes: Sequence[int]) -> list[BatchMessages]:
    """Return the acknowledged messages of each batch. An entry that is deleted or no batch is skipped."""
    batches = []
    for (position, words), size in zip(partial, sizes, strict=True):
        bits = acknowledged_bits(words, size)
        if bits:
            ledger_id, entry_id = position
            data = bits.to_bytes((bits.bit_length() + 7) // 8, "little")
            batches.append(BatchMessages(ledger_id=ledger_id, entry_id=entry_id, messages=data, batch_size=size))
    return batches
