"""Brokers, producers, consumers and administrators in the simulated world, and what must hold of their messages."""
