"""Brokers, producers, consumers and administrators in the simulated world, and the checks of their messages."""
