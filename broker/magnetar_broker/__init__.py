"""The broker: topics, their logs and subscriptions, and its listeners. ARCHITECTURE.md has the reading order."""
