"""Topics: their producers, their subscriptions, and how what was stored gets to consumers."""
