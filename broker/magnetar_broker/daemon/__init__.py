"""The process of a broker: logging, signals, HTTP and exit status. Its settings are in `settings/process.py`.

`run_broker` composes it; the service itself is broker.py.
"""
