"""Reads all topics of a run through Spark once more, in a process of its own, and writes down what it found.

    python -m tests.faults.torture.spark_reading HISTORIES

It says `ready` when Spark runs. On standard input it is told, in one line, a URL and the places that are to be read,
with commas between them: then its history has all of their messages in the order of their ids, and how many, and it
says `done`. Where there is no Java or PySpark it says why, in a line that begins with `without`.

Digests are computed where Spark's tasks run, from the columns that the source gives: nothing of the clients' SDK.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.faults.checker.recorder import Recorder
from tests.faults.torture import messages
from tests.running_spark import read, spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

__all__ = ["READER"]

READER: Final = "spark"
_LINE_MESSAGES: Final = 500
# What a task tells of a message.
_FOUND: Final = "struct<producer: string, number: bigint, digest: string, key: string, why: string>"
_IN_ORDER: Final = ("topic", "partition", "ledger_id", "entry_id", "batch_index")


def whole_log(url: str, places: Sequence[str]) -> DataFrame:
    """A row for each message, which says what it is: small ones, in the order of their ids in each place."""
    from pyspark.sql.functions import expr, udf

    topics = dict.fromkeys(place.partition("-partition-")[0] for place in places)
    frame = read(spark_session(), url, topics=",".join(topics), startingOffsets="earliest")
    found = udf(identify, _FOUND)("value", "key", "properties", expr("unix_millis(event_time)"))
    return frame.select("topic", "partition", "message_id.*", found.alias("found")).orderBy(*_IN_ORDER)


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


def write(rows: Iterable[Row], recorder: Recorder, places: Sequence[str]) -> None:
    """Of a place that has none that is said, too."""
    counts = dict.fromkeys(places, 0)
    items: list[list[Any]] = []
    place = ""

    def tell() -> None:
        if items:
            recorder.say("scan", reader=READER, place=place, items=items)
            items.clear()

    for row in rows:
        here = row.topic.rpartition("/")[2] + ("" if row.partition is None else f"-partition-{row.partition}")
        if here != place or len(items) >= _LINE_MESSAGES:
            tell()
        place = here
        counts[place] = counts.get(place, 0) + 1
        found, id_ = row.found, [row.ledger_id, row.entry_id, row.batch_index]
        if found.why is not None:
            recorder.say("unreadable", reader=READER, place=place, id=id_, why=found.why)
        else:
            items.append([found.producer, found.number, found.digest, found.key, *id_])
    tell()
    for name, count in counts.items():
        recorder.say("scanned", reader=READER, place=name, messages=count)


def _warm_up() -> None:
    """A session, and the process in which it runs Python."""
    spark = spark_session()
    from pyspark.sql.functions import udf

    spark.range(2).select(udf(lambda number: number, "bigint")("id")).collect()


def main(histories: str) -> None:
    try:
        _warm_up()
    except pytest.skip.Exception as error:
        _say(f"without: {error.msg}")
        return
    _say("ready")
    url, _, listed = sys.stdin.readline().strip().partition(" ")
    places = listed.split(",")
    with Recorder(Path(histories), READER) as recorder:
        write(whole_log(url, places).toLocalIterator(), recorder, places)
    _say("done")


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
