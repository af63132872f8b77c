"""Reading entries of ledgers whose fragments are known: no metadata store, no fence, no recovery."""
