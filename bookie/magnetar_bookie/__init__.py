"""Replicated ledgers: start with `protocol.md`, beside this file.

`ledger` is the client that creates, writes, reads and recovers ledgers, with the rules of each. `read` reads entries
without a metadata store. `server` is the bookie, `storage` is its disk, and `daemon` its process. `auto_recovery`
restores lost replicas.
"""
