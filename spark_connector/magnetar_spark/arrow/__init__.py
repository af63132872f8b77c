"""Stored entries into Arrow record batches, straight: no object for a message on the usual paths.

    entries_to_arrow.py   the whole: entries in, record batches out
    entry_rows.py         one entry's messages as columns, by uniform_batch.py, batch_fields.py or magnetar_wire's
    decoder chunked_messages.py       messages that are several entries
    record_batches.py     the columns of several entries joined

EntriesToArrow(columns, topic, partition, earlier) ─ add(ledger, first entry, entries) ─► record batches ─ finish() ─► …
"""

from magnetar_spark.arrow.entries_to_arrow import MAX_BATCH_BYTES, MAX_BATCH_ROWS, EntriesToArrow

__all__ = ["MAX_BATCH_BYTES", "MAX_BATCH_ROWS", "EntriesToArrow"]
