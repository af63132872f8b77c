"""Rules about the access modes of a topic's producers: which of them may publish at the same time (PRD-2).

    Shared                 any number of them; refused while an exclusive producer is connected or waits
    Exclusive              one; refused while another producer is connected
    WaitForExclusive       one; queued while another producer is connected, and admitted in the order of the queue
    ExclusiveWithFencing   one; all others are fenced, also those that wait

**The topic epoch** proves that a producer has the topic to itself since it was opened. Each exclusive producer gets the
next number, which is stored with its name before it is admitted (CHK-39). When it reconnects it presents the number,
and is admitted without a new one if number and name are the stored ones: then nobody has published in the meantime. If
another producer was admitted since, it is fenced for good. A shared producer that is admitted stores that nobody holds
the number any more.

    A opens exclusively: epoch 5 of A is stored. A's connection breaks
    B, which waited, is admitted: epoch 6 of B is stored. A presents 5, and is fenced
    or S opens shared: epoch 5 of nobody is stored. A presents 5, and is fenced

**Partitions.** A producer of a partitioned topic gets its epoch at the first partition, and presents it when it is
opened on each of the others. Each of them remembers the highest that was presented: a producer with a lower one has
lost the first partition, so it is refused, or fenced. One with the same is the same producer, which tries again.
Numbers of a partition are its own, so it does not matter how often somebody has opened the partition alone. If the
first partition was deleted and created again, its numbers are lower than those that the others remember. Then the
refused producer reopens the first partition with a higher one. A number that the first partition does not have yet is
refused by the others (producer_access.py).

    the first partition: epoch 7 of A is stored
    another one: has epoch 9 of somebody who has opened it alone. A presents 7: epoch 10 of A is stored, with the 7
    the first partition: epoch 8 of B is stored. B presents 8 at the other one, where A is fenced: epoch 11 of B

`WaitForExclusive` waits at the first one only.

**A non-persistent topic** loses its epoch when it is unloaded. So a producer may reopen it with a higher number than
the topic has: if two such producers come, the one with the higher number stays.

The number is assigned just before it is stored (`assign_epoch`). In the meantime the producer is admitted already, so
others are refused or wait. If it leaves, the number is not used again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from magnetar_broker.errors import BrokerError
from magnetar_protos.broker_pb2 import ErrorCode, ProducerAccessMode

__all__ = ["AccessRequest", "Admission", "ProducerAccess", "StaleTopicEpoch", "StoredEpoch"]

P = TypeVar("P")

# The highest number that a client may present.
MAX_EPOCH: Final = 2**62


@dataclass(frozen=True, slots=True)
class StoredEpoch:
    number: int
    # The name of the producer that may reopen with it; empty: none may.
    holder: str
    # The highest epoch of the topic's first partition that was presented here; None: none was.
    first_partition_number: int | None = None
    # The holder has presented it.
    from_first_partition: bool = False


@dataclass(frozen=True, slots=True)
class AccessRequest:
    mode: ProducerAccessMode
    # The producer's name.
    name: str
    # The number that the producer presents.
    epoch: int | None = None
    # It was open before with that number. Otherwise it has the number from the topic's first partition.
    was_open: bool = False


@dataclass(frozen=True, slots=True)
class Admission(Generic[P]):
    # It waits until `next_admitted` returns it.
    is_queued: bool = False
    # Producers that are fenced by this one.
    fenced: Sequence[P] = field(default=())


class StaleTopicEpoch(BrokerError):
    """A producer presents an epoch that is not the topic's, or the first partition's, any more."""

    def __init__(self, text: str, topic_epoch: int | None = None) -> None:
        """`topic_epoch`: that of the first partition which is to be exceeded."""
        super().__init__(ErrorCode.PRODUCER_FENCED, text)
        self.topic_epoch = topic_epoch

    def again(self) -> StaleTopicEpoch:
        return StaleTopicEpoch(str(self), self.topic_epoch)


class ProducerAccess(Generic[P]):
    """`P` is the type of producers."""

    __slots__ = (
        "_are_epochs_durable",
        "_exclusive",
        "_first_partition_number",
        "_from_first_partition",
        "_is_storing",
        "_last_number",
        "_shared",
        "_topic",
        "_unstored",
        "_waiting",
        "stored",
    )

    def __init__(
        self, stored: StoredEpoch | None, *, topic: str = "the topic", are_epochs_durable: bool = True
    ) -> None:
        self._topic = topic
        # As the topic's node has it.
        self.stored = stored
        self._are_epochs_durable = are_epochs_durable
        # The highest number that was assigned or stored: the next one is above it.
        self._last_number = -1 if stored is None else stored.number
        # The highest number of the first partition that was presented, and whether the exclusive producer has.
        self._first_partition_number = None if stored is None else stored.first_partition_number
        # Admitted producers: shared ones, or a single exclusive one. For those of `_unstored` an epoch must be stored
        # before they are open.
        self._shared: dict[P, None] = {}
        self._exclusive: P | None = None
        self._unstored: dict[P, AccessRequest] = {}
        self._from_first_partition = False
        # An epoch was assigned, and it is not known yet whether it will be stored. Its producer may have left.
        self._is_storing = False
        # Invariant after each `next_admitted`: if one waits, another one is admitted.
        self._waiting: dict[P, AccessRequest] = {}

    def waiting_producers(self) -> list[P]:
        """Return the queued producers, the next one first."""
        return list(self._waiting)

    @property
    def waiting(self) -> int:
        """The number of queued producers."""
        return len(self._waiting)

    def blockers(self) -> list[P]:
        """Return the admitted producers, because of which others are refused or wait."""
        return [*self._shared] if self._exclusive is None else [self._exclusive]

    def request(self, producer: P, request: AccessRequest, replaced: P | None = None) -> Admission[P]:
        """Admit, queue or refuse a producer. Raises `BrokerError`.

        `replaced` is the same client's earlier connection, which has left in any case. After this, also if it raises,
        the caller ends the fenced producers and calls `next_admitted`.
        """
        was_shared = replaced is not None and replaced in self._shared
        if replaced is not None:
            self._remove(replaced)
        if request.mode == ProducerAccessMode.ACCESS_SHARED:
            if (self._exclusive is not None or self._waiting) and not was_shared:
                raise BrokerError(
                    ErrorCode.PRODUCER_BUSY, f"{self._topic} has an exclusive producer{self._holder_text()}"
                )
            self._shared[producer] = None
            if self.stored is not None and self.stored.holder:
                self._unstored[producer] = request
            return Admission()
        self._check_epoch(request)
        fenced: list[P] = []
        if request.mode == ProducerAccessMode.ACCESS_EXCLUSIVE_WITH_FENCING:
            fenced = [*self.blockers(), *self._waiting]
        elif self._exclusive is not None and self._is_superseded(request):
            fenced = [self._exclusive]
        elif self._exclusive is not None or self._shared:
            if request.mode == ProducerAccessMode.ACCESS_WAIT_FOR_EXCLUSIVE and request.epoch is None:
                self._waiting[producer] = request
                return Admission(is_queued=True)
            raise BrokerError(ErrorCode.PRODUCER_FENCED, self._explain_blocked(request))
        for one in fenced:
            self._remove(one)
        self._admit(producer, request)
        return Admission(fenced=fenced)

    def _explain_blocked(self, request: AccessRequest) -> str:
        what, it = "an exclusive producer" + self._holder_text(), "it"
        if self._exclusive is None and len(self._shared) == 1:
            what = "a shared producer"
        elif self._exclusive is None:
            what, it = f"{len(self._shared)} shared producers", "them"
        # A producer of a partitioned topic waits at the first partition only.
        wait = "wait with WaitForExclusive, " if request.epoch is None else ""
        return f"{self._topic} has {what}: close {it}, {wait}or fence {it} with ExclusiveWithFencing"

    def _check_epoch(self, request: AccessRequest) -> None:
        """Raise `BrokerError` if the presented epoch is not, or not yet, a reason to admit the producer."""
        number, stored = request.epoch, self.stored
        if number is None:
            return
        if not request.was_open:
            highest = self._first_partition_number
            if highest is not None and number < highest:
                raise StaleTopicEpoch(
                    f"producer {request.name!r} has the epoch {number} of the topic's first partition, which another "
                    f"one has opened since, with epoch {highest}",
                    highest,
                )
            if number > MAX_EPOCH:
                raise BrokerError(ErrorCode.INVALID_ARGUMENT, f"topic_epoch {number} is above the limit of {MAX_EPOCH}")
            return
        is_forgotten = not self._are_epochs_durable and self._last_number < number <= MAX_EPOCH
        if not is_forgotten and not self._has_stored_epoch(request):
            current = "there is none" if stored is None else f"the topic has {stored.number}"
            raise StaleTopicEpoch(
                f"the epoch {number} of producer {request.name!r} has ended ({current}): another producer was "
                "admitted, or the topic was created again"
            )
        if self._unstored or self._is_storing:
            raise BrokerError(ErrorCode.SERVICE_NOT_READY, "another producer is being opened: try again")
        is_its_own = self._exclusive is not None and self._has_stored_epoch(request)  # an earlier connection of it
        if is_its_own and request.mode != ProducerAccessMode.ACCESS_EXCLUSIVE_WITH_FENCING:
            raise BrokerError(ErrorCode.PRODUCER_BUSY, f"producer {request.name!r} is still connected: try again")

    def _has_stored_epoch(self, request: AccessRequest) -> bool:
        stored = self.stored
        return stored is not None and stored.number == request.epoch and stored.holder == request.name

    def _is_superseded(self, request: AccessRequest) -> bool:
        """Whether the exclusive producer has an older epoch than the one that is presented."""
        number, highest = request.epoch, self._first_partition_number
        if number is None:
            return False
        if request.was_open:
            return not self._has_stored_epoch(request)
        return self._from_first_partition and highest is not None and number > highest

    def _admit(self, producer: P, request: AccessRequest) -> None:
        self._exclusive = producer
        if self.stored is not None and request.was_open and self._has_stored_epoch(request):
            self._from_first_partition = self.stored.from_first_partition
            return
        self._from_first_partition = request.epoch is not None and not request.was_open
        if self._from_first_partition:
            self._first_partition_number = request.epoch
        elif request.epoch is not None:
            self._last_number = request.epoch
        self._unstored[producer] = request

    def must_store(self, producer: P) -> bool:
        """Return whether an epoch must be stored before the producer is open. False, too, if it has left."""
        return producer in self._unstored

    def assign_epoch(self, producer: P) -> StoredEpoch:
        """Return what is to be stored for the producer (`must_store`).

        The caller stores epochs one at a time, and calls `record_stored` or `record_not_stored`.
        """
        request = self._unstored[producer]
        self._is_storing = True
        if request.mode == ProducerAccessMode.ACCESS_SHARED:
            assert self.stored is not None
            return StoredEpoch(self.stored.number, "", self._first_partition_number)
        if not request.was_open or request.epoch is None:
            presented = -1 if request.epoch is None else request.epoch
            self._last_number = max(self._last_number + 1, presented)
        return StoredEpoch(
            self._last_number,
            request.name,
            self._first_partition_number,
            from_first_partition=request.epoch is not None and not request.was_open,
        )

    def record_stored(self, producer: P, epoch: StoredEpoch) -> None:
        """Record that the topic's node has the epoch."""
        self.stored, self._is_storing = epoch, False
        self._unstored.pop(producer, None)

    def record_not_stored(self) -> None:
        """Record that the epoch that was assigned last is not stored, or that the topic is lost."""
        self._is_storing = False

    def leave(self, producer: P) -> None:
        """Record that a producer, admitted or queued, has left. Then the caller calls `next_admitted`."""
        self._remove(producer)

    def _remove(self, producer: P) -> None:
        self._shared.pop(producer, None)
        self._waiting.pop(producer, None)
        self._unstored.pop(producer, None)
        if self._exclusive is producer:
            self._exclusive = None

    def next_admitted(self) -> P | None:
        """Admit the first queued producer if no other one is admitted, and return it."""
        if self._exclusive is not None or self._shared or not self._waiting:
            return None
        producer = next(iter(self._waiting))
        self._admit(producer, self._waiting.pop(producer))
        return producer

    def _holder_text(self) -> str:
        name = self.stored.holder if self.stored is not None else ""
        return f" ({name})" if name else ""
