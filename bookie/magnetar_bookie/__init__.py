"""Replicated ledgers: start with `protocol.md`, beside this file.

`ledger` is the client that creates, writes, reads and recovers ledgers, with the rules of each. `read` reads entries
without a metadata store. `server` is the bookie, with its rules in `core`; `storage` is its disk. `auto_recovery`
restores lost replicas.
"""
