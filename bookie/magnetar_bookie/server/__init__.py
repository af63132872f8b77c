"""The bookie: keeps replicas of ledgers' entries. `bookie` is where to begin."""
