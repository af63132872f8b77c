"""The ledger client: create, append, read, recover, close and delete ledgers. `ledger_client` is where to begin."""
