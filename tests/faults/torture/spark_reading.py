"""Read all topics of a run again through Spark, in a process of its own, and record the messages.

    python -m tests.faults.torture.spark_reading HISTORIES

It prints `ready` when Spark runs. Standard input has, in one line, a URL and the partitions to read, with commas
between them: then its history gets all of their messages in the order of their ids, and their number, and it prints
`done`. Without Java or PySpark it prints the reason, in a line that begins with `without`.

Digests are computed in Spark's tasks, from the columns of the source, without the clients' SDK. All goes through Arrow:
row by row it would take a multiple of the time. A batch in a task has some megabytes at most; the tasks' output is as
small for a large message as for a small one, and is sorted here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import pytest

from tests.faults.checker.recorder import Recorder
from tests.faults.torture import messages
from tests.faults.workload_processes import die_with_parent
from tests.running_spark import read, spark_session

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column

__all__ = ["READER", "Row"]

READER: Final = "spark"
_LINE_MESSAGES: Final = 500
_NOBODYS_URL: Final = "magnetar://127.0.0.1:1"
_BATCH_BYTES: Final = 8 << 20
# The columns of a task's output for a message.
_FOUND: Final = "struct<producer: string, number: bigint, digest: string, key: string, why: string>"
_IN_ORDER: Final = ("topic", "partition", "ledger_id", "entry_id", "batch_index")


class Row(NamedTuple):
    topic: str
    partition: int | None
    ledger_id: int
    entry_id: int
    batch_index: int
    # The message's digest, or else why it is unreadable.
    producer: str | None
    number: int | None
    digest: str | None
    key: str | None
    why: str | None


def whole_log(url: str, partition_names: Sequence[str]) -> Iterator[Row]:
    """A row for each message, in the order of their ids in each partition."""
    spark = spark_session()
    spark.conf.set("spark.sql.execution.arrow.maxBytesPerBatch", str(_BATCH_BYTES))
    topics = dict.fromkeys(partition.partition("-partition-")[0] for partition in partition_names)
    frame = read(spark, url, topics=",".join(topics), startingOffsets="earliest")
    found = _by_arrow(identify_all, _FOUND)("value", "key", "properties", "event_time")
    frame = frame.select("topic", "partition", "message_id.*", found.alias("found"))
    table = frame.select(*_IN_ORDER, "found.*").toArrow()
    for batch in table.sort_by([(name, "ascending") for name in _IN_ORDER]).to_batches():
        yield from map(Row._make, zip(*(column.to_pylist() for column in batch.columns), strict=True))


def _by_arrow(act: Callable[..., pa.Array], type_: str) -> Callable[..., Column]:
    from pyspark.sql.pandas.functions import ArrowUDFType, arrow_udf

    # Else it would look for what it is in the types of the parameters, by names that are not there while it runs.
    return cast(Any, arrow_udf)(act, type_, ArrowUDFType.SCALAR)  # type: ignore[no-any-return]


def identify_all(value: pa.Array, key: pa.Array, properties: pa.Array, event_time: pa.Array) -> pa.Array:
    """As `identify` does each; times are in microseconds."""
    import pyarrow as pa

    times = (None if time is None else time // 1000 for time in event_time.cast(pa.int64()).to_pylist())
    columns = value.to_pylist(), key.to_pylist(), properties.to_pylist(maps_as_pydicts="strict"), times
    found = [identify(*one) for one in zip(*columns, strict=True)]
    parts = zip(*found, strict=True) if found else [()] * len(Row._fields[5:])
    types = pa.string(), pa.int64(), pa.string(), pa.string(), pa.string()
    arrays = [pa.array(part, type_) for part, type_ in zip(parts, types, strict=True)]
    return pa.StructArray.from_arrays(arrays, names=Row._fields[5:])


def identify(
    value: bytes | None, key: bytes | None, properties: Mapping[str, str] | None, event_ms: int | None
) -> tuple[str | None, int | None, str | None, str | None, str | None]:
    """Producer, number, digest and key; or else why it is no message of anybody's."""
    payload = None if value is None else bytes(value)
    try:
        text = None if key is None else bytes(key).decode()
        one = messages.read(payload, text, dict(properties or {}), event_ms or 0)
    except ValueError as error:
        return None, None, None, None, str(error)
    return one.producer, one.number, one.digest, one.key, None


def write(rows: Iterable[Row], recorder: Recorder, partition_names: Sequence[str]) -> None:
    """Record an empty partition, too."""
    counts = dict.fromkeys(partition_names, 0)
    items: list[list[Any]] = []
    partition = ""

    def flush() -> None:
        if items:
            recorder.say("scan", reader=READER, place=partition, items=items)
            items.clear()

    for row in rows:
        here = row.topic.rpartition("/")[2] + ("" if row.partition is None else f"-partition-{row.partition}")
        if here != partition or len(items) >= _LINE_MESSAGES:
            flush()
        partition = here
        counts[partition] = counts.get(partition, 0) + 1
        id_ = [row.ledger_id, row.entry_id, row.batch_index]
        if row.why is not None:
            recorder.say("unreadable", reader=READER, place=partition, id=id_, why=row.why)
        else:
            items.append([row.producer, row.number, row.digest, row.key, *id_])
    flush()
    for name, count in counts.items():
        recorder.say("scanned", reader=READER, place=name, messages=count)


def _warm_up() -> None:
    """A session, and the processes in which it runs Python: for its tasks, and for what it asks a source of."""
    spark = spark_session()
    read(spark, _NOBODYS_URL, topics="none")  # it connects to nobody until something is done with it
    spark.range(2).select(_by_arrow(lambda number: number, "bigint")("id")).toArrow()


def main(histories: str) -> None:
    try:
        _warm_up()
    except pytest.skip.Exception as error:
        _say(f"without: {error.msg}")
        return
    _say("ready")
    url, _, listed = sys.stdin.readline().strip().partition(" ")
    partition_names = listed.split(",")
    with Recorder(Path(histories), READER) as recorder:
        write(whole_log(url, partition_names), recorder, partition_names)
    _say("done")


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    die_with_parent()
    main(*sys.argv[1:])
