"""The broker: topics on ledgers, subscriptions, and who may reach them. ARCHITECTURE.md says where to begin."""
