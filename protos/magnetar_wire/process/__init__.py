"""Parts of a server's process: `magnetar bookie`, `magnetar broker` and `magnetar standalone` share them.

settings.py                  the settings that all of these processes have
start and end
    stop_signals.py          SIGTERM and SIGINT
    shutdown.py              the request to shut down, and steps with timeouts
    exit_status.py           the exit statuses
    event_loop.py            uvloop, if it is installed
    memory_tuning.py         garbage collection, and the C library's allocator
    open_files.py            the limit of open files
    version.py               Magnetar's version
addresses
    addresses.py             host:port in settings
    advertised_listeners.py  the addresses for clients and other processes
    listening_socket.py      sockets that listen
observation
    logs.py                  log lines on standard error
    http_server.py           HTTP for operators
    metric_families.py       metrics in Prometheus' format
    histogram.py             their histograms
    loop_delay.py            how late the event loop is
    single_flight_check.py   a health check that its callers share
"""

from __future__ import annotations
