"""A broker as a process of its own: settings, logging, signals, HTTP, and what its end says.

`run_broker` composes it; the service itself is broker.py.
"""
