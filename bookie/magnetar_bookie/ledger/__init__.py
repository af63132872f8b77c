"""The ledger client: creates, writes, reads, recovers, closes and deletes ledgers. Start with `ledger_client`."""
