"""The process of a bookie: logging, signals, HTTP and exit status. Its settings are in `settings/process.py`.

`run_bookie` combines them; the bookie itself is server/bookie_process.py.
"""
