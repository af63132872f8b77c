"""The formats and interfaces that all parts of Magnetar share. Import from the modules.

entries and batches: the codec
    batch.py              messages to entries and back: begin here
    messages.py           messages as columns
    entry.py              the frame of an entry: checksum, metadata, the broker's metadata
    entry_keys.py         the key of an entry, for Key_Shared
    chunks.py             messages too large for one entry
    compression.py        LZ4, ZLIB, ZSTD, SNAPPY
    batch_codec/          the code paths of batch.py
    varints.py            varints, single and in columns
    limits.py             maximum sizes
    entry_memory.py       the memory of waiting entries, for all budgets
names, ids, schemas and hashes
    topic_name.py         names of topics, namespaces and partitions
    path_component.py     names in paths and URLs
    message_id.py         positions of messages
    schemas.py            versions of schemas, and the definition of KEY_VALUE
    hashing.py            partitions of keys, and Key_Shared
    bundles.py            ranges of topics' hashes
    delivery_reasons.py   why a subscription delivers nothing
frames and transports
    frame.py              many entries in one message of a stream
    protobuf_fields.py    fields of bytes, encoded without copies
    transport.py          the interface: calls, streams, and what their failures mean
    grpc_transport/       between machines
    in_process_transport.py  within a process
    pipe.py               one direction of a stream, for both
interfaces of the environment
    clock.py              time and timers
    randomness.py         random numbers
    tasks.py              task groups with a fixed order
    settings.py           how a setting is declared: unit, subject, bounds
    configuration.py      settings from files, environment and flags
    interruptible_wait.py waits that Ctrl-C ends
processes
    process/              signals, shutdown, listeners, logs, HTTP, metrics
errors.py has the errors about names, messages, entries and frames.

Only the implementations of interfaces do I/O: `grpc_transport`, `in_process_transport`, `pipe`, `clock`, `randomness`,
`tasks`, `configuration` and `process`.
"""
