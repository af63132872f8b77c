"""What a Spark task does on an executor: it reads the entries of a slice from the bookies.

slice_reader.py         reads a slice, and yields Arrow record batches
entry_prefetch.py       reads entries ahead, in order and without gaps
bookie_connections.py   the connections that a worker process retains between tasks
broker_client.py        requests to brokers: renewals of leases, entries that no bookie returned
"""
