"""Messages that were delivered and not received yet: permits, chunks, and the receiver queue."""
