"""The data source named `magnetar`, as Spark calls it.

Spark makes one of these for each thing that it asks for (the schema, a reader, a writer), and passes the options that
it has for that: those of a query, those of a table that is being created (options/table_schema.py),
`checkpointLocation` where a stream is written, or none. So options are checked where it is known what they are for, and
not when this is made.
"""

from __future__ import annotations

import secrets
from collections.abc import MutableMapping
from typing import Final, NoReturn

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from magnetar_spark.batch_reader import BatchReader, PushFiltersReader
from magnetar_spark.errors import NoSink
from magnetar_spark.options.columns import spark_schema
from magnetar_spark.options.source_options import batch_options, columns_of
from magnetar_spark.options.table_schema import is_table_definition, table_columns
from magnetar_spark.plain_errors import plainly
from magnetar_spark.stream_reader import StreamReader
from magnetar_spark.user_schema import columns_of_schema

__all__ = ["MagnetarDataSource", "register"]

_LOAD_ID_BYTES: Final = 16
_NO_SINK: Final = (
    "topics can't be written by Spark yet, neither by write, writeStream nor INSERT: this version has no "
    "sink. Publish with magnetar.Client, in foreachPartition, or in a stream's foreachBatch"
)


class MagnetarDataSource(DataSource):
    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        # Spark keeps one instance for all batches of a `load()`.
        self._load_id = secrets.token_hex(_LOAD_ID_BYTES)

    @classmethod
    def name(cls) -> str:
        return "magnetar"

    def schema(self) -> StructType:
        with plainly():
            if is_table_definition(self.options):
                return spark_schema(table_columns(self.options))
            return spark_schema(columns_of(self.options))

    def reader(self, schema: StructType) -> BatchReader:
        with plainly():
            options = batch_options(self.options)
            columns = columns_of_schema(schema, options.columns)
            if options.push_filters:
                return PushFiltersReader(options, columns, self._load_id)
            return BatchReader(options, columns)

    def streamReader(self, schema: StructType) -> StreamReader:
        return StreamReader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> NoReturn:
        with plainly():
            raise NoSink(_NO_SINK)

    def streamWriter(self, schema: StructType, overwrite: bool) -> NoReturn:
        with plainly():
            raise NoSink(_NO_SINK)


def register(spark: SparkSession) -> None:
    """Registers the data source where Spark does not find it by itself: in the environment of the driver's Python."""
    spark.dataSource.register(MagnetarDataSource)
