"""What a connection's consumer acknowledges: held against what there is, told to the subscription, answered when asked.

An ACK names entries, and of batches the messages that are still open. How many a batch has it does not say: that is in
the entry, which the broker may have to read. Meanwhile other acknowledgements go on, for their order does not matter,
and so does the rest of the same one; but each counts as of the epoch in which it came, and a consumer that closes waits
for those that it sent before. What can't be read is refused, and nothing else.

As on Pulsar, the acknowledgement of a consumer counts also after another consumer has taken over (Failover). The
libraries send each acknowledgement once. Until it is closed, a consumer of the C++ library, and so of the Python one,
drops every message up to the last one that it has acknowledged cumulatively: if the broker refused the acknowledgement
and delivered the messages again to the same consumer, they would never be acknowledged.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from magnetar_broker.errors import BrokerError, DamagedEntry, LostEntry
from magnetar_broker.server.pulsar.acknowledged_ids import OpenMessages, ranges_of, whole_and_partial
from magnetar_broker.server.pulsar.error_codes import server_error
from magnetar_broker.server.pulsar.message_ids import acknowledged_bits, position_of
from magnetar_broker.server.pulsar.replies import frame
from magnetar_broker.topic.consumer import Consumer
from magnetar_protos.broker_pb2 import Acknowledge, BatchMessages, EntryRange, ErrorCode
from magnetar_protos.entry_pb2 import MessageIdData
from magnetar_protos.pulsar_pb2 import BaseCommand, CommandAck, CommandAckResponse

if TYPE_CHECKING:
    from magnetar_broker.server.pulsar.connection import PulsarConnection

__all__ = ["Acknowledging"]

_log = logging.getLogger(__name__)
# Entries that are read at a time to learn how many messages they have: each may be as large as any.
_READ_TOGETHER: Final = 4


class Acknowledging:
    """Of one consumer."""

    __slots__ = ("_connection", "_consumer_id", "_finding", "_logged")

    def __init__(self, connection: PulsarConnection, consumer_id: int) -> None:
        self._connection = connection
        self._consumer_id = consumer_id
        # Those with parts of batches whose sizes are looked up.
        self._finding: set[asyncio.Task[None]] = set()
        self._logged = False

    @property
    def busy(self) -> bool:
        return bool(self._finding)

    async def settled(self) -> None:
        """Returns when all that came before is told."""
        while self._finding:
            await asyncio.wait(self._finding)

    def acknowledge(self, consumer: Consumer | None, asked: CommandAck, epoch: int) -> None:
        """`epoch`: in which it came, however long finding the sizes of batches takes."""
        if asked.txnid_least_bits or asked.txnid_most_bits:
            no_transactions = "the acknowledgement is part of a transaction, and this broker has none"
            self._answer(asked, BrokerError(ErrorCode.UNSUPPORTED, no_transactions))
            return
        if asked.ack_type == CommandAck.CUMULATIVE and len(asked.message_id) != 1:
            text = f"a cumulative acknowledgement names one message, and this one {len(asked.message_id)}"
            self._answer(asked, BrokerError(ErrorCode.INVALID_ARGUMENT, text))
            return
        if consumer is None:
            self._answer(asked, BrokerError(ErrorCode.NOT_FOUND, f"consumer {self._consumer_id} is not open"))
            return
        self._acknowledge(consumer, asked, epoch)

    def _acknowledge(self, consumer: Consumer, asked: CommandAck, epoch: int) -> None:
        whole, partial = whole_and_partial(asked.message_id)
        if asked.ack_type == CommandAck.CUMULATIVE and not whole and not partial:
            whole = _up_to_ledger(consumer, asked)
        known: list[BatchMessages] = []
        unknown: list[OpenMessages] = []
        try:
            for one in partial:
                if (size := consumer.batch_size(one[0])) is None:
                    unknown.append(one)
                else:
                    known += _batches([one], [size])
        except BrokerError as error:  # the topic has ended
            self._answer(asked, error)
            return
        refused = _tell(consumer, asked, epoch, whole, known)
        if unknown:
            finding = self._connection.spawn(self._find_and_tell(consumer, asked, epoch, unknown, refused))
            self._finding.add(finding)
            finding.add_done_callback(self._finding.discard)
        else:
            self._answer_when_saved(consumer, asked, refused)

    async def _find_and_tell(
        self,
        consumer: Consumer,
        asked: CommandAck,
        epoch: int,
        unknown: list[OpenMessages],
        refused: BrokerError | None,
    ) -> None:
        """Whole entries are read for it: few at a time, whatever clients name."""
        parts = deque(unknown[begin : begin + _READ_TOGETHER] for begin in range(0, len(unknown), _READ_TOGETHER))
        while parts:
            part = parts.popleft()
            try:
                sizes = await self._find_sizes(consumer, part)
            except (LostEntry, DamagedEntry) as error:
                if len(part) == 1:
                    refused = refused or error
                else:
                    parts.extendleft([one] for one in part)
            except BrokerError as error:
                refused = refused or error
                break  # others can't be read now either
            else:
                refused = _tell(consumer, asked, epoch, [], _batches(part, sizes)) or refused
        self._answer_when_saved(consumer, asked, refused)

    async def _find_sizes(self, consumer: Consumer, part: list[OpenMessages]) -> list[int]:
        """A turn of its own for each part, and one at a time of a connection: thousands hold up itself."""
        async with self._connection.reading_sizes, self._connection.door.reading_sizes:
            return await consumer.find_batch_sizes([position for position, _ in part])

    def _answer_when_saved(self, consumer: Consumer, asked: CommandAck, refused: BrokerError | None) -> None:
        if refused is not None:
            self._answer(asked, refused)
            return
        if not asked.HasField("request_id"):
            return

        # Without what it names, which may be a megabyte: so many may wait here.
        without_ids = CommandAck(consumer_id=asked.consumer_id, ack_type=asked.ack_type, request_id=asked.request_id)

        def saved(error: BrokerError | None) -> None:
            self._connection.answered()
            self._answer(without_ids, error)

        self._connection.asked()
        consumer.when_saved(saved)

    def _answer(self, asked: CommandAck, error: BrokerError | None) -> None:
        if not asked.HasField("request_id"):
            if error is not None:
                self.log_once("an acknowledgement", error)
            return
        told = CommandAckResponse(consumer_id=self._consumer_id, request_id=asked.request_id)
        told.txnid_least_bits, told.txnid_most_bits = asked.txnid_least_bits, asked.txnid_most_bits
        if error is not None:
            told.error, told.message = server_error(error.code), str(error)
        self._connection.write(frame(BaseCommand(type=BaseCommand.ACK_RESPONSE, ack_response=told)))

    def log_once(self, what: str, error: BrokerError) -> None:
        """Of what nobody waits for an answer."""
        if not self._logged:
            self._logged = True
            _log.warning(
                "consumer %d of %s: %s was dropped: %s", self._consumer_id, self._connection.address, what, error
            )


def _up_to_ledger(consumer: Consumer, asked: CommandAck) -> list[EntryRange]:
    """What is named by the place right before the first entry of a ledger.

    A client that does not count by messages and acknowledges up to one within the batch (7, 0) names (7, -1).
    """
    for position in map(position_of, asked.message_id):
        if position.entry_id < 0 <= position.ledger_id and (last := consumer.last_before(position.ledger_id)):
            return ranges_of([MessageIdData(ledgerId=last.ledger_id, entryId=last.entry_id)])
    return []


def _tell(
    consumer: Consumer, asked: CommandAck, epoch: int, whole: list[EntryRange], batches: list[BatchMessages]
) -> BrokerError | None:
    """Why it does not count. `epoch`: in which it came, however long finding the sizes of batches took."""
    if not whole and not batches:
        return None
    cumulative = asked.ack_type == CommandAck.CUMULATIVE
    request = Acknowledge(epoch=epoch, cumulative=cumulative, entries=whole, messages=batches)
    try:
        consumer.acknowledge(request, active_only=False)
    except BrokerError as error:
        return error
    return None


def _batches(partial: Sequence[OpenMessages], sizes: Sequence[int]) -> list[BatchMessages]:
    """What is acknowledged of each; what is no batch, or not there any more, is passed over."""
    batches = []
    for (position, words), size in zip(partial, sizes, strict=True):
        bits = acknowledged_bits(words, size)
        if bits:
            ledger_id, entry_id = position
            data = bits.to_bytes((bits.bit_length() + 7) // 8, "little")
            batches.append(BatchMessages(ledger_id=ledger_id, entry_id=entry_id, messages=data, batch_size=size))
    return batches
