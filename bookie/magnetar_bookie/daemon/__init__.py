"""The process of a bookie: logging, signals, HTTP and exit status. Its settings are in `settings/process.py`.

`run_bookie` composes it; the service itself is server/bookie_process.py.
"""
