"""A message's position: its ledger, entry and index in the batch, and the partition of the topic.

The names are those of Pulsar's public Python client, with methods where that has methods, so that an application
migrates by changing its import. Unlike that client's ids, these are immutable, can be hashed and pickled, and are
unequal to other objects.

**Order.** Ids of one partition are ordered by (ledger, entry, batch index): ledger ids grow over the whole cluster. -1
sorts before 0 in each field: an id without a batch index is that of its entry, and sorts before all messages in the
entry. Ids that differ in the partition only (an application created them, or they are `earliest` or `latest`) are
ordered by the partition, so that order, `==` and hash agree. Batch size, topic and first chunk don't count: they
describe the same position.

**Bytes.** `serialize` writes the public MessageIdData as stock clients do. Fields of -1, and a batch size of 0, are
omitted, except that the -1 of ledger and entry is the unsigned 2^64 - 1. `deserialize` refuses bytes that can't be an
id, since ids come from the storage of applications. A topic's name is not in the bytes.

**Chunks.** A message sent in chunks has the id of its last chunk, with the id of its first one as
`first_chunk_message_id`. That id must not have a first chunk itself: a chain of ids would be an attack.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import repeat
from typing import ClassVar, Final, NoReturn, final

from google.protobuf.message import DecodeError

from magnetar_protos.entry_pb2 import MessageIdData
from magnetar_wire.errors import InvalidMessageId

# Enough for the acknowledgement bits of 300,000 messages in one batch, which ids of stock clients may contain.
MAX_SERIALIZED_BYTES: Final = 65_536

_MAX_INT32: Final = 2**31 - 1
_MAX_INT64: Final = 2**63 - 1
_TWO_TO_64: Final = 2**64


@final
class MessageId:
    """A message's position. It is immutable."""

    # (ledger, entry, batch index, partition): the key of order, equality and hash.
    _position: tuple[int, int, int, int]
    # (batch size, topic's name, first chunk's id): one object for all ids of a batch.
    _more: tuple[int, str, MessageId | None]

    # The delivery to a consumer of the message that this id comes from. Other ids, and copies, don't have it.
    _delivery: object

    __slots__ = ("_delivery", "_more", "_position")

    earliest: ClassVar[MessageId]
    latest: ClassVar[MessageId]

    def __init__(
        self,
        partition: int = -1,
        ledger_id: int = -1,
        entry_id: int = -1,
        batch_index: int = -1,
        batch_size: int = 0,
        topic_name: str = "",
        first_chunk_message_id: MessageId | None = None,
    ) -> None:
        if not (
            -1 <= ledger_id <= _MAX_INT64
            and -1 <= entry_id <= _MAX_INT64
            and -1 <= partition <= _MAX_INT32
            and -1 <= batch_index <= _MAX_INT32
            and 0 <= batch_size <= _MAX_INT32
        ):
            raise InvalidMessageId(
                f"invalid message id: partition={partition!r}, ledger_id={ledger_id!r}, "
                f"entry_id={entry_id!r}, batch_index={batch_index!r}, batch_size={batch_size!r}; ledger and "
                "entry are -1 … 2^63 - 1, partition and batch index -1 … 2^31 - 1, the batch size 0 … 2^31 "
                "- 1"
            )
        if first_chunk_message_id is not None and first_chunk_message_id._more[2] is not None:
            raise InvalidMessageId(f"the id of a first chunk can't have a first chunk itself: {first_chunk_message_id}")
        # Bypasses __setattr__, which refuses.
        set_slot = object.__setattr__
        set_slot(self, "_position", (ledger_id, entry_id, batch_index, partition))
        set_slot(self, "_more", (batch_size, topic_name, first_chunk_message_id))

    def ledger_id(self) -> int:
        return self._position[0]

    def entry_id(self) -> int:
        return self._position[1]

    def batch_index(self) -> int:
        """Return the index in the batch, from 0; -1 for the id of a whole entry."""
        return self._position[2]

    def partition(self) -> int:
        """Return the partition's number; -1 if the topic has none, or if it is unknown."""
        return self._position[3]

    def batch_size(self) -> int:
        """Return the number of messages in the batch; 0 if it is unknown, or if there is no batch."""
        return self._more[0]

    def topic_name(self) -> str:
        """Return the topic's full name, with the suffix of a partition; empty if it is unknown."""
        return self._more[1]

    @property
    def first_chunk_message_id(self) -> MessageId | None:
        """The id of the first chunk of a message that was sent in chunks; None for all others."""
        return self._more[2]

    def serialize(self) -> bytes:
        """Encode the id, without the topic's name. Stock clients can read the bytes."""
        return _to_data(self).SerializeToString()

    @classmethod
    def wrap(cls, msg_id: MessageId) -> MessageId:
        """Return the id itself. It exists for compatibility: there is only one kind of ids here."""
        if not isinstance(msg_id, cls):
            raise TypeError(f"a message id is needed, not {type(msg_id).__name__}")
        return msg_id

    @staticmethod
    def deserialize(message_id_bytes: bytes, topic: str | None = None) -> MessageId:
        """Decode an id that `serialize`, ours or a stock client's, encoded. Raises InvalidMessageId.

        Fields that an id of this class doesn't have (acknowledgement bits, fields of later versions) are ignored.
        """
        if len(message_id_bytes) > MAX_SERIALIZED_BYTES:
            raise InvalidMessageId(
                f"invalid message id: {len(message_id_bytes):,} bytes, above the limit of {MAX_SERIALIZED_BYTES:,}"
            )
        try:
            data = MessageIdData.FromString(bytes(message_id_bytes))
        except DecodeError as error:
            raise InvalidMessageId(f"invalid message id: {bytes(message_id_bytes[:50])!r}: {error}") from error
        first_chunk = None
        if data.HasField("first_chunk_message_id"):
            first_chunk = _from_data(data.first_chunk_message_id, None, "")
        return _from_data(data, first_chunk, topic or "")

    def __lt__(self, other: object) -> bool:
        return self._position < other._position if isinstance(other, MessageId) else NotImplemented

    def __le__(self, other: object) -> bool:
        return self._position <= other._position if isinstance(other, MessageId) else NotImplemented

    def __gt__(self, other: object) -> bool:
        return self._position > other._position if isinstance(other, MessageId) else NotImplemented

    def __ge__(self, other: object) -> bool:
        return self._position >= other._position if isinstance(other, MessageId) else NotImplemented

    def __eq__(self, other: object) -> bool:
        return self._position == other._position if isinstance(other, MessageId) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._position)

    def __str__(self) -> str:
        """Return `(ledger,entry,partition,batch index)`; for chunks, that of the first one, then that of the last."""
        ledger_id, entry_id, batch_index, partition = self._position
        text = f"({ledger_id},{entry_id},{partition},{batch_index})"
        first_chunk = self._more[2]
        return text if first_chunk is None else f"{first_chunk};{text}"

    def __repr__(self) -> str:
        ledger_id, entry_id, batch_index, partition = self._position
        text = f"MessageId({partition=}, {ledger_id=}, {entry_id=}, {batch_index=}"
        batch_size, topic_name, first_chunk = self._more
        if batch_size:
            text += f", {batch_size=}"
        if topic_name:
            text += f", {topic_name=}"
        if first_chunk is not None:
            text += f", first_chunk_message_id={first_chunk!r}"
        return text + ")"

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"message ids are immutable: {name} can't be set; create another MessageId")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"message ids are immutable: {name} can't be deleted")

    def __reduce__(self) -> tuple[type[MessageId], tuple[object, ...]]:
        ledger_id, entry_id, batch_index, partition = self._position
        return MessageId, (partition, ledger_id, entry_id, batch_index, *self._more)


# The slots' setters, which bypass __setattr__.
_set_position: Final = MessageId.__dict__["_position"].__set__
_set_more: Final = MessageId.__dict__["_more"].__set__


def ids_of_batch(
    partition: int, ledger_id: int, entry_id: int, batch_indexes: Iterable[int], batch_size: int, topic_name: str
) -> list[MessageId]:
    """Create the ids of a batch's messages, unchecked, in a quarter of the time of creating them one by one.

    The numbers must be those of an existing entry.
    """
    positions = list(zip(repeat(ledger_id), repeat(entry_id), batch_indexes, repeat(partition)))
    ids = list(map(object.__new__, repeat(MessageId, len(positions))))
    deque(map(_set_position, ids, positions), maxlen=0)
    deque(map(_set_more, ids, repeat((batch_size, topic_name, None))), maxlen=0)
    return ids


MessageId.earliest = MessageId()
MessageId.latest = MessageId(ledger_id=_MAX_INT64, entry_id=_MAX_INT64)


def _to_data(message_id: MessageId) -> MessageIdData:
    ledger_id, entry_id, batch_index, partition = message_id._position
    data = MessageIdData(ledgerId=ledger_id % _TWO_TO_64, entryId=entry_id % _TWO_TO_64)
    if partition >= 0:
        data.partition = partition
    if batch_index >= 0:
        data.batch_index = batch_index
    batch_size, _, first_chunk = message_id._more
    if batch_size:
        data.batch_size = batch_size
    if first_chunk is not None:
        data.first_chunk_message_id.CopyFrom(_to_data(first_chunk))
    return data


def _from_data(data: MessageIdData, first_chunk: MessageId | None, topic: str) -> MessageId:
    # The parser doesn't check required fields.
    if not (data.HasField("ledgerId") and data.HasField("entryId")):
        raise InvalidMessageId("invalid message id: the bytes have no ledger id or no entry id")
    if data.HasField("first_chunk_message_id") and first_chunk is None:
        raise InvalidMessageId("invalid message id: the id of its first chunk has a first chunk itself")
    return MessageId(
        data.partition,
        _signed(data.ledgerId),
        _signed(data.entryId),
        data.batch_index,
        data.batch_size,
        topic,
        first_chunk,
    )


def _signed(value: int) -> int:
    return value if value <= _MAX_INT64 else value - _TWO_TO_64
