"""The code paths of `batch.py`, which encode and decode a batch's payload with the same result.

uniform_batch.py      batches that are a table: equal payload sizes, and nothing else than sequence ids
uniform_head.py       the head of such a table's records; the Spark connector reads it, too
column_encoding.py    the encoder of all other batches
column_decoding.py    the decoder of most batches, with one call of protobuf's parser
record_cutting.py     where each record ends, for the column decoder and the Spark connector
message_decoding.py   the slow decoder of everything else, which finds the error in a malformed batch
metadata_limits.py    the limits that all of them check
"""
