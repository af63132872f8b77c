"""Topics as Spark's tables and streams: `spark.read.format("magnetar")`, `spark.readStream.format("magnetar")`.

Theory of operation
-------------------
The way of a row, and the files in their order:

    driver    source.py               Spark creates the data source and asks it for a schema and a reader
              options/                the query's options, parsed and checked: topics, offsets, columns, limits
              batch_reader.py         spark.read: plans the whole range once
              stream_reader.py        spark.readStream: called by Spark for each micro-batch
              stream/                 offsets of micro-batches, as JSON in Spark's checkpoint; limits, lag, commit
              planning/               topics -> positions -> plans of the partitions' brokers -> slices
              leases/                 keep planned messages from being deleted
    both      log_slice.py            what one Spark task reads; pickled on the driver, unpickled on an executor
    executor  task/                   reads a slice's entries from the bookies
              arrow/                  converts entries to Arrow record batches, which Spark takes as rows

`broker_requests.py` has the timeouts of the driver's requests, `errors.py` all errors.

A query has no cursor and takes no messages from consumers. Its position is in Spark's checkpoint alone
(`stream/offsets.py`). A range between two positions always has the same messages, so a micro-batch that is repeated
has the same rows. Its messages can't be deleted while they are read: before a broker returns a plan, it records a
lease.
"""

from magnetar_spark.source import MagnetarDataSource, register

__all__ = ["MagnetarDataSource", "register"]
