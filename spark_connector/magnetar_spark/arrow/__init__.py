"""Converts stored entries to Arrow record batches, in most cases without an object for each message.

    entries_to_arrow.py    the converter: entries in, record batches out
    entry_rows.py          one entry's messages as columns, by the fastest path that supports the entry:
      uniform_batch.py       batches that are a table
      batch_fields.py        other batches, field by field, with record_bounds.py, properties.py, varints.py
    chunked_messages.py    joins messages in chunks
    rows.py                one entry's columns, before they are Arrow arrays
    record_batches.py      joins the columns of several entries, with array_builders.py

EntriesToArrow(columns, topic, partition, earlier) ─ convert_entries(ledger, first entry, entries) ─► record batches
                                                   ─ finish() ─► the last record batches
"""

from magnetar_spark.arrow.entries_to_arrow import MAX_BATCH_BYTES, MAX_BATCH_ROWS, EntriesToArrow, ProblemCounts

__all__ = ["MAX_BATCH_BYTES", "MAX_BATCH_ROWS", "EntriesToArrow", "ProblemCounts"]
