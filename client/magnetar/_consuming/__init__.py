"""Consumers and readers on the client's loop: of one partition, and of all topics together."""
