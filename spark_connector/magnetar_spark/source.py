"""The data source named `magnetar`, as Spark calls it.

Spark creates an instance for each call (schema, reader, writer), and passes the options that it has for that call:
those of a query, those of a table that is being created (options/table_schema.py), `checkpointLocation` if a stream is
written, or none. So options are checked by the call that uses them, and not by the constructor.
"""

from __future__ import annotations

import secrets
from collections.abc import MutableMapping
from typing import Final, NoReturn

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from magnetar_spark.batch_reader import BatchReader, PushFiltersReader
from magnetar_spark.errors import NoSink, hide_tracebacks
from magnetar_spark.options.columns import build_spark_schema
from magnetar_spark.options.source_options import parse_batch_options, parse_query_columns
from magnetar_spark.options.table_schema import choose_schema_columns, is_table_definition, parse_table_columns
from magnetar_spark.stream_reader import StreamReader

__all__ = ["MagnetarDataSource", "register"]

_LOAD_ID_BYTES: Final = 16
_NO_SINK: Final = (
    "topics can't be written by Spark yet, neither by write, writeStream nor INSERT: this version has no "
    "sink. Publish with magnetar.Client, in foreachPartition, or in a stream's foreachBatch"
)


class MagnetarDataSource(DataSource):
    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        # Spark uses one instance for all batches of a `load()`.
        self._load_id = secrets.token_hex(_LOAD_ID_BYTES)

    @classmethod
    def name(cls) -> str:
        return "magnetar"

    def schema(self) -> StructType:
        with hide_tracebacks():
            if is_table_definition(self.options):
                return build_spark_schema(parse_table_columns(self.options))
            return build_spark_schema(parse_query_columns(self.options))

    def reader(self, schema: StructType) -> BatchReader:
        with hide_tracebacks():
            options = parse_batch_options(self.options)
            columns = choose_schema_columns(schema, options.columns)
            if options.push_filters:
                return PushFiltersReader(options, columns, self._load_id)
            return BatchReader(options, columns)

    def streamReader(self, schema: StructType) -> StreamReader:
        return StreamReader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> NoReturn:
        with hide_tracebacks():
            raise NoSink(_NO_SINK)

    def streamWriter(self, schema: StructType, overwrite: bool) -> NoReturn:
        with hide_tracebacks():
            raise NoSink(_NO_SINK)


def register(spark: SparkSession) -> None:
    """Register the data source if Spark does not find it in the environment of the driver's Python."""
    spark.dataSource.register(MagnetarDataSource)
