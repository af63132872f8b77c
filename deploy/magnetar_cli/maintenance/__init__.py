"""Commands for a running cluster: `magnetar bookies`, `ledgers`, `brokers` and `bundles`."""
