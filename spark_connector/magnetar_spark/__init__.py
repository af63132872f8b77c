"""Topics as Spark's tables and streams: `spark.read.format("magnetar")`, `spark.readStream.format("magnetar")`.

Theory of operation
-------------------
    driver    source.py ─ options.py ─ topics.py ─► which partitions of which topics
                 │
                 ├─ batch_reader.py, stream_reader.py: from where to where, by plans that each partition's broker makes
                 │  (magnetar.admin), held by leases
                 └─ planning/slice_builder.py: plans dealt out into slices, one Spark task each
    executor  task/slice_reader.py: a slice ─► entries, straight from the bookies ─► Arrow record batches ─► Spark

Nothing here has a cursor or takes anything from a consumer. Where a query stands is in Spark's checkpoint alone, as
plain JSON (offsets.py); a range between two such places always holds the same messages, so that a batch that is done
again yields the same rows. What is between them can't be deleted while it is read: the broker that made the plan wrote
a lease down first.
"""

from magnetar_spark.source import MagnetarDataSource, register

__all__ = ["MagnetarDataSource", "register"]
