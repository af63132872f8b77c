"""Retry and dead letters: messages that are stored in another topic, and acknowledged then."""
