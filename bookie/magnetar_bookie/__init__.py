"""Ledgers: a replicated log in many pieces. `protocol.md` beside this file is where to begin.

`read` is what a reader needs who knows no metadata store; `core` the rules; `client` the ledger client; `server` the
bookie; `storage` what a bookie keeps ledgers in; `auto_recovery` what makes lost replicas again.
"""
