"""The metadata store: one interface (`store`), and three stores behind it."""
