"""A bookie as a process of its own: settings, logging, signals, HTTP, and what its end says.

`run_bookie` composes it; the service itself is server/bookie_process.py.
"""
