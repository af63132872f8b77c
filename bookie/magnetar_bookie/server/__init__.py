"""The bookie.

The way of an entry, in the order of reading:

    add_stream.py              1. receives frames, and passes runs of entries to the rules
    ledger_rules.py            2. fencing, comparing: refuses entries, or puts them into the open group
      replica_cache.py            the ledgers in memory
    group_commit.py            3. writes and syncs one group at a time
      group_commit_rules.py       the group: its changes, and the results to send when it is durable
    ../storage/                4. log and index
    bookie.py, add_stream.py   5. when the group is durable: sends the results, and wakes readers

The calls of clients:

    request_handler.py         reads, fences, LACs, inventories
    record_reader.py           reads and checks records
    long_polls.py              readers that wait for a LAC

The bookie's own process:

    bookie_process.py          everything from start to end, with and without a metadata session
    cookie_validation.py       whether the disk may start under this bookie id
      cookie_validation_rules.py  the rules of that
    registration.py            the node by which clients find the bookie
    garbage_collector.py       drops deleted ledgers
    scrubber.py                looks for damaged records
      scrubber_rules.py           when a pass starts, and how fast it reads
    read_only_reasons.py       why the bookie accepts no new entries
    counters.py                what the metrics show

Modules named `…_rules`, `replica_cache` and `counters` do no I/O.
"""
