"""What Spark is given: the data source named `magnetar`."""

from __future__ import annotations

import secrets
from collections.abc import MutableMapping
from typing import Final, NoReturn

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from magnetar_spark.batch_reader import BatchReader, FilteringReader
from magnetar_spark.columns import spark_schema
from magnetar_spark.errors import NoSink
from magnetar_spark.options import batch_options, columns_of
from magnetar_spark.plain_errors import plainly
from magnetar_spark.stream_reader import StreamReader
from magnetar_spark.user_schema import columns_of_schema

__all__ = ["MagnetarDataSource", "register"]

_LOAD_ID_BYTES: Final = 16
_NO_SINK: Final = (
    "topics can't be written to by Spark yet: there is no sink in this version. Publish with magnetar.Client, in "
    "foreachPartition, or in a stream's foreachBatch"
)


class MagnetarDataSource(DataSource):
    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        with plainly():
            self._columns = columns_of(options)
        # Spark makes one instance for each `load()`, and pickles it.
        self._load_id = secrets.token_hex(_LOAD_ID_BYTES)

    @classmethod
    def name(cls) -> str:
        return "magnetar"

    def schema(self) -> StructType:
        return spark_schema(self._columns)

    def reader(self, schema: StructType) -> BatchReader:
        with plainly():
            options, columns = batch_options(self.options), columns_of_schema(schema, self._columns)
            return (
                FilteringReader(options, columns, self._load_id)
                if options.push_filters
                else BatchReader(options, columns)
            )

    def streamReader(self, schema: StructType) -> StreamReader:
        return StreamReader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> NoReturn:
        with plainly():
            raise NoSink(_NO_SINK)

    def streamWriter(self, schema: StructType, overwrite: bool) -> NoReturn:
        with plainly():
            raise NoSink(_NO_SINK)


def register(spark: SparkSession) -> None:
    """For where Spark does not find the source by itself: it looks for it in the environment of the driver's Python."""
    spark.dataSource.register(MagnetarDataSource)
